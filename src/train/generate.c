/* Sampling. One plan of one row and one step; the state stays in the run from token to token. */
#include "train/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "train/token_model.h"

struct sl_generator {
    sl_allocator allocator;
    sl_sampling sampling;
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    int vocabulary, classes;
    bool fed;       /* the run's output predicts the next token */
    uint32_t drawn; /* tokens so far: key of the next draw */
    double *wide;   /* [classes], f64 plans only */
    float *logits;  /* [classes] */
    sli_candidate *candidates;
};

/* ----------------------------------------------------------------------------------------------------- drawing -- */
static int by_weight(const void *a, const void *b) {
    const sli_candidate *x = a, *y = b;
    if (x->weight != y->weight) return x->weight < y->weight ? 1 : -1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static int likeliest(const float *logits, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* The smallest number of candidates, likeliest first, that hold `top_p` of the whole weight. */
static int nucleus(const sli_candidate *sorted, int count, double top_p) {
    double total = 0, held = 0;
    for (int i = 0; i < count; i++) total += sorted[i].weight;
    for (int i = 0; i < count; i++) {
        held += sorted[i].weight;
        if (held >= top_p * total) return i + 1;
    }
    return count;
}

int sli_sample(const float *logits, int count, const sl_sampling *sampling, double uniform, sli_candidate *room) {
    int best = likeliest(logits, count), kept = count;
    for (int i = 0; i < count; i++)
        if (isnan(logits[i])) return -1;
    if (!isfinite(logits[best])) return -1;
    if (sampling->temperature == 0) return best;
    for (int i = 0; i < count; i++)
        room[i] = (sli_candidate){exp(((double)logits[i] - (double)logits[best]) / sampling->temperature), i};
    bool top_k = sampling->top_k > 0 && sampling->top_k<count, top_p = sampling->top_p> 0 && sampling->top_p < 1;
    if (top_k || top_p) qsort(room, (size_t)count, sizeof *room, by_weight);
    if (top_k) kept = sampling->top_k;
    if (top_p) kept = nucleus(room, kept, sampling->top_p);

    double total = 0, target, passed = 0;
    for (int i = 0; i < kept; i++) total += room[i].weight;
    target = uniform * total;
    for (int i = 0; i < kept; i++) {
        passed += room[i].weight;
        if (target < passed) return room[i].token;
    }
    return room[kept - 1].token; /* rounding only */
}

/* ---------------------------------------------------------------------------------------------------- generator -- */
static sl_status check_sampling(const sl_sampling *s) {
    SLI_FAIL_IF(!(s->temperature >= 0) || !isfinite(s->temperature), SL_ERR_INPUT,
                "the temperature is %g: it must be 0 (always the likeliest) or more", s->temperature);
    SLI_FAIL_IF(s->top_k < 0, SL_ERR_INPUT, "top-k is %d: it must be 0 (off) or more", s->top_k);
    SLI_FAIL_IF(!(s->top_p >= 0 && s->top_p <= 1), SL_ERR_INPUT, "top-p is %g: it must be in [0, 1]", s->top_p);
    return SL_OK;
}

/* Of a copy of the file's model, whose memory is the file's allocator's and is not needed afterwards. */
static sl_status make_plan(sl_generator *g, const sl_file *file, const sl_plan_options *options) {
    sl_model *stored = NULL, *model = NULL;
    sli_ends ends = {0};
    SLI_TRY(sl_file_model(file, &stored));
    sl_status status = sli_model_copy(stored, SLI_STATES_CARRIED, &model);
    sl_model_free(stored);
    if (status == SL_OK) status = sli_model_token_ends(model, &ends);
    g->vocabulary = ends.input.vocabulary;
    g->classes = ends.output.features;
    if (status == SL_OK) status = sl_plan_new(model, options, &g->plan);
    sl_model_free(model);
    return status;
}

static sl_status make(sl_generator *g, const sl_file *file, const sl_plan_options *options) {
    sl_plan_options o = {0};
    if (options) {
        o.dtype = options->dtype;
        o.device = options->device;
        o.require = options->require;
        o.memory_limit = options->memory_limit;
        o.threads = options->threads;
        o.thread_pool = options->thread_pool;
        o.no_graph = options->no_graph;
        o.allocator = options->allocator;
    }
    o.batch = o.steps = 1;
    SLI_TRY(make_plan(g, file, &o));
    SLI_TRY(sl_params_new(g->plan, &g->params));
    SLI_TRY(sl_file_load_params(file, g->params));
    SLI_TRY(sl_run_new(g->plan, g->params, &g->run));
    size_t n = (size_t)g->classes;
    g->logits = sli_alloc(&g->allocator, n * sizeof *g->logits);
    g->candidates = sli_alloc(&g->allocator, n * sizeof *g->candidates);
    if (o.dtype == SL_F64) g->wide = sli_alloc(&g->allocator, n * sizeof *g->wide);
    if (!g->logits || !g->candidates || (o.dtype == SL_F64 && !g->wide))
        return sli_fail_memory("a generator", n * (sizeof *g->logits + sizeof *g->candidates));
    return SL_OK;
}

sl_status sli_generator_new(const sl_file *file, const sl_plan_options *options, const sl_sampling *sampling,
                            sl_generator **generator) {
    sl_sampling chosen = {.temperature = 1};
    if (sampling) chosen = *sampling;
    SLI_TRY(check_sampling(&chosen));
    sl_allocator own = sli_allocator_or_default(options ? options->allocator : NULL);
    sl_generator *g = sli_alloc_zero(&own, sizeof *g);
    if (!g) return sli_fail_memory("a generator", sizeof *g);
    g->allocator = own;
    g->sampling = chosen;
    sl_status status = make(g, file, options);
    if (status != SL_OK) {
        sli_generator_free(g);
        return status;
    }
    *generator = g;
    return SL_OK;
}

void sli_generator_free(sl_generator *generator) {
    sl_generator *g = generator;
    if (!g) return;
    sl_allocator a = g->allocator;
    size_t n = (size_t)g->classes;
    if (g->wide) sli_free(&a, g->wide, n * sizeof *g->wide);
    if (g->candidates) sli_free(&a, g->candidates, n * sizeof *g->candidates);
    if (g->logits) sli_free(&a, g->logits, n * sizeof *g->logits);
    sl_run_free(g->run);
    sl_params_free(g->params);
    sl_plan_free(g->plan);
    sli_free(&a, g, sizeof *g);
}

sl_status sli_generator_feed(sl_generator *generator, int32_t token) {
    SLI_TRY(sli_check_tokens(&token, 1, generator->vocabulary));
    const void *inputs[1] = {&token};
    sl_batch batch = {.batch = 1, .steps = 1, .inputs = inputs};
    SLI_TRY(sl_run_forward(generator->run, &batch));
    generator->fed = true;
    return SL_OK;
}

static sl_status read_logits(sl_generator *g) {
    if (!g->wide) return sl_run_output(g->run, NULL, g->logits, (size_t)g->classes);
    SLI_TRY(sl_run_output(g->run, NULL, g->wide, (size_t)g->classes));
    for (int i = 0; i < g->classes; i++) g->logits[i] = (float)g->wide[i];
    return SL_OK;
}

sl_status sli_generator_next(sl_generator *generator, int32_t *token) {
    sl_generator *g = generator;
    sli_rng rng = {g->sampling.seed, g->drawn, 0, SLI_PURPOSE_SAMPLE};
    double uniform = sli_rng_uniform(&rng, 0);
    int drawn = (int)(uniform * g->vocabulary);
    if (g->fed) {
        SLI_TRY(read_logits(g));
        /* Classes beyond the vocabulary could not be fed again. */
        drawn = sli_sample(g->logits, g->vocabulary, &g->sampling, uniform, g->candidates);
    }
    SLI_FAIL_IF(
        drawn < 0, SL_ERR_NUMBERS,
        "the model's output is not finite after %u tokens: its parameters are damaged; train it again with a lower "
        "learning rate",
        g->drawn);
    SLI_TRY(sli_generator_feed(g, drawn));
    g->drawn++;
    *token = drawn;
    return SL_OK;
}
