/* Initial values: range and moments of every distribution, orthogonality, what is set afterwards. */
#include "core/params.h"
#include "core/threads.h"
#include "test.h"

enum { ROWS = 96, COLUMNS = 40, COUNT = ROWS * COLUMNS };
static double values[COUNT];

static void draw(sl_init init, int pytorch_fan) {
    sli_param param = {
        .name = "l.kernel", .rows = ROWS, .columns = COLUMNS, .init = init, .pytorch_fan = pytorch_fan, .layer = 1};
    sli_initialise(&param, 2, test_seed, NULL, values);
}

typedef struct moments {
    double mean, deviation, largest;
} moments;
static moments measure(void) {
    moments m = {0, 0, 0};
    for (int i = 0; i < COUNT; i++) {
        m.mean += values[i] / COUNT;
        m.largest = fmax(m.largest, fabs(values[i]));
    }
    for (int i = 0; i < COUNT; i++) m.deviation += (values[i] - m.mean) * (values[i] - m.mean) / COUNT;
    m.deviation = sqrt(m.deviation);
    return m;
}

static void check_uniform(sl_init init, int fan, double limit) {
    draw(init, fan);
    moments m = measure();
    CHECK(m.largest <= limit && m.largest > 0.99 * limit);
    CHECK_NEAR(m.deviation, limit / sqrt(3.0), 0.05 * limit);
    CHECK_NEAR(m.mean, 0, 0.06 * limit);
}

/* fan_in = columns, fan_out = rows: Keras's kernel (inputs, outputs) transposed. */
TEST(initialise_uniform_kinds) {
    check_uniform((sl_init){SL_INIT_UNIFORM, 0.08}, 0, 0.08);
    check_uniform((sl_init){SL_INIT_GLOROT_UNIFORM, 0}, 0, sqrt(6.0 / (ROWS + COLUMNS)));
    check_uniform((sl_init){SL_INIT_HE_UNIFORM, 0}, 0, sqrt(6.0 / COLUMNS));
    check_uniform((sl_init){SL_INIT_LECUN_UNIFORM, 0}, 0, sqrt(3.0 / COLUMNS));
    check_uniform((sl_init){SL_INIT_PYTORCH, 0}, 64, 1 / 8.0);
}

/* Keras's Glorot, He and LeCun of variables that are no [outputs][inputs]: by their largest value, fans of [inputs][outputs], [n] and [2][n]. */
TEST(initialise_fans) {
    static const struct {
        sli_fans fans;
        double in, out;
    } as[] = {{SLI_FANS_TABLE, 3, 1280}, {SLI_FANS_BIAS, 1280, 1280}, {SLI_FANS_TWO_BIASES, 2, 1280}};
    for (int i = 0; i < 3; i++) {
        const double spread[] = {2 / (as[i].in + as[i].out), 2 / as[i].in, 1 / as[i].in};
        const sl_init_kind kinds[] = {SL_INIT_GLOROT_UNIFORM, SL_INIT_HE_UNIFORM, SL_INIT_LECUN_UNIFORM};
        for (int k = 0; k < 3; k++) {
            sli_param param = {.name = "l.bias",
                               .rows = i == 0 ? 3 : 1,
                               .columns = 1280,
                               .init = {kinds[k], 0},
                               .layer = 1,
                               .fans = as[i].fans};
            sli_initialise(&param, 2, test_seed, NULL, values);
            double largest = 0;
            for (int j = 0; j < 1280; j++) largest = fmax(largest, fabs(values[j]));
            CHECK(largest <= sqrt(3 * spread[k]) && largest > 0.98 * sqrt(3 * spread[k]));
        }
    }
}

