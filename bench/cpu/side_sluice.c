/* Sluice as a side of compare.py, by its public interface: tensors stay in this program's memory (sluice_interop.h), as
 * they do with the other sides; one step at a time (option per_step) with sluice_stream.h. Weights are packed before the clock
 * starts. */
#define _GNU_SOURCE /* dladdr, names of registers */
#include <unistd.h>

#include "samples.h"
#include "sides.h"
#include "sluice_interop.h"
#include "sluice_stream.h"

static sl_model *model;
static sl_plan *plan;
static sl_params *params;
static sl_run *run;
static sl_stream_model *stream_model;
static sl_stream *stream;
static side_shape shape;
static float *x, *y, *dy, *dx;
static int32_t *lengths;
static char what[256];

static void side_close(void) {
    sl_stream_free(stream);
    sl_stream_model_free(stream_model);
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    stream = NULL;
    stream_model = NULL;
    run = NULL;
    params = NULL;
    plan = NULL;
    model = NULL;
    free(x), free(y), free(dy), free(dx), free(lengths);
    x = y = dy = dx = NULL;
    lengths = NULL;
}

static float *floats(size_t count) {
    float *memory = aligned_alloc(64, (count * sizeof *memory + 63) / 64 * 64);
    if (!memory) abort();
    memset(memory, 0, count * sizeof *memory);
    return memory;
}

static sl_status set_parameters(void) {
    sl_status status = SL_OK;
    const float scale = 1.0f / sqrtf((float)shape.h);
    for (int k = 0; status == SL_OK && k < sl_params_count(params); k++) {
        int rows, columns, layer = 0;
        char part[NAME_MAX_BYTES];
        const char *name = sl_params_name(params, k, &rows, &columns);
        if (sscanf(name, "rnn%d.%63s", &layer, part) != 2) return SL_ERR_INTERNAL;
        const int kind = strcmp(part, "kernel") == 0             ? SEED_KERNEL
                         : strcmp(part, "recurrent_kernel") == 0 ? SEED_RECURRENT
                         : strcmp(part, "bias") == 0             ? SEED_BIAS
                         : strcmp(part, "projection") == 0       ? SEED_PROJECTION
                                                                 : SEED_RECURRENT_BIAS;
        const size_t count = (size_t)rows * (size_t)columns;
        double *values = malloc(count * sizeof *values);
        if (!values) abort();
        for (size_t j = 0; j < count; j++)
            values[j] = (double)side_number(j, (uint32_t)(10 * (layer - 1) + kind), scale);
        status = sl_params_set(params, name, values, count);
        free(values);
    }
    return status;
}

static sl_dl_tensor tensor(void *data, int rank, int64_t *dims, int code) {
    return (sl_dl_tensor){
        .data = data, .device = {SL_DL_CPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, 32, 1}, .shape = dims};
}

/* The same model as a stream model, by way of a file. */
static sl_status open_stream(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/side_sluice.%ld.slm", (long)getpid());
    sl_status status = sl_model_convert(model, params, NULL, path);
    if (status == SL_OK) status = sl_stream_model_load(path, &stream_model);
    if (status == SL_OK) status = sl_stream_new(stream_model, &stream);
    remove(path);
    return status;
}

static const char *side_call(void) {
    for (size_t t = 0; stream && t < (size_t)shape.t; t++)
        sl_stream_step(stream, x + t * (size_t)shape.i, y + t * (size_t)shape.h);
    if (stream) return NULL;
    int64_t in_dims[] = {shape.t, shape.b, shape.i}, out_dims[] = {shape.t, shape.b, side_outputs(&shape)}, rows[] = {shape.b};
    const sl_dl_tensor in = tensor(x, 3, in_dims, SL_DL_FLOAT), out = tensor(y, 3, out_dims, SL_DL_FLOAT),
                       d_out = tensor(dy, 3, out_dims, SL_DL_FLOAT), d_in = tensor(dx, 3, in_dims, SL_DL_FLOAT),
                       steps = tensor(lengths, 1, rows, SL_DL_INT);
    const sl_dl_tensor *ins[] = {&in}, *outs[] = {&out}, *d_outs[] = {&d_out}, *d_ins[] = {&d_in};
    const int train = strcmp(shape.mode, "train") == 0;
    const sl_interop_call call = {.batch = shape.b,
                                  .steps = shape.t,
                                  .training = train,
                                  .inputs = ins,
                                  .outputs = outs,
                                  .lengths = lengths ? &steps : NULL};
    sl_status status = sl_interop_forward(run, &call);
    if (status == SL_OK && train) status = sl_interop_backward(run, d_outs, d_ins);
    return status == SL_OK ? NULL : sl_error_detail();
}

