/* The gradient of a loss that the step below makes in its own backward (sli_call.loss): which plans do so, that what it reads is kept until then, and
 * on a GPU that parameters' gradients are those of a loss that makes it itself. */
#include "run_rig.h"

enum { UNITS = 6, LABELS = 203, STEPS = 1370, MOST = LABELS * UNITS };

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
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        const int dense = step_of(plan, SLI_OP_DENSE);
        if (plan->loss_taker != (cases[i].below ? dense : -1))
            test_fail(__FILE__, __LINE__, "case %d: taken by %d, the layer below is %d", (int)i, plan->loss_taker,
                      dense);
        if (cases[i].below) {
            const sli_step *loss = &plan->steps[plan->loss_step], *taker = &plan->steps[dense];
            REQUIRE(loss->saved >= 0 && taker->scratch_backward >= 0 && plan->buffers[loss->saved].bytes > 0);
            CHECK(apart(plan, loss->saved, taker->scratch_backward) && apart(plan, loss->saved, taker->saved));
        }
        sl_plan_free(plan);
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

TEST(loss_gradient_made_below_is_the_loss_s_own) {
    static const sl_dense logits = {.units = LABELS};
    static const sl_dtype dtypes[] = {SL_BF16, SL_F16, SL_F32};
    static batch_data d;
    sl_model *model = model_of(&logits);
    for (int i = 0; i < 3; i++) {
        if (dtypes[i] == SL_F16 && !test_on_gpu()) continue;
        rig below = make_rig_on(model, options_of(dtypes[i], SL_LOSS_SOFTMAX), test_device),
            own = make_rig_on(model, options_of(dtypes[i], SL_LOSS_SOFTMAX), test_device);
        own.plan->loss_taker = -1;
        for (int k = 0; k < 3; k++) { /* recorded, replayed, smaller */
            sl_result a, b;
            fill_batch(&d, k, k == 2 ? B - 1 : B, k == 2 ? STEPS - 3 : STEPS);
            for (int n = 0; n < LONG * B; n++) d.labels[n] = (n * 7 + k) % LABELS;
            REQUIRE_OK(sl_run_gradients(below.run, &d.batch, NULL, 0, 0, 1, &a));
            REQUIRE_OK(sl_run_gradients(own.run, &d.batch, NULL, 0, 0, 1, &b));
            CHECK(a.loss_sum == b.loss_sum && a.loss_sum > 0);
            compare(&below, &own, dtypes[i] == SL_BF16 ? "bf16" : dtypes[i] == SL_F16 ? "f16" : "f32");
        }
        free_rig(&below);
        free_rig(&own);
    }
    sl_model_free(model);
}