/* An LSTM's bias: gate i of n, c and o of 2 n, between them what is set; the same in parts. */
TEST(initialise_bias_with_forget_slice) {
    enum { N = 320 };
    static double part[4 * N];
    const sli_param param = {.name = "l.bias",
                             .rows = 1,
                             .columns = 4 * N,
                             .init = {SL_INIT_HE_UNIFORM, 0},
                             .layer = 1,
                             .fans = SLI_FANS_BIAS,
                             .set_offset = N,
                             .set_count = N,
                             .set_value = 1};
    const double limit[] = {sqrt(6.0 / N), 0, sqrt(6.0 / (2 * N)), sqrt(6.0 / (2 * N))};
    sli_initialise(&param, 2, test_seed, NULL, values);
    for (int gate = 0; gate < 4; gate++) {
        double largest = 0;
        for (int i = 0; i < N; i++) largest = fmax(largest, fabs(values[gate * N + i]));
        CHECK(gate == 1 ? largest == 1 : largest <= limit[gate] && largest > 0.95 * limit[gate]);
    }
    sli_initialise_part(&param, 2, test_seed, 0, 100, part);
    sli_initialise_part(&param, 2, test_seed, 100, 600, part + 100);
    sli_initialise_part(&param, 2, test_seed, 700, 4 * N - 700, part + 700);
    CHECK(memcmp(part, values, sizeof part) == 0);
}

static void check_normal(sl_init init, double deviation, double largest) {
    draw(init, 0);
    moments m = measure();
    CHECK_NEAR(m.mean, 0, 0.08 * deviation);
    CHECK_NEAR(m.deviation, deviation, 0.05 * deviation);
    CHECK(m.largest <= largest && m.largest > 0.8 * fmin(largest, 3.5 * deviation));
}

TEST(initialise_normal_kinds) {
    double cut = 0.87962566103423978; /* deviation of a unit normal cut at +-2 */
    check_normal((sl_init){SL_INIT_NORMAL, 0.3}, 0.3, 0.3 * 6);
    check_normal((sl_init){SL_INIT_PYTORCH, 0}, 1, 6);
    check_normal((sl_init){SL_INIT_TRUNCATED_NORMAL, 0.5}, 0.5 * cut, 1.0);
    check_normal((sl_init){SL_INIT_GLOROT_NORMAL, 0}, sqrt(2.0 / (ROWS + COLUMNS)),
                 2 * sqrt(2.0 / (ROWS + COLUMNS)) / cut);
    check_normal((sl_init){SL_INIT_HE_NORMAL, 0}, sqrt(2.0 / COLUMNS), 2 * sqrt(2.0 / COLUMNS) / cut);
    check_normal((sl_init){SL_INIT_LECUN_NORMAL, 0}, sqrt(1.0 / COLUMNS), 2 * sqrt(1.0 / COLUMNS) / cut);
}

TEST(initialise_orthogonal_columns) {
    draw((sl_init){SL_INIT_ORTHOGONAL, 1.5}, 0);
    for (int a = 0; a < COLUMNS; a++)
        for (int b = 0; b <= a; b++) {
            double dot = 0;
            for (int r = 0; r < ROWS; r++) dot += values[r * COLUMNS + a] * values[r * COLUMNS + b];
            CHECK_NEAR(dot, a == b ? 1.5 * 1.5 : 0, 1e-12);
        }
}

/* One vector after another, in long double. */
static void gram_schmidt(long double *v, size_t vectors, size_t length, size_t step, size_t stride) {
    for (size_t a = 0; a < vectors; a++)
        for (size_t b = 0; b <= a; b++) {
            long double along = 0;
            for (size_t i = 0; i < length; i++) along += v[a * step + i * stride] * v[b * step + i * stride];
            for (size_t i = 0; i < length; i++)
                v[a * step + i * stride] = a == b ? v[a * step + i * stride] / sqrtl(along)
                                                  : v[a * step + i * stride] - along * v[b * step + i * stride];
        }
}

