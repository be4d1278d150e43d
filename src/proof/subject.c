/* Drawing a subject: shapes come from a plan in double, numbers from the one random generator. */
#include "proof/subject.h"

#include <math.h>
#include <string.h>

#include "core/plan.h"
#include "core/rng.h"
#include "core/rounding.h"
#include "core/status.h"
#include "core/threads.h"

/* Streams of random numbers, one for each array; purposes of the library end far below. */
enum {
    STREAM_INPUT = 1 << 16,
    STREAM_OUTPUT = 2 << 16,
    STREAM_PARAM = 3 << 16,
    STREAM_TARGET = 4 << 16,
    STREAM_MASK = 5 << 16
};

/* --------------------------------------------------------------------------------------------------------- shapes -- */

static sl_status add_array(sli_subject *s, sli_subject_array *array, const char *name, sli_shape shape) {
    size_t rows = (size_t)s->options.batch * (shape.time ? (size_t)s->options.steps : 1);
    array->name = sli_arena_string(&s->arena, name);
    array->time = shape.time;
    array->integer = shape.integer;
    array->vocabulary = shape.vocabulary;
    array->width = shape.integer ? 1 : shape.features;
    array->count = rows * (size_t)array->width;
    array->values = sli_arena_alloc(&s->arena, array->count * sizeof(double));
    return array->name && array->values ? SL_OK
                                        : sli_fail_memory("the numbers of a proof", array->count * sizeof(double));
}

static sl_status add_param(sli_subject *s, sli_subject_array *array, const sli_param *param) {
    array->name = sli_arena_string(&s->arena, param->name);
    array->width = param->columns;
    array->vocabulary = param->rows;
    array->count = (size_t)param->rows * (size_t)param->columns;
    array->values = sli_arena_alloc(&s->arena, array->count * sizeof(double));
    return array->name && array->values ? SL_OK
                                        : sli_fail_memory("the parameters of a proof", array->count * sizeof(double));
}

static sl_status add_masks(sli_subject *s) {
    size_t batch = (size_t)s->options.batch, cells = batch * (size_t)s->options.steps;
    if (s->options.masking == SL_MASK_LENGTHS) s->lengths = sli_arena_alloc(&s->arena, batch * sizeof *s->lengths);
    if (s->options.masking == SL_MASK_STEPS) s->mask = sli_arena_alloc(&s->arena, cells);
    bool missing =
        (s->options.masking == SL_MASK_LENGTHS && !s->lengths) || (s->options.masking == SL_MASK_STEPS && !s->mask);
    return missing ? sli_fail_memory("the mask of a proof", cells) : SL_OK;
}

static sl_status add_target(sli_subject *s, const sl_plan *plan) {
    if (plan->loss_step < 0) return SL_OK;
    sli_shape shape = plan->tensors[plan->outputs[0]].shape;
    if (s->options.loss == SL_LOSS_SOFTMAX) {
        shape.integer = true;
        shape.vocabulary = shape.features;
    }
    return add_array(s, &s->target, "loss", shape);
}

static sl_status add_arrays(sli_subject *s, const sl_plan *plan) {
    s->input_count = plan->input_count;
    s->output_count = plan->output_count;
    s->param_count = plan->param_count;
    s->inputs = sli_arena_alloc(&s->arena, sizeof *s->inputs * (size_t)(s->input_count + 1));
    s->outputs = sli_arena_alloc(&s->arena, sizeof *s->outputs * (size_t)(s->output_count + 1));
    s->params = sli_arena_alloc(&s->arena, sizeof *s->params * (size_t)(s->param_count + 1));
    if (!s->inputs || !s->outputs || !s->params) return sli_fail_memory("a proof", sizeof *s);
    for (int k = 0; k < s->input_count; k++) {
        const sli_tensor *tensor = &plan->tensors[plan->inputs[k]];
        SLI_TRY(add_array(s, &s->inputs[k], tensor->name, tensor->shape));
    }
    for (int k = 0; k < s->output_count; k++)
        SLI_TRY(add_array(s, &s->outputs[k], plan->output_names[k], plan->tensors[plan->outputs[k]].shape));
    for (int k = 0; k < s->param_count; k++) SLI_TRY(add_param(s, &s->params[k], &plan->params[k].param));
    SLI_TRY(add_target(s, plan));
    return add_masks(s);
}

