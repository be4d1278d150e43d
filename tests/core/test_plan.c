/* Plans: choice of kernels and reasons, exact memory, limits and segments, invented devices. */
#include "core/plan.h"
#include "test.h"

static sl_model *language_model(int vocabulary, int units, int layers) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", vocabulary));
    sl_embedding embedding = {.vocabulary = vocabulary, .units = units};
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    for (int k = 0; k < layers; k++) {
        char name[16];
        snprintf(name, sizeof name, "lstm%d", k + 1);
        sl_recurrent options = {.units = units, .return_sequences = 1, .stateful = 1};
        REQUIRE_OK(sl_model_add_recurrent(model, name, SL_LSTM, &options, NULL));
    }
    sl_dense dense = {.units = vocabulary};
    REQUIRE_OK(sl_model_add_dense(model, "logits", &dense, NULL));
    return model;
}

static sl_plan_options training(int batch, int steps) {
    return (sl_plan_options){
        .batch = batch, .steps = steps, .train = 1, .device = test_device, .loss = SL_LOSS_SOFTMAX, .threads = 1};
}

TEST(plan_explains_kernels_and_refusals) {
    if (test_on_gpu()) test_skip("GPUs have no kernels in f64");
    sl_model *model = language_model(50, 16, 1);
    sl_plan_options options = training(4, 8);
    options.dtype = SL_F64;
    sl_plan *plan;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    const char *text = sl_plan_explain(plan);
    CHECK(strstr(text, "lstm:b4_t8_i16_h16_f64_train") != NULL);
    CHECK(strstr(text, "refused cpu:fused") != NULL);
    CHECK(strstr(text, "f64") != NULL);
    CHECK(strcmp(sl_plan_kernels(plan), "ref") == 0);
    CHECK(sl_plan_flops(plan) > 0);
    CHECK(strstr(sl_plan_explain_json(plan), "\"kernel\": \"ref\"") != NULL);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* As Keras's variables have them; the two biases of a GRU there are one, [2][n]. */
TEST(plan_counts_fans_as_keras) {
    static const struct {
        const char *name;
        sli_fans fans;
    } as[] = {{"embedding.embeddings", SLI_FANS_TABLE},
              {"gru.kernel", SLI_FANS_MATRIX},
              {"gru.bias", SLI_FANS_TWO_BIASES},
              {"gru.recurrent_bias", SLI_FANS_TWO_BIASES},
              {"lstm1.recurrent_kernel", SLI_FANS_MATRIX},
              {"lstm1.bias", SLI_FANS_BIAS},
              {"before.bias", SLI_FANS_BIAS},
              {"logits.kernel", SLI_FANS_MATRIX},
              {"logits.bias", SLI_FANS_BIAS}};
    sl_model *model = language_model(50, 16, 1);
    const char *const inputs[] = {"embedding", NULL};
    sl_recurrent after = {.units = 16}, before = {.units = 16, .reset_before = 1};
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &after, inputs));
    REQUIRE_OK(sl_model_add_recurrent(model, "before", SL_GRU, &before, inputs));
    const char *const outputs[] = {"logits", "gru", "before", NULL};
    REQUIRE_OK(sl_model_set_outputs(model, outputs));
    sl_plan_options options = {.batch = 1, .steps = 2, .device = "cpu"};
    sl_plan *plan;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    size_t found = 0;
    for (int p = 0; p < plan->param_count; p++)
        for (size_t k = 0; k < sizeof as / sizeof *as; k++)
            if (strcmp(plan->params[p].param.name, as[k].name) == 0 && ++found)
                CHECK(plan->params[p].param.fans == as[k].fans);
    CHECK(found == sizeof as / sizeof *as);
    sl_plan_free(plan);
    sl_model_free(model);
}

TEST(plan_require_is_an_error_with_reasons) {
    if (test_on_gpu()) test_skip("asks for kernels of the CPU");
    sl_model *model = language_model(50, 16, 1);
    sl_plan_options options = training(4, 8);
    sl_plan *plan;
    options.require = "fused";
    options.dtype = SL_F64;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_NO_KERNEL, "--require fused");
    CHECK(plan == NULL);
    options.dtype = SL_F32;
    options.require = "ref";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(strcmp(sl_plan_kernels(plan), "ref") == 0);
    sl_plan_free(plan);
    options.require = "cpu:";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(strncmp(sl_plan_kernels(plan), "cpu:", 4) == 0);
    sl_plan_free(plan);
    sl_model_free(model);
}

