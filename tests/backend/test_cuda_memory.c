/* A GPU's memory: a plan takes none, its params and run take exactly what it counted, and computing takes nothing more. */
#include "backend/cuda/plugin.h"
#include "core/plan.h"
#include "test.h"

enum { V = 40, B = 8, T = 24 };

static const sli_cuda_plugin *plugin_or_skip(void) {
    sli_why why = {""};
    if (!test_on_gpu()) test_skip("needs a GPU: run with --device cuda:0");
    const sli_cuda_plugin *plugin = sli_cuda_get(&why);
    if (!plugin) test_skip("%s", why.text);
    if (!plugin->allocated) test_skip("the plug-in does not count its memory");
    return plugin;
}

static size_t allocated(const sli_cuda_plugin *plugin) {
    const char *index = strchr(test_device, ':');
    return plugin->allocated(index ? atoi(index + 1) : 0);
}

/* tokens -> embedding -> dropout -> LSTM, both ways if `both` -> dense */
static sl_model *language_model(bool both) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", V));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &(sl_embedding){.vocabulary = V, .units = 24}, NULL));
    REQUIRE_OK(sl_model_add_dropout(model, "drop", 0.2, NULL));
    sl_recurrent lstm = {.units = 32, .return_sequences = 1, .bidirectional = both ? SL_BI_CONCAT : SL_UNIDIRECTIONAL};
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &(sl_dense){.units = V}, NULL));
    return model;
}

/* Every kind of call, of full size and smaller, twice: recorded, then replayed. */
static void compute(sl_run *run, bool train) {
    static int32_t tokens[B * T];
    const void *inputs[] = {tokens};
    sl_result result;
    uint64_t state = test_seed;
    for (int k = 0; k < B * T; k++) tokens[k] = (int32_t)((V - 1) * (0.5 * test_random(&state) + 0.5));
    for (uint32_t k = 0; k < 6; k++) {
        sl_batch batch = {.batch = k % 3 == 2 ? B / 2 : B, .steps = k % 3 == 2 ? T - 5 : T, .inputs = inputs};
        REQUIRE_OK(sl_run_forward(run, &batch));
        batch.targets = tokens;
        if (!train) continue;
        REQUIRE_OK(sl_run_evaluate(run, &batch, &result));
        REQUIRE_OK(sl_run_gradients(run, &batch, NULL, k, 0, 1, &result));
        REQUIRE_OK(sl_run_update(run, 0.01, &result));
        REQUIRE_OK(sl_run_step(run, &batch, k, 0.01));
        REQUIRE_OK(sl_run_step_result(run, &result));
    }
}

static void check_counted(const sli_cuda_plugin *plugin, const sl_model *model, sl_plan_options options) {
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    sl_memory memory;
    size_t before = allocated(plugin);
    options.batch = B;
    options.steps = T;
    options.device = test_device;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    CHECK(allocated(plugin) == before);
    REQUIRE_OK(sl_params_new(plan, &params));
    CHECK(allocated(plugin) - before == memory.params_block);
    REQUIRE_OK(sl_params_init(params, 1));
    REQUIRE_OK(sl_run_new(plan, params, &run));
    CHECK(allocated(plugin) - before == memory.params_block + memory.run_block);
    compute(run, options.train != 0);
    CHECK(allocated(plugin) - before == memory.params_block + memory.run_block);
    sl_run_free(run);
    CHECK(allocated(plugin) - before == memory.params_block);
    sl_params_free(params);
    CHECK(allocated(plugin) == before);
    sl_plan_free(plan);
}

TEST(cuda_memory_is_what_the_plan_counted) {
    static const sl_dtype dtypes[] = {SL_F32, SL_TF32, SL_BF16, SL_F16, SL_F32X3};
    const sli_cuda_plugin *plugin = plugin_or_skip();
    for (int both = 0; both < 2; both++) {
        sl_model *model = language_model(both);
        for (int k = 0; k < 10; k++) {
            sl_plan_options options = {.dtype = dtypes[k % 5], .no_graph = k / 5, .train = 1, .loss = SL_LOSS_SOFTMAX};
            options.optimizer.kind = SL_ADAM;
            options.clip = (sl_clip){SL_CLIP_GLOBAL_NORM, 1};
            check_counted(plugin, model, options);
        }
        check_counted(plugin, model, (sl_plan_options){.dtype = SL_F32});
        sl_model_free(model);
    }
}

/* Under a limit too, and where memory is refused nothing is kept. */
TEST(cuda_memory_of_a_failed_plan_is_given_back) {
    const sli_cuda_plugin *plugin = plugin_or_skip();
    sl_model *model = language_model(false);
    sl_plan_options options = {.batch = B, .steps = T, .train = 1, .loss = SL_LOSS_SOFTMAX, .device = test_device};
    sl_plan *plan;
    sl_params *params;
    size_t before = allocated(plugin);
    options.memory_limit = 1000;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, "cheapest ways out");
    CHECK(allocated(plugin) == before);
    options.memory_limit = 0;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    if (plugin->inject) {
        plugin->inject(2, 2, false); /* cudaErrorMemoryAllocation */
        sl_status status = sl_params_new(plan, &params);
        plugin->inject(0, 0, false);
        CHECK(status == SL_ERR_OUT_OF_MEMORY && params == NULL);
        CHECK(allocated(plugin) == before);
    }
    sl_plan_free(plan);
    sl_model_free(model);
}
