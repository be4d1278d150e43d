/* Parameters and tensors of 16 bits (sl_plan_options.narrow_parameters, narrow_tensors): their numbers, what they mean to a plan, and, on a GPU, what they compute. */
#include "core/plan.h"
#include "core/rng.h"
#include "core/rounding.h"
#include "test.h"

enum { B = 6, T = 9, I = 8, H = 16, GATES = 4 };

static sl_model *model_of(int units, int layers) {
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", I, 0));
    for (int l = 0; l < layers; l++) {
        const sl_recurrent options = {.units = units, .return_sequences = 1};
        REQUIRE_OK(sl_model_add_recurrent(model, l ? "two" : "one", SL_LSTM, &options, NULL));
    }
    return model;
}

static sl_plan_options options_of(sl_dtype dtype) {
    return (sl_plan_options){
        .batch = B, .steps = T, .dtype = dtype, .train = 1, .device = "cuda:sm_90", .narrow_parameters = 1};
}

/* Every pattern of bits is a number that has these bits; others become the nearest, as sli_round_to has it. */
TEST(narrow_numbers_are_their_bits) {
    for (int f16 = 0; f16 < 2; f16++) {
        const sl_dtype dtype = f16 ? SL_F16 : SL_BF16;
        const unsigned infinity = f16 ? 0x7c00 : 0x7f80;
        for (unsigned bits = 0; bits < 65536; bits++) {
            const double value = sli_from_bits16(dtype, (uint16_t)bits);
            const unsigned size = bits & 0x7fff, again = sli_to_bits16(dtype, value);
            if (size > infinity ? !isnan(value) || (again & 0x7fff) <= infinity : again != bits)
                test_fail(__FILE__, __LINE__, "%s %#x is %g, which is %#x", sli_dtype_name(dtype), bits, value, again);
        }
        sli_rng rng = {3, 0, 0, 0};
        for (uint64_t k = 0; k < 20000; k++) {
            const double value =
                (sli_rng_uniform(&rng, 2 * k) - 0.5) * exp2(60 * sli_rng_uniform(&rng, 2 * k + 1) - 30);
            CHECK(sli_from_bits16(dtype, sli_to_bits16(dtype, value)) == sli_round_to(dtype, value));
        }
    }
}

TEST(narrow_parameters_are_half_as_large) {
    sl_model *model = model_of(H, 2);
    sl_plan_options options = options_of(SL_BF16);
    sl_memory narrow, wide;
    sl_plan *plan;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &narrow);
    CHECK(strstr(sl_plan_explain(plan), "+narrow") != NULL && strstr(sl_plan_explain(plan), "(update)") == NULL);
    CHECK(plan->weight == 2 && plan->element == 4 && plan->slots == 0 && !plan->optimizer);
    for (int k = 0; k < plan->param_count; k++) CHECK(plan->params[k].offset * plan->weight % SLI_ALIGN == 0);
    sl_plan_free(plan);
    options.narrow_parameters = 0;
    options.optimizer.kind = SL_SGD;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &wide);
    CHECK(strstr(sl_plan_explain(plan), "narrow") == NULL);
    CHECK(2 * narrow.parameters == wide.parameters); /* all sizes are whole alignments of both */
    sl_plan_free(plan);
    sl_model_free(model);
}

/* Wherever what was asked for is not computed there is a sentence. */
TEST(narrow_parameters_are_refused_where_they_are_wide) {
    sl_model *model = model_of(H, 1);
    sl_plan_options options = options_of(SL_TF32);
    sl_plan *plan;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_INPUT, "plan with bf16 or f16");
    options = options_of(SL_F16);
    options.loss = SL_LOSS_MSE;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_USAGE, "plan without a loss");
    options = options_of(SL_BF16);
    options.require = "cudnn:";
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_NO_KERNEL, "its parameters and their gradients are f32");
    options = options_of(SL_BF16);
    options.device = "cpu";
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_NO_KERNEL, "its parameters and their gradients are f32");
    sl_model_free(model);
}

/* x in front of what is saved of it: else d kernel and d recurrent are two products, of other bits. */
static void check_inputs_in_front(const sl_plan *plan) {
    for (int k = 0; k < plan->step_count; k++) {
        const sli_step *step = &plan->steps[k];
        const sli_buffer *x = &plan->buffers[plan->tensors[step->emit.in[0]].buffer];
        CHECK(x->offset + x->bytes <= plan->buffers[step->saved].offset || plan->buffers[step->saved].bytes == 0);
    }
}