TEST(plan_require_matches_names_prefixes_and_fused) {
    CHECK(sli_kernel_matches("cpu:fused", "cpu:fused") && !sli_kernel_matches("cpu:fu", "cpu:fused"));
    CHECK(sli_kernel_matches("cuda:", "cuda:grid") && !sli_kernel_matches("cuda:", "cpu:fused"));
    CHECK(sli_kernel_matches("fused", "cpu:fused") && sli_kernel_matches("fused", "cuda:cluster"));
    CHECK(!sli_kernel_matches("fused", "ref") && !sli_kernel_matches("fused", "cuda:step"));
    CHECK(!sli_kernel_matches("fused", "cudnn:standard"));
}

TEST(plan_devices_can_be_invented) {
    sl_model *model = language_model(50, 16, 1);
    sl_plan_options options = training(4, 8);
    sl_plan *plan;
    sl_params *params;
    options.device = "cuda:sm_90";
    options.dtype = SL_BF16;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(plan->caps.invented && plan->caps.graphs && !plan->device);
    CHECK(plan->memory_limit > 0 && plan->memory_limit < plan->caps.memory); /* what a real one would leave */
    CHECK(strstr(sl_plan_explain(plan), "device: sm_90, 132 SMs, ") != NULL);
    CHECK(strstr(sl_plan_explain(plan), "products bf16, sums f32, state f32") != NULL);
    CHECK(strstr(sl_plan_explain_json(plan), "\"compute_capability\": 90") != NULL);
    CHECK_FAILS(sl_params_new(plan, &params), SL_ERR_DEVICE, "invented");
    sl_plan_free(plan);
    setenv("SLUICE_NVRTC", "0", 1); /* what would run without NVRTC */
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    unsetenv("SLUICE_NVRTC");
    CHECK(plan->caps.no_compiler);
    sl_plan_free(plan);
    options.no_graph = 1;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(!plan->caps.graphs && strstr(sl_plan_explain(plan), "no graph") != NULL);
    sl_plan_free(plan);
    options.dtype = SL_F64;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_NO_KERNEL, "f64");
    options.dtype = SL_F32;
    options.device = "gpu";
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_UNKNOWN, "sluice devices");
    options.device = "cpu:avx512";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    if (plan->caps.invented) CHECK_FAILS(sl_params_new(plan, &params), SL_ERR_DEVICE, "invented");
    sl_plan_free(plan);
    sl_model_free(model);
}

/* Every pair of pieces that live at the same time lies apart, whatever the number of segments. */
static void check_no_overlap(const sl_plan *plan) {
    size_t end = plan->memory.run_block - plan->overlapped;
    for (int a = 0; a < plan->buffer_count; a++) {
        const sli_buffer *p = &plan->buffers[a];
        CHECK(p->bytes == 0 || p->offset + p->bytes <= end);
        for (int b = 0; b < a; b++) {
            const sli_buffer *q = &plan->buffers[b];
            bool apart = p->bytes == 0 || q->bytes == 0 || p->offset + p->bytes <= q->offset ||
                         q->offset + q->bytes <= p->offset;
            bool meet = false;
            for (int i = 0; i < 2; i++)
                for (int k = 0; k < 2; k++)
                    meet |= p->from[i] >= 0 && q->from[k] >= 0 && p->from[i] <= q->to[k] && q->from[k] <= p->to[i];
            CHECK(apart || !meet);
        }
    }
}

/* The bytes that a plan of the model needs at best, from the sentence that refuses a limit of one byte. */
static size_t least_bytes(const sl_model *model, sl_plan_options options) {
    sl_plan *plan;
    size_t bytes = 0;
    options.memory_limit = 1;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, " bytes) even at best");
    const char *at = strchr(sl_error_detail(), '(');
    REQUIRE(at && sscanf(at, "(%zu bytes)", &bytes) == 1);
    return bytes;
}