/* -------------------------------------------------------------------------------------------------------- drawing -- */

sl_dtype sli_proof_operands(sl_dtype dtype) {
    return dtype == SL_BF16 || dtype == SL_F16 || dtype == SL_TF32 || dtype == SL_I8 ? dtype : SL_DTYPE_DEFAULT;
}

/* As sli_rng_uniform, of a word that is there. */
static double uniform_of(uint32_t word) {
    return ((double)word + 0.5) * (1.0 / 4294967296.0);
}

/* Uniform in (-1, 1). */
static double draw(const sli_subject *s, int stream, size_t element) {
    sli_rng rng = {s->seed, 0, 0, (uint32_t)stream};
    return 2 * sli_rng_uniform(&rng, element) - 1;
}

static int draw_below(const sli_subject *s, int stream, size_t element, int limit) {
    int value = (int)((draw(s, stream, element) + 1) * 0.5 * limit);
    return value < limit ? value : limit - 1;
}

typedef struct filling {
    const sli_subject *subject;
    sli_subject_array *array;
    int stream;
    double scale;
} filling;

enum { FILL_PIECE = 1 << 18, FILL_ALONE = 1 << 21 }; /* numbers: of a task; below which one thread fills */

static void fill_piece(void *context, int piece) {
    const filling *f = context;
    const sli_subject *s = f->subject;
    size_t first = (size_t)piece * FILL_PIECE, rest = f->array->count - first;
    size_t end = first + (rest < FILL_PIECE ? rest : FILL_PIECE);
    for (size_t k = first; k < end; k += 4) { /* one block of the generator gives four */
        sli_rng_words block = sli_philox(s->seed, (uint32_t)(k >> 2), 0, (uint32_t)f->stream, 0);
        for (size_t i = 0; i < 4 && k + i < end; i++)
            f->array->values[k + i] = sli_round_to(s->operands, f->scale * (2 * uniform_of(block.word[i]) - 1));
    }
}

/* values = uniform in (-scale, scale), exact in the type of the operands. Each comes from its index, so that threads change
 * nothing; large layers have 10^8 of them. */
static void fill(const sli_subject *s, sli_subject_array *array, int stream, double scale) {
    filling f = {s, array, stream, scale};
    sli_threads *threads = NULL;
    if (array->integer) {
        for (size_t k = 0; k < array->count; k++) array->values[k] = draw_below(s, stream, k, array->vocabulary);
        return;
    }
    if (array->count > FILL_ALONE && sli_threads_new(NULL, sli_threads_default(), &threads) != SL_OK) sli_clear_error();
    sli_threads_for(threads, (int)((array->count + FILL_PIECE - 1) / FILL_PIECE), fill_piece, &f);
    sli_threads_free(threads);
}

/* Valid steps of row b: the first row is full, the second empty, every other one from the third on ends one step into a chunk of a GPU's
 * time, where a launch may begin, as long as there are chunks; the others are random; a lone row is random. */
static int draw_length(const sli_subject *s, int row) {
    int batch = s->options.batch, steps = s->options.steps;
    const sli_caps gpu = {.kind = SLI_DEVICE_CUDA};
    const int64_t into = (int64_t)(row / 2) * sli_caps_chunk(&gpu, batch, steps) + 1;
    if (row == 0 && batch > 1) return steps;
    if (row == 1) return 0;
    if (row > 1 && row % 2 == 0 && into < steps) return (int)into;
    return batch == 1 ? 1 + draw_below(s, STREAM_MASK, 0, steps) : draw_below(s, STREAM_MASK, (size_t)row, steps + 1);
}

