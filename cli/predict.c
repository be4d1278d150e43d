/* sluice predict: outputs of a model for an array of rows, written as an .npy file. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "files.h"
#include "json.h"

typedef struct predict_options {
    const char *x, *lengths, *out;
    int batch;
} predict_options;

static const option predict_table[] = {
    {OPTION_TEXT, "x", offsetof(predict_options, x), "X.npy", 0, 0,
     "inputs: numbers [N][T][F] or [N][F], or whole numbers (tokens) [N][T]"},
    {OPTION_TEXT, "lengths", offsetof(predict_options, lengths), "L.npy", 0, 0,
     "steps of each row [N]; the rest is masked, and may be NaN"},
    {OPTION_TEXT, "out", offsetof(predict_options, out), "Y.npy", 0, 0, "the outputs [N][T][F] or [N][F]"},
    {OPTION_INT, "batch", offsetof(predict_options, batch), "B", 1, 0, "rows a call (default 32)"},
    {0}};
static const option_group predict_group = {"data", predict_table};

/* One call of the command; predict_free frees all. */
typedef struct predict_job {
    const char *input; /* name of the model's input */
    int vocabulary, features, has_steps;
    bool doubles; /* the plan is f64 */
    sl_model *model;
    sl_array x, lengths, y;
    int64_t rows, steps;
    void *values; /* x converted: float, double or int32, [N][T][F] */
    int32_t *row_lengths;
    size_t row_bytes; /* of one row of values */
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
} predict_job;

static void predict_free(predict_job *job) {
    sl_run_free(job->run);
    sl_params_free(job->params);
    sl_plan_free(job->plan);
    sl_model_free(job->model);
    if (job->x.data) sl_array_free(&job->x);
    if (job->lengths.data) sl_array_free(&job->lengths);
    free(job->y.data); /* our own */
    free(job->values);
    free(job->row_lengths);
}

/* ----------------------------------------------------------------------------------------------------- the input -- */
static size_t elements(const sl_array *array) {
    size_t count = 1;
    for (int i = 0; i < array->rank; i++) count *= (size_t)array->shape[i];
    return count;
}

static double element(const sl_array *array, size_t i) {
    switch (array->type) {
    case SL_ARRAY_F32:
        return ((const float *)array->data)[i];
    case SL_ARRAY_F64:
        return ((const double *)array->data)[i];
    case SL_ARRAY_I32:
        return ((const int32_t *)array->data)[i];
    case SL_ARRAY_I64:
        return (double)((const int64_t *)array->data)[i];
    default:
        return ((const uint8_t *)array->data)[i];
    }
}

static bool whole_numbers(const sl_array *array) {
    return array->type != SL_ARRAY_F32 && array->type != SL_ARRAY_F64;
}

/* Fits x to the model's input, sets rows and steps. */
static int check_shape(predict_job *job, const char *path) {
    const sl_array *x = &job->x;
    int rank = job->vocabulary ? 2 : job->has_steps ? 3 : 2;
    if (x->rank != rank)
        return report_as(SL_ERR_SHAPE, "%s has %d dimensions; input %s takes %s", path, x->rank, job->input,
                         job->vocabulary  ? "tokens [N][T]"
                         : job->has_steps ? "[N][T][F]"
                                          : "[N][F]");
    job->rows = x->shape[0];
    job->steps = job->has_steps ? x->shape[1] : 1;
    if (!job->vocabulary && x->shape[rank - 1] != job->features)
        return report_as(SL_ERR_SHAPE, "%s has %lld features; input %s takes %d", path, (long long)x->shape[rank - 1],
                         job->input, job->features);
    if (job->rows < 1 || job->steps < 1 || job->rows > INT32_MAX || job->steps > INT32_MAX)
        return report_as(SL_ERR_SHAPE, "%s holds %lld rows of %lld steps; it needs at least one of each", path,
                         (long long)job->rows, (long long)job->steps);
    return 0;
}

static int convert_tokens(predict_job *job, const char *path, size_t count) {
    if (!whole_numbers(&job->x))
        return report_as(SL_ERR_INPUT, "%s holds fractions; input %s takes tokens: save whole numbers", path,
                         job->input);
    int32_t *tokens = job->values;
    for (size_t i = 0; i < count; i++) {
        double value = element(&job->x, i);
        if (value < 0 || value >= job->vocabulary)
            return report_as(SL_ERR_INPUT, "%s, element %zu is %.0f; tokens of input %s are from 0 to %d", path, i,
                             value, job->input, job->vocabulary - 1);
        tokens[i] = (int32_t)value;
    }
    return 0;
}

