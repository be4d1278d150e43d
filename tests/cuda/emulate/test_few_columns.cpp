/* The last four columns of a sum over time on the CPU: runtime/few_columns.cuh as it is. */
#include <math.h>
#include <string.h>
#include <random>
#include <vector>

#include "cases.h"
#include "emulate.h"
#define __shared__ static /* one block at a time */

template <bool bf16> static float few_columns_wide(uint32_t bits) {
    const uint32_t wide = bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

#include "backend/cuda/runtime/few_columns.cuh"

template <int LANES> static std::string run_few_columns(int64_t m, int64_t k, bool add, uint64_t seed) {
    std::mt19937 random((unsigned)seed + (unsigned)(m * 1000 + k));
    std::normal_distribution<float> normal;
    const int64_t a_row = (m + 7) / 8 * 8, b_row = 16, d_row = 12, first = 8; /* D has 8 columns before */
    std::vector<uint16_t> a((size_t)(k * a_row)), b((size_t)(k * b_row + 8));
    std::vector<float> d((size_t)(m * d_row), 3.0f);
    for (uint16_t &x : a) x = emulate::to_bf16(normal(random));
    for (uint16_t &x : b) x = emulate::to_bf16(normal(random));
    uint16_t *four = b.data();
    while ((uintptr_t)(four + first) % 8 != 0) four++;
    const few_columns_args args = {a.data(), four + first, d.data() + first, m, k, a_row, b_row, d_row, add};
    emulate::launch_config config;
    config.grid = dim3((unsigned)((m + 2 * LANES - 1) / (2 * LANES)));
    config.block = dim3(32 * FEW_COLUMNS_WARPS);
    config.resident = 1;
    config.seed = seed;
    const std::string failure = emulate::launch(config, [&] { few_columns<true, LANES>(args); }).failure;
    if (!failure.empty()) return failure;
    for (int64_t row = 0; row < m; row++)
        for (int64_t column = 0; column < d_row; column++) {
            double sum = column < first || add ? 3 : 0, size = fabs(sum);
            for (int64_t i = 0; column >= first && i < k; i++) {
                const double x = few_columns_wide<true>(a[(size_t)(i * a_row + row)]);
                const double y = few_columns_wide<true>(four[i * b_row + column]);
                sum += x * y;
                size += fabs(x * y);
            }
            const double error = fabs(d[(size_t)(row * d_row + column)] - sum);
            if (!(error <= (double)(k + 2) * 6e-8 * size))
                return emulate_say("m %ld, k %ld: row %ld, column %ld errs by %g", (long)m, (long)k, (long)row,
                                   (long)column, error);
        }
    return "";
}

EMULATE_CASE("few columns: sums of every length, and nothing but the four") {
    for (const int64_t m : {1, 2, 31, 63, 64, 65, 130})
        for (const int64_t k : {1, 15, 16, 17, 63, 100})
            for (const bool add : {false, true}) {
                std::string wrong = run_few_columns<8>(m, k, add, seed);
                if (wrong.empty()) wrong = run_few_columns<32>(m, k, add, seed);
                if (!wrong.empty()) return wrong;
            }
    return "";
}
