/* Initial values: range and moments of every distribution, orthogonality, what is set afterwards. */
#include "core/params.h"
#include "test.h"

enum { ROWS = 96, COLUMNS = 40, COUNT = ROWS * COLUMNS };
static double values[COUNT];

static void draw(sl_init init, int pytorch_fan) {
    sli_param param = {
        .name = "l.kernel", .rows = ROWS, .columns = COLUMNS, .init = init, .pytorch_fan = pytorch_fan, .layer = 1};
    sli_initialise(&param, 2, test_seed, values);
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

TEST(initialise_constants_and_forget_slice) {
    sli_param param = {.name = "l.bias",
                       .rows = 1,
                       .columns = 12,
                       .init = {SL_INIT_CONSTANT, 0.25},
                       .set_offset = 3,
                       .set_count = 3,
                       .set_value = 1};
    sli_initialise(&param, 0, 1, values);
    for (int i = 0; i < 12; i++) CHECK(values[i] == (i >= 3 && i < 6 ? 1 : 0.25));
    draw((sl_init){SL_INIT_IDENTITY, 0}, 0);
    for (int i = 0; i < COUNT; i++) CHECK(values[i] == (i / COLUMNS == i % COLUMNS ? 1 : 0));
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
    sli_initialise(&other, 3, test_seed, values);
    CHECK(memcmp(first, values, sizeof first) != 0);
}