/* Inputs and outputs in time are half as large; what has no time is as it was. */
TEST(narrow_tensors_are_those_with_time) {
    sl_model *model = model_of(H, 2);
    sl_plan_options options = options_of(SL_F16);
    sl_memory narrow, wide;
    sl_plan *plan;
    options.narrow_parameters = 0;
    options.narrow_tensors = 1;
    options.input_gradients = 1;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &narrow);
    CHECK(strstr(sl_plan_explain(plan), "+narrow_io") != NULL);
    CHECK(plan->weight == 4 && plan->element == 4);
    for (int k = 0; k < plan->tensor_count; k++) {
        const sli_tensor *tensor = &plan->tensors[k];
        CHECK(sli_plan_tensor_element_bytes(plan, tensor) == (tensor->shape.time ? 2 : 4));
        CHECK(sli_plan_host_element_bytes(plan, tensor) == 4);
    }
    check_inputs_in_front(plan);
    sl_plan_free(plan);
    options.narrow_tensors = 0;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &wide);
    CHECK(narrow.inputs == sli_round_up(2 * T * B * I, SLI_ALIGN) &&
          wide.inputs == sli_round_up(4 * T * B * I, SLI_ALIGN));
    CHECK(narrow.gradients < wide.gradients && narrow.activations < wide.activations);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* In segments of time a tensor is not always there, but where it was nothing is saved. */
TEST(narrow_tensors_lie_in_front_under_every_limit) {
    static const int units[] = {512, 512, 1024, 1024};
    sl_model *model;
    sl_plan_options options = {
        .batch = 16, .steps = 2000, .dtype = SL_BF16, .train = 1, .device = "cuda:sm_90", .narrow_tensors = 1};
    sl_plan *plan;
    int most = 0;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 512, 0));
    for (int l = 0; l < 4; l++) {
        const sl_recurrent layer = {
            .units = units[l], .return_sequences = 1, .bidirectional = l == 1 ? SL_BI_CONCAT : 0};
        char name[8];
        snprintf(name, sizeof name, "l%d", l);
        REQUIRE_OK(sl_model_add_recurrent(model, name, SL_LSTM, &layer, NULL));
    }
    while (sl_plan_new(model, &options, &plan) == SL_OK) {
        check_inputs_in_front(plan);
        if (plan->segments > most) most = plan->segments;
        options.memory_limit = (options.memory_limit > 0 ? options.memory_limit : sli_plan_need(plan)) / 20 * 17;
        sl_plan_free(plan);
    }
    CHECK(most > 2);
    sl_model_free(model);
}

TEST(narrow_tensors_are_refused_where_they_are_wide) {
    sl_model *model = model_of(H, 1);
    const sl_dense dense = {.units = 3};
    sl_plan_options options = options_of(SL_F32);
    sl_plan *plan;
    options.narrow_parameters = 0;
    options.narrow_tensors = 1;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_INPUT, "narrow_tensors: ");
    options.dtype = SL_BF16;
    options.loss = SL_LOSS_MSE;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_USAGE, "without narrow_tensors");
    options.loss = SL_LOSS_NONE;
    options.device = "cpu";
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_NO_KERNEL, "its inputs and outputs are f32");
    options.device = "cuda:sm_90";
    REQUIRE_OK(sl_model_add_dense(model, "dense", &dense, NULL));
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_NO_KERNEL, "its inputs and outputs are f32");
    sl_model_free(model);
}

/* Nothing merges directions of 16 bits that come apart, so they stay together where that is predicted to be slower, or a limit is tight. */
TEST(narrow_tensors_keep_both_directions_together) {
    sl_model *model;
    const sl_recurrent both = {.units = 1536, .return_sequences = 1, .bidirectional = SL_BI_CONCAT};
    sl_plan_options options = {
        .batch = 32, .steps = 100, .dtype = SL_BF16, .device = "cuda:sm_90", .narrow_tensors = 1};
    sl_memory memory;
    sl_plan *plan;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", 1536, 0));
    REQUIRE_OK(sl_model_add_recurrent(model, "both", SL_LSTM, &both, NULL));
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    CHECK(plan->step_count == 1 && plan->steps[0].problem.bidirectional);
    sl_plan_free(plan);
    options.memory_limit = memory.params_block + memory.run_block - 1;
    const sl_status status = sl_plan_new(model, &options, &plan);
    CHECK(status == SL_ERR_MEMORY_LIMIT || (status == SL_OK && plan->step_count == 1));
    if (status == SL_OK) sl_plan_free(plan);
    sl_model_free(model);
}