TEST(plan_memory_shares_only_what_is_dead) {
    sl_model *model = language_model(40, 12, 3);
    for (int train = 0; train < 2; train++) {
        sl_plan_options options = training(16, 600); /* three chunks of a GPU */
        options.train = train;
        if (test_on_gpu()) options.require = "cuda:step"; /* cuDNN's rows are left out where time is cut */
        sl_plan *plan;
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        check_no_overlap(plan);
        sl_memory full;
        sl_plan_memory(plan, &full);
        CHECK(full.segments == 1);
        CHECK(full.run_block <
              full.gradients + full.activations + full.saved + full.scratch + full.state + full.inputs + 1024);
        sl_plan_free(plan);
        if (!train) continue;
        /* What the refusal names is enough, to the byte. */
        size_t least = least_bytes(model, options);
        options.memory_limit = least - 1;
        CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, " bytes) even at best");
        /* On a GPU the scratch of the products is most of it, and segments do not cut that. */
        options.memory_limit = full.params_block + full.run_block / 2;
        if (test_on_gpu() && options.memory_limit < least) options.memory_limit = least;
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        sl_memory less;
        sl_plan_memory(plan, &less);
        CHECK(less.segments > 1 && less.params_block + less.run_block <= options.memory_limit);
        check_no_overlap(plan);
        sl_plan_free(plan);
        options.memory_limit = full.params_block + 1000;
        CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, "cheapest ways out");
    }
    sl_model_free(model);
}

/* Nothing overflows, as sanitizers see. */
TEST(plan_of_the_most_steps_is_one_piece) {
    sl_model *model;
    sl_plan_options options = {0};
    sl_plan *plan;
    sl_memory memory;
    REQUIRE_OK(sl_model_from_problem(NULL, "rnn:b1_t1073741824_i1_h1_train", &model, &options));
    options.device = "cpu:avx2";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    CHECK(memory.segments == 1 && memory.run_block > (size_t)1 << 32);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* What a refusal calls a way out is one: the bytes, the rounded limit, the batch. Of `limit` bytes. */
static void check_remedies(const char *problem, size_t limit, int least_batch) {
    sl_model *model;
    sl_plan_options options = {0};
    sl_plan *plan;
    size_t bytes = 0;
    double size = 0;
    char unit = 0;
    int batch = 0;
    REQUIRE_OK(sl_model_from_problem(NULL, problem, &model, &options));
    options.device = "cpu:avx2";
    options.threads = 2;
    options.memory_limit = limit;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, "cheapest ways out");
    const char *at = strchr(sl_error_detail(), '('), *rounded = strstr(sl_error_detail(), "a limit of "),
               *rows = strstr(sl_error_detail(), "a batch of about ");
    REQUIRE(at && sscanf(at, "(%zu bytes)", &bytes) == 1);
    REQUIRE(rounded && sscanf(rounded, "a limit of %lf %c", &size, &unit) == 2);
    CHECK((rows != NULL) == (least_batch > 0));
    if (rows) REQUIRE(sscanf(rows, "a batch of about %d", &batch) == 1 && batch >= least_batch);
    const size_t limits[] = {bytes, (size_t)(size * (unit == 'k' ? 1024 : 1048576))};
    for (int k = 0; k < 2; k++) {
        options.memory_limit = limits[k];
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        sl_plan_free(plan);
    }
    options.memory_limit = bytes - 1;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, "cheapest ways out");
    if (rows) {
        options.memory_limit = limit;
        options.batch = batch;
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        sl_plan_free(plan);
    }
    sl_model_free(model);
}

TEST(plan_remedies_of_a_refusal_are_true) {
    check_remedies("lstm:b20_t35_i650_h650_train", 1, 0);      /* 80.606 MB: not 80.6 */
    check_remedies("gru:b8_t700_i40_h650_bi", 1, 0);           /* one by one directions need more */
    check_remedies("lstm:b256_t100_i1_h64_train", 2805499, 4); /* scratch does not grow with the batch */
    check_remedies("rnn:l2_b256_t10_i300_h650_bi_train", 123256400, 100);
}