static void check_orthogonal(size_t rows, size_t columns, double bound) {
    size_t count = rows * columns;
    double *drawn = malloc(count * sizeof *drawn);
    long double *expected = malloc(count * sizeof *expected);
    REQUIRE(drawn && expected);
    sli_param param = {
        .name = "l.kernel", .rows = (int64_t)rows, .columns = (int64_t)columns, .init = {SL_INIT_NORMAL, 1}};
    sli_initialise(&param, 2, test_seed, NULL, drawn);
    for (size_t i = 0; i < count; i++) expected[i] = drawn[i];
    if (rows <= columns)
        gram_schmidt(expected, rows, columns, columns, 1);
    else
        gram_schmidt(expected, columns, rows, 1, columns);
    param.init = (sl_init){SL_INIT_ORTHOGONAL, 0};
    sli_initialise(&param, 2, test_seed, NULL, drawn);
    double worst = 0;
    for (size_t i = 0; i < count; i++) worst = fmax(worst, (double)fabsl(drawn[i] - expected[i]));
    if (!(worst <= bound)) test_fail(__FILE__, __LINE__, "%zu x %zu: off by %g", rows, columns, worst);
    free(drawn);
    free(expected);
}

/* Blocks of vectors give what one after another gives, whatever the sizes: whole blocks, parts, both ways to lie in memory. */
TEST(initialise_orthogonal_blocks) {
    static const size_t sizes[][2] = {{1, 1},   {7, 1},    {1, 9},    {63, 70},  {64, 64},
                                      {65, 64}, {150, 70}, {67, 140}, {130, 130}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) check_orthogonal(sizes[k][0], sizes[k][1], 1e-11);
}

/* Vectors that differ little lose much of their length, and with it digits: they are taken twice. */
TEST(initialise_orthogonal_vectors_that_differ_little) {
    enum { VECTORS = 100, LENGTH = 150 };
    double *v = malloc(sizeof *v * VECTORS * LENGTH), worst = 0;
    REQUIRE(v);
    uint64_t state = test_seed;
    for (int i = 0; i < VECTORS * LENGTH; i++) v[i] = 1 + i % LENGTH + 0.01 * test_random(&state);
    sli_orthonormalise(NULL, v, VECTORS, LENGTH);
    for (int a = 0; a < VECTORS; a++)
        for (int b = 0; b <= a; b++) {
            double dot = 0;
            for (int i = 0; i < LENGTH; i++) dot += v[a * LENGTH + i] * v[b * LENGTH + i];
            worst = fmax(worst, fabs(dot - (a == b)));
        }
    CHECK_NEAR(worst, 0, 1e-12);
    free(v);
}

TEST(initialise_orthogonal_changes_no_bit_with_threads) {
    static double alone[300 * 130], shared[300 * 130];
    sli_param param = {.name = "l.kernel", .rows = 300, .columns = 130, .init = {SL_INIT_ORTHOGONAL, 0}};
    sli_initialise(&param, 2, test_seed, NULL, alone);
    for (int count = 2; count <= 5; count++) {
        sli_threads *threads;
        REQUIRE_OK(sli_threads_new(NULL, count, &threads));
        memset(shared, 255, sizeof shared);
        sli_initialise(&param, 2, test_seed, threads, shared);
        CHECK(memcmp(alone, shared, sizeof alone) == 0);
        sli_threads_free(threads);
    }
}

/* What nothing is left of becomes zero, and nothing is a NaN. */
TEST(initialise_orthogonal_of_dependent_vectors) {
    double v[4 * 5] = {0};
    for (int i = 0; i < 5; i++) v[i] = i + 1, v[10 + i] = i == 2;
    sli_orthonormalise(NULL, v, 4, 5); /* the second and the fourth are zeros */
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++) {
            double dot = 0;
            for (int i = 0; i < 5; i++) dot += v[a * 5 + i] * v[b * 5 + i];
            CHECK_NEAR(dot, a == b && a % 2 == 0 ? 1 : 0, 1e-14);
        }
}

