#include "stream/stream_case.h"

#include "stream/convert.h"

static int draw(uint64_t *random, int count) {
    return (int)((test_random(random) + 1) / 2 * count);
}

static void draw_parameters(sl_params *params, double factor, uint64_t *random) {
    const char *name;
    for (int i = 0, rows, columns; (name = sl_params_name(params, i, &rows, &columns)) != NULL; i++) {
        const size_t count = (size_t)rows * (size_t)columns;
        const double scale = factor * (rows == 1 ? 0.4 : 1.2 / sqrt(columns));
        double *values = malloc(count * sizeof *values);
        for (size_t k = 0; k < count; k++) values[k] = scale * test_random(random);
        REQUIRE_OK(sl_params_set(params, name, values, count));
        free(values);
    }
}

/* The outputs of the sequence so far after each step: those of one call, or of a call for each length. */
void stream_case_run(stream_case *c) {
    sl_run *run;
    int steps = 0, batch;
    REQUIRE_OK(sl_run_new(c->plan, c->params, &run));
    const void *inputs[] = {c->vocabulary ? (const void *)c->tokens : c->x};
    for (int t = STREAM_STEPS; t >= 1; t -= steps ? STREAM_STEPS : 1) {
        REQUIRE_OK(sl_run_reset_state(run));
        REQUIRE_OK(sl_run_forward(run, &(sl_batch){.batch = 1, .steps = t, .inputs = inputs}));
        REQUIRE_OK(sl_run_output_shape(run, NULL, &steps, &batch, &c->outputs));
        if (!c->y) c->y = malloc(sizeof *c->y * STREAM_STEPS * (size_t)c->outputs);
        REQUIRE_OK(sl_run_output(run, NULL, steps ? c->y : c->y + (t - 1) * c->outputs,
                                 (size_t)c->outputs * (size_t)(steps ? steps : 1)));
    }
    sl_run_free(run);
}

static stream_case make_case(sl_model *model, sl_dtype dtype, double factor, uint64_t *random) {
    stream_case c = {.model = model};
    sl_plan_options options = {.batch = 1, .steps = STREAM_STEPS, .threads = 1, .dtype = dtype};
    options.device = dtype == SL_I8 ? "cpu" : test_device; /* weights of 8 bits are computed on CPUs */
    REQUIRE_OK(sl_plan_new(model, &options, &c.plan));
    REQUIRE_OK(sl_params_new(c.plan, &c.params));
    draw_parameters(c.params, factor, random);
    sl_model_input(model, 0, &c.vocabulary, &c.inputs, NULL);
    c.x = malloc(sizeof *c.x * STREAM_STEPS * (size_t)(c.inputs + 1));
    c.tokens = malloc(sizeof *c.tokens * STREAM_STEPS);
    for (int i = 0; i < STREAM_STEPS * c.inputs; i++) c.x[i] = (float)test_random(random);
    for (int t = 0; t < STREAM_STEPS; t++) c.tokens[t] = c.vocabulary ? draw(random, c.vocabulary) : 0;
    stream_case_run(&c);
    return c;
}

stream_case stream_case_new(sl_model *model, uint64_t *random) {
    return make_case(model, SL_F32, 1, random);
}
stream_case stream_case_in(sl_model *model, sl_dtype dtype, uint64_t *random) {
    return make_case(model, dtype, 1, random);
}
stream_case stream_case_scaled(sl_model *model, double factor, uint64_t *random) {
    return make_case(model, SL_F32, factor, random);
}

void stream_case_free(stream_case *c) {
    free(c->x);
    free(c->tokens);
    free(c->y);
    sl_params_free(c->params);
    sl_plan_free(c->plan);
    sl_model_free(c->model);
}

const char *stream_case_convert(const stream_case *c, sl_convert_form form) {
    static char path[512];
    snprintf(path, sizeof path, "%s/case.slm", test_folder());
    REQUIRE_OK(sl_model_convert(c->model, c->params, &(sl_convert){.form = form}, path));
    return path;
}