/* LSTMs below a softmax on a GPU that need not be there. */
static sl_plan *plan_on_gpu(int units, int layers, sl_plan_options options) {
    sl_model *model = language_model(1000, units, layers);
    sl_plan *plan;
    options.device = "cuda:sm_90";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_model_free(model);
    return plan;
}

static sl_plan *plan_late(const char *require, size_t limit) {
    sl_plan_options options = training(20, 35);
    options.dtype = SL_BF16;
    options.require = require;
    options.memory_limit = limit;
    return plan_on_gpu(650, 2, options);
}

/* Of recurrences that are cut into pieces. */
static sl_plan *plan_pieces(int layers) {
    sl_plan_options options = training(64, 300);
    options.dtype = SL_TF32;
    options.require = "cuda:";
    return plan_on_gpu(256, layers, options);
}

static const sli_step *recurrent_step(const sl_plan *plan, int number) {
    for (int i = 0; i < plan->step_count; i++)
        if (sli_op_is_recurrent(plan->steps[i].problem.op) && number-- == 0) return &plan->steps[i];
    return NULL;
}

/* While a recurrence runs, what is above it adds up its gradients: to be settled where the next ones begin, or at the end. */
TEST(plan_late_sums_keep_their_memory) {
    sl_plan *plan = plan_late("cuda:", 0);
    const sli_step *below = recurrent_step(plan, 0), *above = recurrent_step(plan, 1), *dense = above + 1;
    REQUIRE(below && above && dense->problem.op == SLI_OP_DENSE);
    CHECK(dense->late && above->late && !below->late);
    CHECK(strstr(sl_plan_explain(plan), "sums over time run beside the recurrence below") != NULL);
    check_no_overlap(plan);
    const sli_buffer *b = plan->buffers;
    const int of_below = b[below->scratch_backward].from[0], of_above = b[above->scratch_backward].from[0];
    CHECK(of_above < of_below && b[dense->scratch_backward].from[0] < of_above);
    CHECK(b[dense->scratch_backward].to[0] == of_above && b[below->scratch_backward].to[0] == of_below);
    CHECK(b[above->scratch_backward].to[0] > of_below && b[above->saved].to[0] > of_below);
    CHECK(b[plan->tensors[above->emit.in[SLI_RNN_X]].buffer].to[0] > of_below);
    CHECK(b[plan->tensors[dense->emit.in[SLI_DENSE_X]].buffer].to[0] >= of_above);
    const size_t needs = plan->memory.params_block + plan->memory.run_block;
    sl_plan_free(plan);
    /* Where a limit does not leave the memory that it takes, nothing is late. */
    plan = plan_late("cuda:", needs - 1);
    for (int i = 0; i < plan->step_count; i++) CHECK(!plan->steps[i].late);
    CHECK(plan->segments == 1 && plan->memory.params_block + plan->memory.run_block < needs);
    sl_plan_free(plan);
    /* Step by step the GPU is idle nowhere for long. */
    plan = plan_late("cuda:step", 0);
    for (int i = 0; i < plan->step_count; i++) CHECK(!plan->steps[i].late);
    sl_plan_free(plan);
}

/* Three LSTMs below a softmax, whose recurrences are cut into pieces with products of their own beside them: those of a layer above take their place,
 * the softmax's do not. */
TEST(plan_late_sums_beside_pieces) {
    sl_plan *plan = plan_pieces(3);
    const sli_step *low = recurrent_step(plan, 0), *middle = recurrent_step(plan, 1), *top = recurrent_step(plan, 2);
    REQUIRE(low && middle && top && strcmp(top->kernel->name, "cuda:cluster") == 0);
    CHECK(top->kernel->fills(&top->problem, &plan->caps) && top->kernel->idle(&top->problem, &plan->caps) > 0.1);
    CHECK(top[1].problem.op == SLI_OP_DENSE && !top[1].late);
    CHECK(top->late && middle->late && !low->late);
    check_no_overlap(plan);
    sl_plan_free(plan);
}