TEST(initialise_constants_and_forget_slice) {
    sli_param param = {.name = "l.bias",
                       .rows = 1,
                       .columns = 12,
                       .init = {SL_INIT_CONSTANT, 0.25},
                       .set_offset = 3,
                       .set_count = 3,
                       .set_value = 1};
    sli_initialise(&param, 0, 1, NULL, values);
    for (int i = 0; i < 12; i++) CHECK(values[i] == (i >= 3 && i < 6 ? 1 : 0.25));
    draw((sl_init){SL_INIT_IDENTITY, 0}, 0);
    for (int i = 0; i < COUNT; i++) CHECK(values[i] == (i / COLUMNS == i % COLUMNS ? 1 : 0));
    draw((sl_init){SL_INIT_IDENTITY, 0.5}, 0);
    for (int i = 0; i < COUNT; i++) CHECK(values[i] == (i / COLUMNS == i % COLUMNS ? 0.5 : 0));
    draw((sl_init){SL_INIT_ONES, 0}, 0);
    CHECK(values[0] == 1 && values[COUNT - 1] == 1);
    draw((sl_init){SL_INIT_ZEROS, 0}, 0);
    CHECK(values[0] == 0 && values[COUNT - 1] == 0);
}

TEST(initialise_seed_and_place_decide) {
    double first[COUNT];
    draw((sl_init){SL_INIT_UNIFORM, 1}, 0);
    memcpy(first, values, sizeof first);
    draw((sl_init){SL_INIT_UNIFORM, 1}, 0);
    CHECK(memcmp(first, values, sizeof first) == 0);
    sli_param other = {.name = "m.kernel", .rows = ROWS, .columns = COLUMNS, .init = {SL_INIT_UNIFORM, 1}, .layer = 2};
    sli_initialise(&other, 3, test_seed, NULL, values);
    CHECK(memcmp(first, values, sizeof first) != 0);
}

/* Parameters of layers: an embedding's table is [inputs][outputs]; Keras's GRU begins with z, which is our second gate. */
TEST(initialise_layers_as_keras) {
    enum { VOCABULARY = 900, UNITS = 4 };
    const sl_embedding embedding = {.vocabulary = VOCABULARY, .units = UNITS, .init = {SL_INIT_HE_UNIFORM, 0}};
    const sl_recurrent gru = {.units = UNITS, .return_sequences = 1, .recurrent_init = {SL_INIT_IDENTITY, 0}},
                       two = {.units = 2, .kernel_init = {SL_INIT_IDENTITY, 0}};
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", VOCABULARY));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &gru, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "wide", SL_GRU, &two, NULL));
    REQUIRE_OK(sl_plan_new(model, &(sl_plan_options){.batch = 1, .steps = 2, .device = test_device}, &plan));
    REQUIRE_OK(sl_params_new(plan, &params));
    REQUIRE_OK(sl_params_init(params, test_seed));
    double table[VOCABULARY * UNITS], kernel[3 * UNITS * UNITS], wide[6 * UNITS], largest = 0;
    REQUIRE_OK(sl_params_get(params, "embedding.embeddings", table, VOCABULARY * UNITS));
    for (int i = 0; i < VOCABULARY * UNITS; i++) largest = fmax(largest, fabs(table[i]));
    CHECK(largest <= sqrt(6.0 / VOCABULARY) && largest > 0.99 * sqrt(6.0 / VOCABULARY));
    REQUIRE_OK(sl_params_get(params, "wide.kernel", wide, 6 * UNITS));
    for (int row = 0; row < 6; row++) /* z, then r, then n, as Keras has them */
        for (int k = 0; k < UNITS; k++) CHECK(wide[row * UNITS + k] == (row == (k < 2 ? 2 + k : k - 2) ? 1 : 0));
    REQUIRE_OK(sl_params_get(params, "gru.recurrent_kernel", kernel, 3 * UNITS * UNITS));
    for (int row = 0; row < 3 * UNITS; row++)
        for (int k = 0; k < UNITS; k++) CHECK(kernel[row * UNITS + k] == (row == UNITS + k ? 1 : 0));
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
}