bool stream_case_have(const char *isa) {
#if defined(__x86_64__)
    if (strcmp(isa, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
#if defined(__aarch64__)
    if (strcmp(isa, "neon") == 0) return true;
#endif
    return strcmp(isa, "base") == 0;
}

sl_stream_model *stream_case_load(const stream_case *c) {
    sl_stream_model *model;
    sli_stream_layers layers;
    sli_arena arena;
    sli_text text;
    sli_arena_init(&arena, NULL);
    sli_text_init(&text, &arena.allocator);
    REQUIRE_OK(sli_stream_layers_of(c->model, c->params, &arena, &layers));
    sli_slm_write(&layers, &text);
    REQUIRE(!text.failed);
    REQUIRE_OK(sl_stream_model_new(text.data, text.length, &model));
    sli_text_free(&text);
    sli_arena_free(&arena);
    return model;
}

void stream_case_step(const stream_case *c, sl_stream *stream, int t, float *y) {
    if (c->vocabulary)
        REQUIRE_OK(sl_stream_step_token(stream, c->tokens[t], y));
    else
        REQUIRE_OK(sl_stream_step(stream, c->x + t * c->inputs, y));
}

float *stream_case_output(const stream_case *c) {
    return calloc((size_t)c->outputs, sizeof(float));
}

/* ---------------------------------------------------------------------------------------------------------- models -- */
static void add_recurrent(sl_model *model, int index, bool last, uint64_t *random) {
    static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 23, 24, 31, 33, 40, 48, 65, 72};
    /* Bounded: states that grow without bounds cannot be compared. */
    static const sl_activation gates[] = {SL_ACT_SIGMOID, SL_ACT_TANH, SL_ACT_HARD_SIGMOID, SL_ACT_HARD_SIGMOID_K2,
                                          SL_ACT_SOFTSIGN};
    char name[16];
    const sl_cell cell = (sl_cell)draw(random, 3);
    const bool lstm = cell == SL_LSTM, plain = draw(random, 3) == 0;
    sl_recurrent o = {.units = sizes[draw(random, 19)], .return_sequences = !last || draw(random, 4) > 0};
    if (!plain) {
        o.activation = draw(random, 2) ? SL_ACT_DEFAULT : (sl_activation)(1 + draw(random, 7));
        o.recurrent_activation = draw(random, 2) ? SL_ACT_DEFAULT : gates[draw(random, 5)];
        o.bias = (sl_bias)draw(random, 4);
        o.zoneout_h = draw(random, 3) ? 0 : 0.3;
        o.zoneout_c = lstm && !draw(random, 3) ? 0.2 : 0;
        o.peephole = lstm && draw(random, 2);
        o.cell_clip = lstm && draw(random, 2) ? 0.7 : 0;
        o.projection = lstm && draw(random, 2) ? sizes[draw(random, 19)] : 0;
        o.reset_before = cell == SL_GRU && draw(random, 2);
        if (lstm && draw(random, 2)) o.forget_bias_mode = SL_FORGET_AT_RUN, o.forget_bias = 0.8;
    }
    snprintf(name, sizeof name, "rnn%d", index);
    REQUIRE_OK(sl_model_add_recurrent(model, name, cell, &o, NULL));
}

sl_model *stream_random_model(uint64_t *random) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    const int form = draw(random, 4), layers = 1 + draw(random, 3), vocabulary = 2 + draw(random, 40);
    if (form < 2) {
        REQUIRE_OK(sl_model_add_input(model, "x", 1 + draw(random, 20), 0));
    } else {
        sl_embedding table = {.vocabulary = vocabulary, .units = 1 + draw(random, 20)};
        REQUIRE_OK(sl_model_add_tokens(model, "x", vocabulary));
        REQUIRE_OK(form == 2 ? sl_model_add_embedding(model, "table", &table, NULL)
                             : sl_model_add_one_hot(model, "one_hot", vocabulary, NULL));
    }
    for (int i = 0; i < layers; i++) {
        add_recurrent(model, i, i == layers - 1, random);
        char name[16];
        snprintf(name, sizeof name, "drop%d", i);
        if (draw(random, 2)) REQUIRE_OK(sl_model_add_dropout(model, name, 0.5, NULL));
    }
    for (int i = 0, dense = draw(random, 3); i < dense; i++) {
        char name[24];
        snprintf(name, sizeof name, "dense%d", i);
        sl_dense o = {
            .units = 1 + draw(random, 40), .activation = (sl_activation)draw(random, 8), .no_bias = draw(random, 2)};
        REQUIRE_OK(sl_model_add_dense(model, name, &o, NULL));
    }
    return model;
}