/* Steps beyond a row's length may hold anything, and become 0. */
static int convert_numbers(predict_job *job, const char *path, size_t count) {
    const size_t row = count / (size_t)job->rows, step = row / (size_t)job->steps;
    for (size_t i = 0; i < count; i++) {
        const bool counts = !job->row_lengths || i % row / step < (size_t)job->row_lengths[i / row];
        const double value = counts ? element(&job->x, i) : 0;
        if (!isfinite(value))
            return report_as(SL_ERR_NUMBERS, "%s, element %zu is %f; replace what is not finite", path, i, value);
        if (!job->doubles && fabs(value) > FLT_MAX)
            return report_as(SL_ERR_NUMBERS,
                             "%s, element %zu is %g, which f32 cannot hold; scale the data, or use --dtype f64", path,
                             i, value);
        if (job->doubles)
            ((double *)job->values)[i] = value;
        else
            ((float *)job->values)[i] = (float)value;
    }
    return 0;
}

static int read_lengths(predict_job *job, const char *path) {
    if (!job->has_steps)
        return report_as(SL_ERR_SHAPE, "--lengths: input %s has no steps; leave the option out", job->input);
    int code = report(sl_npy_read(NULL, path, &job->lengths));
    if (code) return code;
    if (job->lengths.rank != 1 || job->lengths.shape[0] != job->rows || !whole_numbers(&job->lengths))
        return report_as(SL_ERR_SHAPE, "%s must hold %lld whole numbers, one for each row", path, (long long)job->rows);
    job->row_lengths = malloc((size_t)job->rows * sizeof *job->row_lengths);
    if (!job->row_lengths) return report_memory();
    for (int64_t i = 0; i < job->rows; i++) {
        double value = element(&job->lengths, (size_t)i);
        if (value < 0 || value > (double)job->steps)
            return report_as(SL_ERR_INPUT, "%s, element %lld is %.0f; lengths are from 0 to %lld", path, (long long)i,
                             value, (long long)job->steps);
        job->row_lengths[i] = (int32_t)value;
    }
    return 0;
}

static int read_input(predict_job *job, const char *path, const char *lengths) {
    int code = report(sl_npy_read(NULL, path, &job->x));
    if (!code) code = check_shape(job, path);
    if (!code && lengths) code = read_lengths(job, lengths);
    if (code) return code;
    size_t count = elements(&job->x), bytes = job->vocabulary || !job->doubles ? 4 : 8;
    job->values = malloc(count * bytes);
    if (!job->values) return report_memory();
    job->row_bytes = count / (size_t)job->rows * bytes;
    return job->vocabulary ? convert_tokens(job, path, count) : convert_numbers(job, path, count);
}

/* ------------------------------------------------------------------------------------------------------- the run -- */
/* Room for the outputs of all rows once the first call says how long one is. */
static int shape_output(predict_job *job) {
    int steps, batch, features;
    int code = report(sl_run_output_shape(job->run, NULL, &steps, &batch, &features));
    if (code) return code;
    sl_array *y = &job->y;
    y->type = job->doubles ? SL_ARRAY_F64 : SL_ARRAY_F32;
    y->rank = steps ? 3 : 2;
    y->shape[0] = job->rows;
    y->shape[1] = steps ? steps : features;
    y->shape[2] = features;
    y->bytes = (size_t)job->rows * (steps ? (size_t)steps : 1) * (size_t)features * (job->doubles ? 8 : 4);
    y->data = malloc(y->bytes);
    return y->data ? 0 : report_memory();
}

static int run_rows(predict_job *job, int most) {
    for (int64_t first = 0; first < job->rows; first += most) {
        int batch = job->rows - first < most ? (int)(job->rows - first) : most;
        const void *inputs[] = {(const char *)job->values + (size_t)first * job->row_bytes};
        sl_batch data = {.batch = batch,
                         .steps = (int)job->steps,
                         .inputs = inputs,
                         .lengths = job->row_lengths ? job->row_lengths + first : NULL};
        int code = report(sl_run_reset_state(job->run));
        if (!code) code = report(sl_run_forward(job->run, &data));
        if (!code && !job->y.data) code = shape_output(job);
        if (code) return code;
        size_t row = job->y.bytes / (size_t)job->rows, count = row / (job->doubles ? 8 : 4) * (size_t)batch;
        code = report(sl_run_output(job->run, NULL, (char *)job->y.data + (size_t)first * row, count));
        if (code) return code;
        const char *layer = sl_run_first_nonfinite(job->run);
        if (layer)
            return report_as(SL_ERR_NUMBERS,
                             "layer %s gives numbers that are not finite in rows %lld to %lld; check the "
                             "model's parameters and the inputs",
                             layer, (long long)first, (long long)first + batch - 1);
    }
    return 0;
}