/* Segments of time would each round what they add to the gradients: a limit that asks for some is not kept so. */
TEST(narrow_parameters_are_not_trained_in_segments) {
    sl_model *model = model_of(64, 1);
    sl_plan_options options = options_of(SL_BF16);
    sl_memory memory;
    sl_plan *plan;
    options.batch = 64;
    options.steps = 3000;
    options.require = "cuda:step";
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    sl_plan_free(plan);
    options.memory_limit = (memory.params_block + memory.run_block) / 2;
    CHECK_FAILS(sl_plan_new(model, &options, &plan), SL_ERR_MEMORY_LIMIT, "");
    options.narrow_parameters = 0;
    options.optimizer.kind = SL_SGD;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    CHECK(memory.segments > 1);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* A file has floats, and gives back what was there. No CPU computes with such parameters: here they are but kept, in a plan that is told so. */
TEST(narrow_parameters_are_floats_in_files) {
    enum { COUNT = GATES * H * I };
    static double kernel[COUNT], again[COUNT];
    char path[512];
    sl_model *model = model_of(H, 1);
    sl_plan_options options = {.batch = B, .steps = T, .device = "cpu"};
    sl_plan *plan;
    sl_params *params;
    sl_file *file;
    uint64_t seed = 6;
    for (int k = 0; k < COUNT; k++) kernel[k] = test_random(&seed);
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    plan->weight = sizeof(uint16_t);
    plan->options.dtype = SL_BF16;
    REQUIRE_OK(sl_params_new(plan, &params));
    REQUIRE_OK(sl_params_init(params, 3));
    REQUIRE_OK(sl_params_set(params, "one.kernel", kernel, COUNT));
    snprintf(path, sizeof path, "%s/narrow.sluice", test_folder());
    REQUIRE_OK(sl_file_save(path, model, params, NULL));
    REQUIRE_OK(sl_params_init(params, 99));
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    REQUIRE_OK(sl_file_load_params(file, params));
    sl_file_close(file);
    REQUIRE_OK(sl_params_get(params, "one.kernel", again, COUNT));
    for (int k = 0; k < COUNT; k++) CHECK(again[k] == sli_round_to(SL_BF16, kernel[k]));
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* Gradients of one call with what sl_params_init drew and `kernel`, which is read again. */
static void gradients(const char *device, bool narrow, const double *kernel, double *gradient) {
    enum { COUNT = GATES * H * I };
    static float x[T * B * I], d_y[T * B * H];
    static double again[COUNT];
    const void *inputs[] = {x}, *d_outputs[] = {d_y};
    const sl_batch batch = {.batch = B, .steps = T, .inputs = inputs};
    sl_model *model = model_of(H, 1);
    sl_plan_options options = options_of(SL_BF16);
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    uint64_t seed = 5;
    for (int k = 0; k < T * B * I; k++) x[k] = (float)test_random(&seed);
    for (int k = 0; k < T * B * H; k++) d_y[k] = (float)test_random(&seed);
    options.device = device;
    options.narrow_parameters = narrow;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    REQUIRE_OK(sl_params_new(plan, &params));
    REQUIRE_OK(sl_params_init(params, 3));
    REQUIRE_OK(sl_params_set(params, "one.kernel", kernel, COUNT));
    REQUIRE_OK(sl_params_get(params, "one.kernel", again, COUNT));
    for (int k = 0; k < COUNT; k++) CHECK(again[k] == sli_round_to(narrow ? SL_BF16 : SL_F32, kernel[k]));
    REQUIRE_OK(sl_run_new(plan, params, &run));
    REQUIRE_OK(sl_run_gradients(run, &batch, d_outputs, 1, 0, 1, NULL));
    REQUIRE_OK(sl_run_gradient(run, "one.kernel", gradient, COUNT));
    if (narrow) CHECK_FAILS(sl_run_update(run, 0.1, NULL), SL_ERR_USAGE, "their owner's optimizer");
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* Products read the same operands either way, and the drawn biases are zeros and ones: gradients differ by one rounding, and by the order of their sums. */
TEST(narrow_parameters_have_rounded_gradients) {
    enum { COUNT = GATES * H * I };
    static double kernel[COUNT], narrow[COUNT], wide[COUNT];
    uint64_t seed = 8;
    if (!test_on_gpu()) test_skip("a GPU computes them");
    for (int k = 0; k < COUNT; k++) kernel[k] = test_random(&seed);
    gradients(test_device, true, kernel, narrow);
    gradients(test_device, false, kernel, wide);
    for (int k = 0; k < COUNT; k++) {
        CHECK(narrow[k] == sli_round_to(SL_BF16, narrow[k]));
        CHECK(fabs(narrow[k] - wide[k]) <= ldexp(fabs(wide[k]), -8) + 1e-5);
    }
}