/* Of two such layers the upper one runs in pieces in any case and would leave only its last one's sums: both keep their own. */
TEST(plan_two_layers_keep_their_pieces) {
    sl_plan *plan = plan_pieces(2);
    const sli_step *low = recurrent_step(plan, 0);
    REQUIRE(low && strcmp(low->kernel->name, "cuda:cluster") == 0);
    CHECK(low->kernel->fills(&low->problem, &plan->caps) && low->kernel->idle(&low->problem, &plan->caps) > 0.1);
    for (int i = 0; i < plan->step_count; i++) CHECK(!plan->steps[i].late);
    sl_plan_free(plan);
}

/* An embedding that the logits are tied to adds to the gradient that they would still be adding to. */
TEST(plan_tied_sums_are_not_late) {
    for (int tied = 0; tied < 2; tied++) {
        sl_model *model;
        sl_plan *plan;
        REQUIRE_OK(sl_model_new(NULL, &model));
        REQUIRE_OK(sl_model_add_tokens(model, "tokens", 1000));
        sl_embedding embedding = {.vocabulary = 1000, .units = 650};
        REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
        sl_recurrent lstm = {.units = 650, .return_sequences = 1};
        REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
        sl_dense logits = {.units = 1000, .tied_to = tied ? "embedding" : NULL};
        REQUIRE_OK(sl_model_add_dense(model, "logits", &logits, NULL));
        sl_plan_options options = training(20, 35);
        options.device = "cuda:sm_90";
        options.dtype = SL_BF16;
        options.require = "cuda:";
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        const sli_step *dense = recurrent_step(plan, 0) + 1;
        CHECK(dense->problem.op == SLI_OP_DENSE && dense->late == !tied);
        CHECK((plan->sparse < 0) == tied); /* the logits' gradient is in every row */
        sl_plan_free(plan);
        sl_model_free(model);
    }
}

/* Every slice of the gradients is looked at once: early, behind late sums, or at the end. */
static void check_slices(const sl_plan *plan) {
    const int64_t slices = sli_plan_slices(plan);
    int *seen = calloc((size_t)slices, sizeof *seen);
    REQUIRE(seen);
    for (int i = 0; i < plan->step_count; i++)
        for (int64_t s = plan->steps[i].early.first; s < plan->steps[i].early.end; s++) seen[s]++;
    for (int i = 0; i < plan->rest_count; i++)
        for (int64_t s = plan->rest[i].first; s < plan->rest[i].end; s++) seen[s]++;
    for (int64_t s = 0; s < slices; s++)
        if (seen[s] != 1) test_fail(__FILE__, __LINE__, "slice %d is summed %d times", (int)s, seen[s]);
    free(seen);
}

TEST(plan_updates_leave_out_what_is_known) {
    sl_plan *plan = plan_late("cuda:", 0);
    const sli_step *below = recurrent_step(plan, 0), *above = recurrent_step(plan, 1), *dense = above + 1;
    const int64_t each = plan->norm->norm_slice;
    check_slices(plan);
    CHECK(below->early.first == below->early.end);
    CHECK(above->early.end > above->early.first && dense->early.end > dense->early.first);
    CHECK(dense->early.end == sli_plan_slices(plan)); /* the last one, which is short */
    REQUIRE(plan->sparse >= 0);
    const sli_param_place *table = &plan->params[plan->sparse];
    CHECK(strcmp(table->param.name, "embedding.embeddings") == 0 && !table->fresh);
    CHECK(plan->sparse_slices.first * each >= (int64_t)table->offset);
    CHECK(plan->sparse_slices.end * each <= (int64_t)table->offset + (int64_t)1000 * 650);
    CHECK(plan->sparse_slices.end - plan->sparse_slices.first >= 1000 * 650 / each - 1);
    for (int i = 0; i < plan->step_count; i++) CHECK(!plan->steps[i].copied); /* rows of 650 are no whole fours */
    sl_plan_free(plan);
    /* Step by step nothing is late, and nothing early. */
    plan = plan_late("cuda:step", 0);
    check_slices(plan);
    CHECK(plan->rest_count == 1 && plan->sparse >= 0);
    sl_plan_free(plan);
}

