/* The gradient of a loss that the step below makes in its own backward (sli_call.loss): which plans do so, that what it reads is kept until then, and
 * on a GPU that parameters' gradients are those of a loss that makes it itself. */
#include "run_rig.h"

enum { UNITS = 6, LABELS = 204, STEPS = 1370, MOST = LABELS * UNITS };

static sl_model *model_of(const sl_dense *logits) {
    sl_model *model;
    const sl_embedding embedding = {.vocabulary = V, .units = UNITS};
    const sl_recurrent lstm = {.units = UNITS, .return_sequences = 1};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", V));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", logits, NULL));
    return model;
}

/* Two chunks of time on a GPU, of which the second has so few rows that its bias is summed at once. */
static sl_plan_options options_of(sl_dtype dtype, sl_loss loss) {
    return (sl_plan_options){
        .batch = B, .steps = STEPS, .train = 1, .masking = SL_MASK_LENGTHS, .loss = loss, .dtype = dtype};
}

static int step_of(const sl_plan *plan, sli_op op) {
    for (int i = 0; i < plan->step_count; i++)
        if (plan->steps[i].problem.op == op) return i;
    test_fail(__FILE__, __LINE__, "no such step");
    return 0;
}

static bool apart(const sl_plan *plan, int a, int b) {
    const sli_buffer *x = &plan->buffers[a], *y = &plan->buffers[b];
    return x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset;
}

/* Backward's scratch of the layer below has no part of what the loss saves. */
static void check_kept(const sl_plan *plan) {
    const sli_step *loss = &plan->steps[plan->loss_step], *taker = &plan->steps[plan->loss_taker];
    REQUIRE(loss->saved >= 0 && taker->scratch_backward >= 0);
    REQUIRE(plan->buffers[loss->saved].bytes > 0 && plan->buffers[taker->scratch_backward].bytes > 0);
    CHECK(apart(plan, loss->saved, taker->scratch_backward));
}

TEST(loss_gradient_is_made_below_in_16_bits) {
    static const sl_dense plain = {.units = LABELS}, bare = {.units = LABELS, .no_bias = 1},
                          curved = {.units = LABELS, .activation = SL_ACT_TANH};
    static const struct {
        const char *device;
        const sl_dense *dense;
        sl_dtype dtype;
        sl_loss loss;
        bool below;
    } cases[] = {{"cuda:sm_90", &plain, SL_BF16, SL_LOSS_SOFTMAX, true},
                 {"cuda:sm_90", &plain, SL_F16, SL_LOSS_SOFTMAX, true},
                 {"cuda:sm_80", &plain, SL_BF16, SL_LOSS_SOFTMAX, true},
                 {"cuda:sm_90", &plain, SL_TF32, SL_LOSS_SOFTMAX, false},
                 {"cuda:sm_90", &plain, SL_F32, SL_LOSS_SOFTMAX, false},
                 {"cuda:sm_90", &plain, SL_BF16, SL_LOSS_BINARY, false},
                 {"cuda:sm_90", &bare, SL_BF16, SL_LOSS_SOFTMAX, false},
                 {"cuda:sm_90", &curved, SL_BF16, SL_LOSS_SOFTMAX, false},
                 {"cpu", &plain, SL_BF16, SL_LOSS_SOFTMAX, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_model *model = model_of(cases[i].dense);
        sl_plan_options options = options_of(cases[i].dtype, cases[i].loss);
        sl_plan *plan;
        options.device = cases[i].device;
        options.batch = 40;
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        const int dense = step_of(plan, SLI_OP_DENSE);
        if (plan->loss_taker != (cases[i].below ? dense : -1))
            test_fail(__FILE__, __LINE__, "case %d: taken by %d, the layer below is %d", (int)i, plan->loss_taker,
                      dense);
        if (cases[i].below) check_kept(plan);
        const size_t need = sli_plan_need(plan);
        sl_plan_free(plan);
        /* in segments of time */
        options.memory_limit = need - need / 20;
        if (cases[i].below) {
            REQUIRE_OK(sl_plan_new(model, &options, &plan));
            CHECK(plan->segments > 1 && plan->loss_taker == dense);
            check_kept(plan);
            sl_plan_free(plan);
        }
        sl_model_free(model);
    }
}

static void compare(const rig *a, const rig *b, const char *what) {
    static double x[MOST], y[MOST];
    for (int i = 0; i < sl_params_count(a->params); i++) {
        int rows, columns;
        const char *name = sl_params_name(a->params, i, &rows, &columns);
        const size_t count = (size_t)rows * (size_t)columns;
        double largest = 0, difference = 0;
        REQUIRE(count <= MOST);
        REQUIRE_OK(sl_run_gradient(a->run, name, x, count));
        REQUIRE_OK(sl_run_gradient(b->run, name, y, count));
        for (size_t k = 0; k < count; k++) {
            largest = fmax(largest, fabs(x[k]));
            difference = fmax(difference, fabs(x[k] - y[k]));
        }
        /* One rounding of a logit's gradient may fall on the other side, where a product and a sum are one operation in one kernel alone. */
        if (largest == 0 || !(difference <= 1e-4 * largest))
            test_fail(__FILE__, __LINE__, "%s, %s: %g of %g", what, name, difference, largest);
    }
}

/* Labels in rows of whole fours and not, some of which do not count; by lengths or by a mask. */
static void compare_labels(int labels, sl_dtype dtype, sl_masking masking) {
    static batch_data d;
    static uint8_t mask[STEPS * B];
    const sl_dense logits = {.units = labels};
    sl_model *model = model_of(&logits);
    sl_plan_options options = options_of(dtype, SL_LOSS_SOFTMAX);
    options.masking = masking;
    rig below = make_rig_on(model, options, test_device), own = make_rig_on(model, options, test_device);
    CHECK(below.plan->loss_taker >= 0);
    own.plan->loss_taker = -1;
    for (int k = 0; k < 3; k++) { /* recorded, replayed, smaller */
        sl_result a, b;
        char what[64];
        fill_batch(&d, k, k == 2 ? B - 1 : B, k == 2 ? STEPS - 3 : STEPS);
        for (int n = 0; n < LONG * B; n++) d.labels[n] = n % 5 == k ? -1 : (n * 7 + k) % labels;
        for (int n = 0; n < STEPS * B; n++) mask[n] = n % 11 != k;
        if (masking == SL_MASK_STEPS) {
            d.batch.lengths = NULL;
            d.batch.mask = mask;
        }
        REQUIRE_OK(sl_run_gradients(below.run, &d.batch, NULL, 0, 0, 1, &a));
        REQUIRE_OK(sl_run_gradients(own.run, &d.batch, NULL, 0, 0, 1, &b));
        CHECK(a.loss_sum == b.loss_sum && a.loss_sum > 0);
        snprintf(what, sizeof what, "%d labels, dtype %d, call %d", labels, (int)dtype, k);
        compare(&below, &own, what);
    }
    free_rig(&below);
    free_rig(&own);
    sl_model_free(model);
}

TEST(loss_gradient_made_below_is_the_loss_s_own) {
    if (!test_on_gpu()) test_skip("rows of GPUs alone make it: run with --device cuda:0");
    compare_labels(LABELS, SL_BF16, SL_MASK_LENGTHS);
    compare_labels(LABELS - 1, SL_BF16, SL_MASK_STEPS);
    compare_labels(LABELS, SL_F16, SL_MASK_STEPS);
    compare_labels(LABELS - 1, SL_F16, SL_MASK_LENGTHS);
}
