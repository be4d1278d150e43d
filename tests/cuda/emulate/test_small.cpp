/* Small products on the CPU: runtime/small.cuh as it is. */
#include <math.h>
#include <string.h>
#include <random>
#include <vector>

#include "cases.h"
#include "emulate.h"
#include "backend/cuda/kernels/ptx.cuh"
#define __shared__ static /* one block at a time */

struct narrow {
    uint16_t bits; /* bf16 */
};
static float small_wide(float x) { return x; }
static float small_wide(narrow x) {
    const uint32_t wide = (uint32_t)x.bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
static void set(float *to, float x) { *to = x; }
static void set(narrow *to, float x) { to->bits = emulate::to_bf16(x); }
template <class T> static float small_rounded(float x) {
    T operand;
    set(&operand, x);
    return small_wide(operand);
}

template <class T> static void small_set(T *to, float x) {
    set(to, x);
}

#include "backend/cuda/runtime/small.cuh"

/* `down`: B is [k][b_row], of which nothing is aligned. */
template <class T, bool down, int tiles, int pieces, class A = T, class D = float>
static std::string run_small(int64_t m, int64_t n, int64_t k, int warps_k, bool add, uint64_t seed) {
    std::mt19937 random((unsigned)seed + (unsigned)(m * 1000 + n * 10 + k));
    std::normal_distribution<float> normal;
    const int64_t a_row = k + 4, b_row = down ? n + 1 : k + 8, d_row = n + 3;
    std::vector<A> a((size_t)(m * a_row + 8));
    std::vector<T> b((size_t)((down ? k : n) * b_row + 8));
    std::vector<float> bias((size_t)n);
    std::vector<D> d((size_t)(m * d_row));
    for (D &x : d) set(&x, 3.0f);
    for (A &x : a) set(&x, (float)(int)(normal(random) * 64) / 64 + (sizeof(A) > sizeof(T) ? 0.0013f : 0)); /* tf32 and bf16 as they are; floats are to be rounded */
    for (T &x : b) set(&x, (float)(int)(normal(random) * 64) / 64);
    for (float &x : bias) x = normal(random);
    const auto aligned = [](auto *at) {
        while ((uintptr_t)at % 16 != 0) at++;
        return at;
    };
    const A *x = aligned(a.data());
    const T *y = aligned(b.data()) + (down ? 1 : 0);
    const small_args args = {x, y, d.data(), add ? nullptr : bias.data(), m, n, k, a_row, b_row, d_row, warps_k, add, sizeof(D) == 2};
    const int64_t width = SMALL_WARPS / warps_k * SMALL_N, rows = tiles * SMALL_M;
    emulate::launch_config config;
    config.grid = dim3((unsigned)((n + width - 1) / width), (unsigned)((m + rows - 1) / rows));
    config.block = dim3(32 * SMALL_WARPS);
    config.resident = 1;
    config.seed = seed;
    const std::string failure = emulate::launch(config, [&] { small_product<A, T, down, tiles, pieces>(args); }).failure;
    if (!failure.empty()) return failure;
    for (int64_t row = 0; row < m; row++)
        for (int64_t column = 0; column < d_row; column++) {
            double sum = add || column >= n ? 3 : (double)bias[(size_t)column], size = fabs(sum);
            for (int64_t i = 0; column < n && i < k; i++) {
                const double product = (double)small_rounded<T>(small_wide(x[row * a_row + i])) *
                                       (double)small_wide(y[down ? i * b_row + column : column * b_row + i]);
                sum += product;
                size += fabs(product);
            }
            const double error = fabs((double)small_wide(d[(size_t)(row * d_row + column)]) - sum);
            const double rounding = sizeof(D) == 2 ? ldexp(fabs(sum), -8) : 0;
            if (!(error <= (double)(k + 2) * 1.2e-7 * size + 1.01 * rounding))
                return emulate_say("m %ld, n %ld, k %ld: row %ld, column %ld errs by %g", (long)m, (long)n, (long)k,
                                   (long)row, (long)column, error);
        }
    return "";
}

EMULATE_CASE("small products: of every size, and nothing beside them") {
    const struct {
        int64_t m, n, k;
        int warps_k;
    } of[] = {{5, 16, 4, 1}, {8, 40, 100, 4}, {9, 17, 20, 1}, {16, 130, 36, 2}, {25, 33, 140, 8}, {33, 15, 64, 4}};
    for (const auto &p : of)
        for (const bool add : {false, true}) {
            std::string wrong = run_small<float, false, 4, 4>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<float, false, 1, 1>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty() && !add) wrong = run_small<float, false, 2, 4>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<float, true, 4, 4>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<narrow, false, 4, 4, float>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<narrow, false, 1, 1, float>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<narrow, true, 4, 4>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<narrow, true, 2, 4>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<narrow, true, 1, 1>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<narrow, false, 2, 4>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (wrong.empty()) wrong = run_small<narrow, true, 2, 4, narrow, narrow>(p.m, p.n, p.k, p.warps_k, add, seed);
            if (!wrong.empty()) return wrong;
        }
    return "";
}