TEST(plan_updates_write_copies_of_operands) {
    for (int dtype = SL_F32; dtype <= SL_F16; dtype++) {
        sl_model *model = language_model(1000, 64, 2);
        sl_plan_options options = training(20, 35);
        options.device = "cuda:sm_90";
        options.dtype = (sl_dtype)dtype;
        options.require = "cuda:cluster";
        sl_plan *plan;
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        for (int i = 0; i < plan->step_count; i++) {
            const sli_op op = plan->steps[i].problem.op;
            const bool narrow = dtype == SL_BF16 || dtype == SL_F16;
            CHECK(plan->steps[i].copied == (narrow && (op == SLI_OP_LSTM || op == SLI_OP_DENSE)));
        }
        sl_plan_free(plan);
        sl_model_free(model);
    }
    /* A CPU's rows have neither slices nor marks; recurrent rows pack what the optimizer updates, but for biases. */
    sl_model *model = language_model(1000, 64, 2);
    sl_plan_options options = training(20, 35);
    options.device = "cpu";
    sl_plan *plan;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(plan->sparse == -1 && plan->rest_count == 0);
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        const bool recurrent = step->problem.op == SLI_OP_LSTM;
        CHECK(step->copied == recurrent && step->early.end == 0);
        for (int k = 0; k < SLI_MAX_PARAM; k++)
            if (step->emit.param[k] >= 0)
                CHECK(plan->params[step->emit.param[k]].packer ==
                      (recurrent && k % SLI_PART_PARAMS != SLI_RNN_BIAS ? i : -1));
    }
    /* A parameter that another step has as well is packed by none. */
    int first = 0;
    while (!plan->steps[first].copied) first++;
    REQUIRE(first + 1 < plan->step_count && plan->steps[plan->step_count - 1].emit.param[1] < 0);
    plan->steps[plan->step_count - 1].emit.param[1] = plan->steps[first].emit.param[SLI_RNN_RECURRENT];
    sli_plan_copies(plan);
    CHECK(!plan->steps[first].copied);
    for (int p = 0; p < plan->param_count; p++) CHECK(plan->params[p].packer != first);
    sl_plan_free(plan);
    sl_model_free(model);
}

typedef struct counter {
    size_t live, largest;
    long calls;
} counter;
static void *count_alloc(void *context, size_t bytes, size_t align) {
    counter *c = context;
    void *pointer = aligned_alloc(align, (bytes + align - 1) / align * align);
    c->live += bytes;
    c->calls++;
    if (bytes > c->largest) c->largest = bytes;
    return pointer;
}
static void count_free(void *context, void *pointer, size_t bytes) {
    if (pointer) ((counter *)context)->live -= bytes;
    free(pointer);
}

TEST(plan_blocks_are_exact_and_runs_do_not_allocate) {
    if (strcmp(test_device, "cpu") != 0)
        test_skip("the %s device does not take its blocks from the allocator", test_device);
    counter count = {0};
    sl_allocator allocator = {count_alloc, count_free, &count};
    sl_model *model = language_model(40, 32, 2);
    sl_plan_options options = training(8, 40);
    options.allocator = &allocator;
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    sl_memory memory;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    count.largest = 0;
    size_t before = count.live;
    REQUIRE_OK(sl_params_new(plan, &params));
    CHECK(count.largest == memory.params_block && count.live - before < memory.params_block + 4096);
    count.largest = 0;
    before = count.live;
    REQUIRE_OK(sl_run_new(plan, params, &run));
    CHECK(count.largest == memory.run_block && count.live - before < memory.run_block + 4096);
    REQUIRE_OK(sl_params_init(params, 1));
    long calls = count.calls;
    static int32_t tokens[8 * 40];
    const void *inputs[] = {tokens};
    sl_batch batch = {.batch = 8, .steps = 40, .inputs = inputs, .targets = tokens};
    sl_result result;
    for (int k = 0; k < 3; k++) {
        REQUIRE_OK(sl_run_gradients(run, &batch, NULL, (uint32_t)k, 0, 1, &result));
        REQUIRE_OK(sl_run_update(run, 0.1, &result));
        REQUIRE_OK(sl_run_evaluate(run, &batch, &result));
    }
    CHECK(count.calls == calls);
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    CHECK(count.live == 0);
    sl_model_free(model);
}