static const char *open_steps(void) {
    char problem[256], output[16], projection[24] = "";
    if (side_outputs(&shape) != shape.h) snprintf(projection, sizeof projection, "_p%d", side_outputs(&shape));
    snprintf(problem, sizeof problem, "%s:l%d_b%d_t%d_i%d_h%d%s%s_%s%s", shape.cell, shape.l, shape.b, shape.t, shape.i,
             shape.h, projection, strcmp(shape.mode, "train") == 0 ? "_train" : "", shape.dtype,
             strcmp(shape.option, "lengths") == 0  ? "+lengths"
             : strcmp(shape.option, "rdrop") == 0  ? "+rdrop=0.5"
             : strcmp(shape.option, "before") == 0 ? "+reset=before"
                                                   : "");
    sl_plan_options options = {0};
    snprintf(output, sizeof output, "rnn%d", shape.l);
    const char *const outputs[] = {output, NULL}; /* the final states are not wanted */
    sl_status status = sl_model_from_problem(NULL, problem, &model, &options);
    if (status == SL_OK) status = sl_model_set_outputs(model, outputs);
    options.device = "cpu";
    options.threads = shape.threads;
    options.require = strcmp(shape.require, "-") == 0 ? NULL : shape.require;
    options.input_gradients = options.train;
    if (status == SL_OK) status = sl_plan_new(model, &options, &plan);
    if (status == SL_OK) status = sl_params_new(plan, &params);
    if (status == SL_OK) status = set_parameters();
    if (status == SL_OK)
        status = strcmp(shape.option, "per_step") == 0 ? open_stream() : sl_run_new(plan, params, &run);
    return status == SL_OK ? NULL : sl_error_detail();
}

static const char *side_open(const side_shape *wanted, const char **text) {
    side_close();
    shape = *wanted;
    const char *why = open_steps();
    if (why) return why;
    const size_t rows = (size_t)shape.t * (size_t)shape.b;
    x = floats(rows * (size_t)shape.i);
    dx = floats(rows * (size_t)shape.i);
    y = floats(rows * (size_t)shape.h);
    dy = floats(rows * (size_t)shape.h);
    side_fill(x, rows * (size_t)shape.i, SEED_X, 1);
    side_fill(dy, rows * (size_t)shape.h, SEED_DY, 1);
    if (strcmp(shape.option, "lengths") == 0) {
        lengths = malloc((size_t)shape.b * sizeof *lengths);
        if (!lengths) abort();
        for (int b = 0; b < shape.b; b++) lengths[b] = side_length(b, shape.b, shape.t);
    }
    snprintf(what, sizeof what, "%s %s", sl_version(), stream ? "stream" : sl_plan_kernels(plan));
    *text = what;
    return NULL;
}

static void tell_gradient(const char *key, const char *name, size_t count) {
    double *values = malloc(count * sizeof *values);
    float *small = malloc(count * sizeof *small);
    if (!values || !small) abort();
    if (sl_run_gradient(run, name, values, count) == SL_OK) {
        for (size_t k = 0; k < count; k++) small[k] = (float)values[k];
        printf(", ");
        side_tell(key, small, count);
    }
    free(values);
    free(small);
}

static void side_check(void) {
    if (stream) sl_stream_reset(stream);
    if (run) sl_run_zero_gradients(run);
    const char *why = side_call();
    if (why) return;
    const size_t rows = (size_t)shape.t * (size_t)shape.b, h = (size_t)shape.h, out = (size_t)side_outputs(&shape);
    const size_t gates = strcmp(shape.cell, "lstm") == 0 ? 4 : strcmp(shape.cell, "gru") == 0 ? 3 : 1;
    side_tell("y", y, rows * out);
    if (strcmp(shape.mode, "train") != 0) return;
    printf(", ");
    side_tell("dx", dx, rows * (size_t)shape.i);
    tell_gradient("d_kernel", "rnn1.kernel", gates * h * (size_t)shape.i);
    tell_gradient("d_recurrent", "rnn1.recurrent_kernel", gates * h * out);
}

static void side_sample(double seconds) {
    const double begin = side_now();
    samples_run(1);
    while (side_now() - begin < seconds && !side_call()) continue;
    samples_run(0);
    samples_tell();
}

int main(void) {
    const side_ops ops = {side_open, side_call, side_check, side_close, side_sample};
    return side_loop(&ops);
}