static int predict(predict_job *job, const sl_file *file, const predict_options *o, sl_plan_options *options) {
    int code = report(sl_file_model(file, &job->model));
    if (code) return code;
    job->input = sl_model_input(job->model, 0, &job->vocabulary, &job->features, &job->has_steps);
    if (!job->input || sl_model_input(job->model, 1, NULL, NULL, NULL))
        return report_as(SL_ERR_INPUT, "predict takes models with one input; use the library for others");
    job->doubles = options->dtype == SL_F64;
    code = read_input(job, o->x, o->lengths);
    if (code) return code;
    int most = o->batch ? o->batch : 32;
    options->batch = job->rows < most ? (int)job->rows : most;
    options->steps = (int)job->steps;
    options->batch_major = 1;
    options->masking = o->lengths ? SL_MASK_LENGTHS : SL_MASK_NONE;
    code = report(sl_plan_new(job->model, options, &job->plan));
    if (!code) code = report(sl_params_new(job->plan, &job->params));
    if (!code) code = report(sl_file_load_params(file, job->params));
    if (!code) code = report(sl_run_new(job->plan, job->params, &job->run));
    if (!code) code = run_rows(job, options->batch);
    return code ? code : report(sl_npy_write(o->out, &job->y));
}

static void print_result(const predict_job *job, const char *path, bool as_json) {
    const sl_array *y = &job->y;
    if (as_json) {
        json out = {.file = stdout};
        json_open(&out, NULL, '{');
        json_str(&out, "out", path);
        json_open(&out, "shape", '[');
        for (int i = 0; i < y->rank; i++) json_int(&out, NULL, y->shape[i]);
        json_close(&out, ']');
        json_str(&out, "kernel", sl_plan_kernels(job->plan));
        json_close(&out, '}');
        json_end(&out);
        return;
    }
    if (is_standard_output(path)) return; /* nothing but the array */
    print_notes(job->plan);
    printf("wrote %s ", path);
    for (int i = 0; i < y->rank; i++) printf("[%lld]", (long long)y->shape[i]);
    putchar('\n');
}

static int run(const command *command, int count, char **words) {
    predict_options o = {0};
    where_options where = {0};
    script_options script = {0};
    arguments a = {.values = {&o, &where, &script}};
    int code = arguments_parse(&a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    if (!o.x || !o.out) return usage_error(command, "predict needs --x X.npy and --out Y.npy");
    const file_use uses[] = {{o.out, "--out", FILE_WRITTEN},
                             {a.positional[0], "the model", FILE_READ},
                             {o.x, "--x", FILE_READ},
                             {o.lengths, "--lengths", FILE_READ}};
    code = refuse_same_files(command, uses, 4);
    if (!code) code = refuse_other_marks(command, "--out", o.out, "\x93NUMPY", "is no NumPy array");
    if (code) return code;
    sl_plan_options options = {0};
    where_apply(&where, &a, &options);
    sl_file *file;
    code = open_model_file(a.positional[0], &file);
    if (code) return code;
    predict_job job;
    memset(&job, 0, sizeof job);
    code = predict(&job, file, &o, &options);
    if (!code) print_result(&job, o.out, script.json);
    predict_free(&job);
    sl_file_close(file);
    return code;
}

const command command_predict = {
    .name = "predict",
    .summary = "compute a model's outputs for an array",
    .synopsis = "sluice predict MODEL --x X.npy [--lengths L.npy] --out Y.npy",
    .text =
        "Runs the model on every row of X and writes its first output to Y.npy, atomically. Rows are independent: the\n"
        "state is zero at the start of each call.",
    .groups = {&predict_group, &where_group, &script_group},
    .examples = "  sluice predict classes.safetensors --x x.npy --out y.npy\n",
    .least = 1,
    .most = 1,
    .missing = "predict needs a model file",
    .run = run};