static void draw_masks(sli_subject *s, sli_mask kind) {
    int batch = s->options.batch, steps = s->options.steps;
    for (int b = 0; s->lengths && b < batch; b++) s->lengths[b] = draw_length(s, b);
    for (int b = 0; s->mask && b < batch; b++) {
        int length = draw_length(s, b);
        for (int t = 0; t < steps; t++) {
            size_t at = (size_t)t * (size_t)batch + (size_t)b;
            bool hole = draw_below(s, STREAM_MASK, (size_t)batch + at, 3) == 0;
            s->mask[at] = kind == SLI_MASK_LEFT    ? t >= steps - length
                          : kind == SLI_MASK_RIGHT ? t < length
                                                   : (length == steps && batch > 1) || (length > 0 && !hole);
        }
    }
}

static void draw_target(sli_subject *s) {
    fill(s, &s->target, STREAM_TARGET, 1);
    for (size_t k = 0; k < s->target.count; k++) {
        double *value = &s->target.values[k];
        if (s->target.integer && draw_below(s, STREAM_TARGET + 1, k, 8) == 0) *value = -1; /* ignored */
        if (s->options.loss == SL_LOSS_BINARY) *value = (double)(float)(0.5 * *value + 0.5);
    }
}

void sli_subject_draw(sli_subject *s, sli_mask mask, uint64_t seed) {
    s->seed = seed;
    s->expected = NULL;
    for (int k = 0; k < s->input_count; k++) fill(s, &s->inputs[k], STREAM_INPUT + k, s->inputs[k].time ? 1.5 : 1);
    for (int k = 0; k < s->output_count; k++) fill(s, &s->outputs[k], STREAM_OUTPUT + k, 1);
    for (int k = 0; k < s->param_count; k++) {
        /* Matrices such that a row of products neither vanishes nor saturates; vectors as biases. */
        bool vector = s->params[k].vocabulary == 1;
        fill(s, &s->params[k], STREAM_PARAM + k, vector ? 0.5 : 1.5 / sqrt((double)s->params[k].width));
    }
    draw_target(s);
    draw_masks(s, mask);
}

/* --------------------------------------------------------------------------------------------------- make and free -- */

sl_status sli_subject_new(const sl_model *model, const sl_plan_options *options, sli_mask mask, uint64_t seed,
                          sli_subject **subject) {
    *subject = NULL;
    sl_plan *plan = NULL;
    sl_plan_options wide = *options;
    wide.dtype = SL_F64;
    wide.narrow_parameters = wide.narrow_tensors = 0;
    wide.device = "cpu";
    wide.require = NULL;
    wide.memory_limit = 0;
    SLI_TRY(sl_plan_new(model, &wide, &plan));
    sl_allocator allocator = sli_allocator_or_default(options->allocator);
    sli_subject *s = sli_alloc_zero(&allocator, sizeof *s);
    if (!s) {
        sl_plan_free(plan);
        return sli_fail_memory("a proof", sizeof *s);
    }
    sli_arena_init(&s->arena, &allocator);
    s->model = model;
    s->options = *options;
    s->operands = sli_proof_operands(options->dtype);
    s->options.batch = plan->options.batch;
    s->options.steps = plan->options.steps;
    sl_status status = add_arrays(s, plan);
    sl_plan_free(plan);
    if (status != SL_OK) {
        sli_subject_free(s);
        return status;
    }
    sli_subject_draw(s, mask, seed);
    *subject = s;
    return SL_OK;
}

void sli_subject_free(sli_subject *subject) {
    if (!subject) return;
    sl_allocator allocator = subject->arena.allocator;
    sli_arena_free(&subject->arena);
    sli_free(&allocator, subject, sizeof *subject);
}
