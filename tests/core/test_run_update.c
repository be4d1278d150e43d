/* Updates that leave out what they know of gradients, and write copies of parameters: of a model whose table is large and whose tokens
 * are few, norms and parameters are those of gradients as a caller reads them. */
#include "run_rig.h"

enum { WORDS = 3000, UNITS = 64, STEPS = 20, LARGEST = WORDS * UNITS };

typedef struct tokens {
    int32_t words[STEPS * B], labels[STEPS * B];
    const void *inputs[1];
    sl_batch batch;
} tokens;

/* Other words in every batch, some of them again. */
static void fill(tokens *t, int k) {
    for (int i = 0; i < STEPS * B; i++) t->words[i] = (i * 37 % 11 * 251 + k * 97) % WORDS;
    for (int i = 0; i < STEPS * B; i++) t->labels[i] = (i * 53 + k) % WORDS;
    t->inputs[0] = t->words;
    t->batch = (sl_batch){.batch = B, .steps = STEPS, .inputs = t->inputs, .targets = t->labels};
}

static sl_model *model_of(int words, int units) {
    sl_model *model;
    const sl_embedding embedding = {.vocabulary = words, .units = units};
    const sl_recurrent lstm = {.units = units, .return_sequences = 1};
    const sl_dense logits = {.units = words};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", words));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "below", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "above", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &logits, NULL));
    return model;
}

static sl_plan_options options_of(sl_dtype dtype, sl_optimizer optimizer, sl_clip clip) {
    return (sl_plan_options){.batch = B,
                             .steps = STEPS,
                             .train = 1,
                             .loss = SL_LOSS_SOFTMAX,
                             .dtype = dtype,
                             .optimizer = optimizer,
                             .clip = clip};
}

static const char *param_of(const rig *r, int index, size_t *count) {
    int rows, columns;
    const char *name = sl_params_name(r->params, index, &rows, &columns);
    *count = (size_t)rows * (size_t)columns;
    REQUIRE(*count <= LARGEST);
    return name;
}

static void same_params(const rig *a, const rig *b, int k) {
    static double x[LARGEST], y[LARGEST];
    for (int i = 0; i < sl_params_count(a->params); i++) {
        size_t count;
        const char *name = param_of(a, i, &count);
        REQUIRE_OK(sl_params_get(a->params, name, x, count));
        REQUIRE_OK(sl_params_get(b->params, name, y, count));
        if (memcmp(x, y, count * sizeof *x) != 0) test_fail(__FILE__, __LINE__, "%s differs after step %d", name, k);
    }
}

/* Gradients that lie in the run, all of them: their norm, and the largest of them. */
static double norm_of(const rig *r, double *largest) {
    static double g[LARGEST];
    double squares = 0;
    *largest = 0;
    for (int i = 0; i < sl_params_count(r->params); i++) {
        size_t count;
        const char *name = param_of(r, i, &count);
        REQUIRE_OK(sl_run_gradient(r->run, name, g, count));
        for (size_t k = 0; k < count; k++) {
            squares += g[k] * g[k];
            *largest = fmax(*largest, fabs(g[k]));
        }
    }
    return sqrt(squares);
}

/* The same parameters, handed over anew, so that all copies of them are made anew: the loss must not change in a bit. */
static void check_copies(const rig *r, const sl_batch *batch) {
    static double x[LARGEST];
    sl_result before, after;
    REQUIRE_OK(sl_run_evaluate(r->run, batch, &before));
    for (int i = 0; i < sl_params_count(r->params); i++) {
        size_t count;
        const char *name = param_of(r, i, &count);
        REQUIRE_OK(sl_params_get(r->params, name, x, count));
        REQUIRE_OK(sl_params_set(r->params, name, x, count));
    }
    REQUIRE_OK(sl_run_evaluate(r->run, batch, &after));
    CHECK(before.loss_sum == after.loss_sum && before.loss_sum > 0);
}