/* On a GPU what is free is the limit; planned for another device here, as if it had 1000 bytes. */
TEST(plan_limit_of_a_gpu_names_what_is_free) {
    sl_model *model = language_model(40, 12, 1);
    sl_plan_options options = training(16, 200);
    sl_plan *plan;
    const sli_ways_out none = {0};
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    plan->memory_limit = 1000;
    CHECK(sli_plan_fit_memory(plan) == SL_ERR_MEMORY_LIMIT);
    CHECK_FAILS(sli_plan_fail_over_limit(plan, &none), SL_ERR_MEMORY_LIMIT,
                "; the GPU has 1.0 kB free; the cheapest ways out: ");
    CHECK(strstr(sl_error_detail(), "a GPU with more free memory") && !strstr(sl_error_detail(), "limit"));
    plan->options.memory_limit = 1000;
    CHECK_FAILS(sli_plan_fail_over_limit(plan, &none), SL_ERR_MEMORY_LIMIT, "the memory limit is 1.0 kB");
    sl_plan_free(plan);
    sl_model_free(model);
}

/* A stack as one problem needs more than its layers one by one, which have the same bits: with two threads stacks are shared out, with one they are not. */
TEST(plan_takes_stacks_apart_where_nothing_else_fits) {
    sl_model *model;
    sl_plan_options options = {0};
    REQUIRE_OK(sl_model_from_problem(NULL, "gru:l8_b7_t511_i29_h19_train", &model, &options));
    options.device = "cpu:avx2";
    options.memory_limit = 6 << 20;
    for (options.threads = 1; options.threads <= 2; options.threads++) {
        sl_plan *plan;
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        CHECK(sli_plan_need(plan) <= options.memory_limit);
        CHECK((strstr(sl_plan_explain(plan), "its layers and directions one by one do") != NULL) ==
              (options.threads == 2));
        sl_plan_free(plan);
    }
    sl_model_free(model);
    /* On a GPU the step engine needs least. */
    sl_plan *plan;
    options = (sl_plan_options){0};
    REQUIRE_OK(sl_model_from_problem(NULL, "lstm:b128_t50_i256_h512_bf16_bi_train", &model, &options));
    options.device = "cuda:sm_90";
    options.memory_limit = (size_t)252 << 20;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    CHECK(sli_plan_need(plan) <= options.memory_limit);
    CHECK(strstr(sl_plan_explain(plan), "no plan with it fits the memory limit; step by step one does") != NULL);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* "a batch of about N" is one that a plan takes, with whatever kernels. */
TEST(plan_ways_out_of_a_limit_are_planned) {
    static const struct {
        const char *problem, *device;
        size_t limit;
    } cases[] = {{"rnn:b512_t53_i256_h59_f16_train", "cuda:sm_80", 5686174},
                 {"rnn:l9_b31_t29_i26_h136_i8", "cpu:base", 3461266},
                 {"lstm:b128_t50_i256_h512_bf16_bi_train", "cuda:sm_90", (size_t)120 << 20},
                 {"lstm:b64_t60_i100_h100_train", "cpu", 9 << 20}};
    static const char way[] = "a batch of about ";
    int told = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sl_model *model;
        sl_plan *plan;
        sl_plan_options options = {0};
        REQUIRE_OK(sl_model_from_problem(NULL, cases[i].problem, &model, &options));
        options.device = cases[i].device;
        options.memory_limit = cases[i].limit;
        const sl_status status = sl_plan_new(model, &options, &plan);
        const char *batch = status == SL_ERR_MEMORY_LIMIT ? strstr(sl_error_detail(), way) : NULL;
        sl_plan_free(plan);
        if (batch) {
            options.batch = atoi(batch + strlen(way));
            REQUIRE_OK(sl_plan_new(model, &options, &plan));
            CHECK(sli_plan_need(plan) <= options.memory_limit);
            sl_plan_free(plan);
            told++;
        }
        sl_model_free(model);
    }
    CHECK(told > 0);
}
