/* A call of fewer rows than the plan's computes what a plan of just so many rows computes. */
#include "test.h"

typedef struct computed {
    size_t outputs, gradients;
    float *y;
    double *d;
} computed;

static float *random_floats(size_t count, uint64_t seed) {
    float *values = malloc(count * sizeof *values);
    REQUIRE(values != NULL);
    for (size_t i = 0; i < count; i++) values[i] = (float)(0.3 * test_random(&seed));
    return values;
}

/* By hand: orthogonal matrices of thousands of units take seconds to make. */
static void draw_parameters(sl_params *params) {
    uint64_t state = test_seed + 2;
    for (int i = 0; i < sl_params_count(params); i++) {
        int rows, columns;
        const char *name = sl_params_name(params, i, &rows, &columns);
        const size_t count = (size_t)rows * (size_t)columns;
        double *values = malloc(count * sizeof *values);
        REQUIRE(values != NULL);
        for (size_t k = 0; k < count; k++) values[k] = test_random(&state) / sqrt(rows > 1 ? rows : columns);
        REQUIRE_OK(sl_params_set(params, name, values, count));
        free(values);
    }
}

/* Outputs of the first sequence and the gradients of every parameter, one behind the other, of the third call of its kind (on a GPU the first
 * is recorded, the next ones are replayed). */
static computed compute_call(const char *problem, const char *require, int planned_rows, int rows) {
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    sl_plan_options options = {0};
    computed c = {0};
    int features, has_steps, y_steps, y_rows, units;
    REQUIRE_OK(sl_model_from_problem(NULL, problem, &model, &options));
    options.batch = planned_rows;
    options.device = test_device;
    options.require = require;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    REQUIRE_OK(sl_params_new(plan, &params));
    draw_parameters(params);
    REQUIRE_OK(sl_run_new(plan, params, &run));
    REQUIRE(sl_model_input(model, 0, NULL, &features, &has_steps) && !sl_model_input(model, 1, NULL, NULL, NULL));

    float *x = random_floats((size_t)options.steps * (size_t)rows * (size_t)features, test_seed);
    const void *inputs[] = {x};
    const sl_batch batch = {.batch = rows, .steps = options.steps, .inputs = inputs};
    REQUIRE_OK(sl_run_forward(run, &batch));
    REQUIRE_OK(sl_run_output_shape(run, NULL, &y_steps, &y_rows, &units));
    REQUIRE(y_rows == rows);
    c.outputs = (size_t)(y_steps ? y_steps : 1) * (size_t)rows * (size_t)units;
    float *dy = random_floats(c.outputs, test_seed + 1);
    const void *d_outputs[16] = {dy}; /* of states none */
    for (int call = 0; call < 3; call++) {
        REQUIRE_OK(sl_run_zero_gradients(run));
        REQUIRE_OK(sl_run_gradients(run, &batch, d_outputs, 0, 0, 1, NULL));
    }
    c.y = malloc(c.outputs * sizeof *c.y);
    REQUIRE(c.y != NULL);
    REQUIRE_OK(sl_run_output(run, NULL, c.y, c.outputs));
    for (int i = 0; i < sl_params_count(params); i++) {
        int r, k;
        const char *name = sl_params_name(params, i, &r, &k);
        const size_t count = (size_t)r * (size_t)k;
        c.d = realloc(c.d, (c.gradients + count) * sizeof *c.d);
        REQUIRE(c.d != NULL);
        REQUIRE_OK(sl_run_gradient(run, name, c.d + c.gradients, count));
        c.gradients += count;
    }
    free(dy);
    free(x);
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    return c;
}

/* How far two sets of numbers are apart, over their size. NaN where one is. */
static double apart(const double *a, const double *b, size_t count) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(difference / size);
}

/* `error` is a few times that of the operands' rounding: kernels may cut the rows otherwise, the sums then have another order. */
static void check_smaller_call(const char *problem, const char *require, const char *other, int planned, int rows,
                               double error) {
    computed a = compute_call(problem, require, planned, rows), b = compute_call(problem, other, rows, rows);
    double y = 0, size = 0;
    REQUIRE(a.outputs == b.outputs && a.gradients == b.gradients);
    for (size_t i = 0; i < a.outputs; i++) {
        const double difference = (double)a.y[i] - (double)b.y[i];
        y += difference * difference;
        size += (double)b.y[i] * (double)b.y[i];
    }
    const double of_y = sqrt(y / size), of_d = apart(a.d, b.d, a.gradients);
    if (!(of_y <= error && of_d <= error))
        test_fail(__FILE__, __LINE__, "%s by %s, %d of %d rows: outputs are %.2g apart, gradients %.2g", problem,
                  require ? require : "any kernel", rows, planned, of_y, of_d);
    free(a.y);
    free(a.d);
    free(b.y);
    free(b.d);
}

TEST(run_smaller_calls_compute_the_same) {
    static const char *const problems[] = {"lstm:b17_t5_i7_h33_f32_train", "gru:b17_t5_i7_h33_f32_train+recompute",
                                           "lstm:b17_t5_i7_h33_f32_bi_train+zoneout_h=0.1",
                                           "rnn:l2_b17_t5_i7_h33_f32_train"};
    static const int rows[] = {16, 9, 1};
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            check_smaller_call(problems[i], NULL, NULL, 17, rows[k], 1e-5);
}

/* 128 and 256 rows fill tiles of products, of which those of one row more have another number: what lies where differs most. */
TEST(run_smaller_calls_of_whole_tiles_compute_the_same) {
    static const struct {
        const char *problem;
        int planned, rows;
        double error;
    } cases[] = {{"lstm:b129_t35_i1536_h1536_bf16_train", 129, 128, 0.02},
                 {"lstm:b129_t35_i1536_h1536_bf16_train+recompute", 129, 128, 0.02},
                 {"lstm:b257_t20_i1024_h1024_bf16_bi_train+zoneout_h=0.1", 257, 256, 0.02},
                 {"lstm:b257_t20_i1024_h1024_f16_train+recompute", 257, 256, 0.003},
                 {"gru:b129_t20_i1024_h1024_tf32_train", 129, 128, 0.003}};
    if (!test_on_gpu()) test_skip("needs a GPU: run with --device cuda:0");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_smaller_call(cases[i].problem, "cuda:grid", "cuda:step", cases[i].planned, cases[i].rows, cases[i].error);
}