/* Whole steps beside gradients and update, whose gradients are looked at in between. */
static void compare(const sl_model *model, sl_plan_options options) {
    rig whole = make_rig_on(model, options, test_device), parts = make_rig_on(model, options, test_device);
    tokens t;
    for (int k = 0; k < 5; k++) {
        sl_result a, b, updated;
        fill(&t, k);
        REQUIRE_OK(sl_run_step(whole.run, &t.batch, (uint32_t)k, 0.1));
        REQUIRE_OK(sl_run_step_result(whole.run, &a));
        REQUIRE_OK(sl_run_gradients(parts.run, &t.batch, NULL, (uint32_t)k, 0, 1, &b));
        double largest;
        const double norm = norm_of(&parts, &largest);
        CHECK(options.clip.kind == SL_CLIP_NONE ||
              (options.clip.kind == SL_CLIP_VALUE ? largest : norm) > options.clip.value);
        REQUIRE_OK(sl_run_update(parts.run, 0.1, &updated));
        CHECK(a.loss_sum == b.loss_sum && a.gradient_norm == updated.gradient_norm);
        CHECK_NEAR(a.gradient_norm / norm, 1.0, 1e-6);
        same_params(&whole, &parts, k);
    }
    check_copies(&whole, &t.batch);
    same_params(&whole, &parts, 5);
    free_rig(&whole);
    free_rig(&parts);
}

TEST(update_is_of_all_gradients_that_there_are) {
    static const sl_optimizer optimizers[] = {
        {.kind = SL_SGD}, {.kind = SL_SGD, .momentum = 0.9}, {.kind = SL_SGD, .weight_decay = 0.01}, {.kind = SL_ADAM}};
    static const sl_clip clips[] = {
        {SL_CLIP_GLOBAL_NORM, 0.05}, {SL_CLIP_NORM, 0.02}, {SL_CLIP_VALUE, 1e-4}, {SL_CLIP_NONE, 0}};
    sl_model *model = model_of(WORDS, UNITS);
    for (int i = 0; i < 4; i += TEST_ONE_IN(2)) {
        compare(model, options_of(SL_F32, optimizers[i], clips[i]));
        compare(model, options_of(SL_BF16, optimizers[i], clips[3 - i]));
        if (test_on_gpu()) compare(model, options_of(SL_F16, optimizers[i], clips[i]));
    }
    sl_model_free(model);
}

/* Each slice of the gradients is summed once, by a late step or at the end. */
static void check_slices(const sl_plan *plan) {
    static int times[1 << 16];
    const int64_t slices = sli_plan_slices(plan);
    REQUIRE(slices > 0 && slices <= (int64_t)(sizeof times / sizeof *times));
    memset(times, 0, sizeof times);
    for (int i = 0; i < plan->rest_count; i++)
        for (int64_t s = plan->rest[i].first; s < plan->rest[i].end; s++) times[s]++;
    for (int i = 0; i < plan->step_count; i++)
        for (int64_t s = plan->steps[i].early.first; s < plan->steps[i].early.end; s++) times[s]++;
    for (int64_t s = 0; s < slices; s++)
        if (times[s] != 1) test_fail(__FILE__, __LINE__, "slice %d is summed %d times", (int)s, times[s]);
}

/* What a plan for a GPU leaves out: the squares of a table's rows that no token named, squares that late steps sum, copies that the
 * optimizer writes (in 16 bits, where products read copies of the parameters' shape). */
TEST(update_of_a_gpu_leaves_out_what_it_knows) {
    const struct {
        int units;
        sl_dtype dtype;
        int early, copied; /* steps */
    } cases[] = {{650, SL_F32, 2, 0}, {650, SL_BF16, 2, 0}, {1500, SL_F32, 0, 0}, {1500, SL_BF16, 2, 3}};
    for (int c = 0; c < 4; c++) {
        sl_model *model = model_of(10000, cases[c].units);
        sl_plan_options options =
            options_of(cases[c].dtype, (sl_optimizer){.kind = SL_SGD}, (sl_clip){SL_CLIP_GLOBAL_NORM, 5});
        sl_plan *plan;
        int early = 0, copied = 0;
        options.device = "cuda:sm_90";
        options.batch = 20;
        options.steps = 35;
        REQUIRE_OK(sli_plan_new(model, &options, NULL, &plan));
        for (int i = 0; i < plan->step_count; i++) {
            const sli_step *step = &plan->steps[i];
            early += step->early.end > step->early.first;
            copied += step->copied;
            CHECK(step->late || step->early.end == step->early.first);
        }
        CHECK(plan->sparse == 0 && plan->sparse_slices.end > plan->sparse_slices.first); /* the embedding */
        if (early != cases[c].early || copied != cases[c].copied)
            test_fail(__FILE__, __LINE__, "%d units: %d early, %d copied", cases[c].units, early, copied);
        check_slices(plan);
        sl_plan_free(plan);
        sl_model_free(model);
    }
}
