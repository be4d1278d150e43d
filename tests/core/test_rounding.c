/* Rounding to the types of operands, against numbers that are known. */
#include "core/rounding.h"
#include "test.h"

TEST(rounding_to_operands) {
    static const struct {
        sl_dtype dtype;
        double value, rounded;
    } cases[] = {
        {SL_BF16, 1 + 1.0 / 256, 1}, /* a tie goes to the even neighbour */
        {SL_BF16, 1 + 3.0 / 256, 1 + 4.0 / 256},
        {SL_BF16, -1.0 - 1.1 / 256, -1 - 2.0 / 256},
        {SL_BF16, 1e-39, 0x1.6p-130}, /* below the smallest normal number digits are lost */
        {SL_F16, 1 + 1.0 / 2048, 1},
        {SL_F16, 1 + 3.0 / 2048, 1 + 4.0 / 2048},
        {SL_F16, 65519, 65504},
        {SL_F16, 65520, HUGE_VAL},
        {SL_F16, -1e9, -HUGE_VAL},
        {SL_F16, 0x1p-25, 0},
        {SL_F16, 0x1.8p-25, 0x1p-24},
        {SL_TF32, 1 + 1.0 / 2048, 1},
        {SL_TF32, 0.1, 0x1.998p-4},
        {SLI_TF32_CUT, 1 + 1.9 / 1024, 1 + 1.0 / 1024},
        {SLI_TF32_CUT, -1 - 1.9 / 1024, -1 - 1.0 / 1024},
        {SL_F32, 0.1, 0.1f},
        {SL_F64, 0.1, 0.1},
        {SL_BF16, 0, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double got = sli_round_to(cases[k].dtype, cases[k].value);
        if (got != cases[k].rounded)
            test_fail(__FILE__, __LINE__, "case %zu: %a becomes %a, not %a", k, cases[k].value, got, cases[k].rounded);
    }
    CHECK(isnan(sli_round_to(SL_BF16, NAN)) && sli_round_to(SL_F16, -INFINITY) == -INFINITY);
}

/* Every rounded number stays what it is, and lies no further away than half a unit in the last place. */
TEST(rounding_is_idempotent_and_near) {
    static const struct {
        sl_dtype dtype;
        double unit, least;
    } types[] = {{SL_BF16, 0x1p-8, 0}, {SL_F16, 0x1p-11, 0x1p-25}, {SL_TF32, 0x1p-11, 0}, {SL_F32, 0x1p-24, 0}};
    uint64_t state = test_seed;
    for (int i = 0; i < 4000; i++) {
        double value = test_random(&state) * ldexp(1, i % 20 - 10);
        for (size_t k = 0; k < 4; k++) {
            double rounded = sli_round_to(types[k].dtype, value);
            CHECK(sli_round_to(types[k].dtype, rounded) == rounded);
            CHECK(fabs(rounded - value) <= types[k].unit * fabs(value) + types[k].least);
        }
    }
}
