/* f32x3 on libsluice's side: the split of a float, how exact three products of tensor cores are (computed here, as they
 * compute), which products are split and what is booked for them. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/split.h"
#include "test.h"

static sli_caps invented(int capability) {
    sli_caps caps = {.kind = SLI_DEVICE_CUDA, .invented = true, .compute_capability = capability};
    return caps;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 24 random digits, exponents from -span to span. */
static float draw(uint64_t *state, int span) {
    const double digits = 1 + 0.5 * (test_random(state) + 1), sign = test_random(state) < 0 ? -1 : 1;
    return (float)ldexp(sign * digits, (int)(test_random(state) * span));
}

TEST(cuda_split_rounds_as_tensor_cores_read) {
    const struct {
        double value, rounded;
    } cases[] = {
        {1, 1},
        {-0.0, -0.0},
        {1 + 0x1p-11, 1 + 0x1p-10}, /* a tie: away from zero */
        {-1 - 0x1p-11, -1 - 0x1p-10},
        {1 + 3 * 0x1p-11, 1 + 0x1p-9},
        {1 + 0x1p-11 - 0x1p-23, 1},
        {2 - 0x1p-12, 2}, /* into the next power of two */
        {0x1p-149, 0},
        {0x1p-136, 0x1p-136},
        {0x1.ffcp127, 0x1.ffcp127},
        {0x1.ffep127, (double)INFINITY},
        {(double)-INFINITY, (double)-INFINITY},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (bits_of(sli_tf32((float)cases[i].value)) != bits_of((float)cases[i].rounded))
            test_fail(__FILE__, __LINE__, "%a becomes %a, not %a", cases[i].value,
                      (double)sli_tf32((float)cases[i].value), cases[i].rounded);
    CHECK(isnan(sli_tf32((float)NAN)));
}

TEST(cuda_split_keeps_what_is_not_finite) {
    static const float values[] = {INFINITY, -INFINITY, NAN, 0x1.fffffep127f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        float high, low;
        sli_split(values[i], &high, &low);
        CHECK(!isfinite(high) && !isfinite(high * 0.5f + low * 0.5f));
    }
}

TEST(cuda_split_leaves_little) {
    uint64_t state = test_seed;
    for (int i = 0; i < 200000; i++) {
        const float x = draw(&state, 60);
        float high, low;
        sli_split(x, &high, &low);
        const double size = fabs((double)x), left = (double)x - (double)high - (double)low;
        CHECK((bits_of(high) & 0x1fff) == 0 && (bits_of(low) & 0x1fff) == 0);
        CHECK(fabs((double)low) <= 0x1p-11 * size && fabs(left) <= 0x1p-23 * size);
    }
}

/* One product of two floats: the bound of the tolerance, and what it is on average. */
TEST(cuda_split_products_are_within_the_bound) {
    enum { COUNT = 200000 };
    uint64_t state = test_seed;
    double squares = 0;
    for (int i = 0; i < COUNT; i++) {
        const float x = draw(&state, 20), y = draw(&state, 20);
        float x_high, x_low, y_high, y_low;
        sli_split(x, &x_high, &x_low);
        sli_split(y, &y_high, &y_low);
        const double exact = (double)x * (double)y;
        const double split =
            (double)x_low * (double)y_high + (double)x_high * (double)y_low + (double)x_high * (double)y_high;
        const double error = (split - exact) / exact;
        if (!(fabs(error) < 0x1p-21)) test_fail(__FILE__, __LINE__, "%a * %a errs by %g", (double)x, (double)y, error);
        squares += error * error;
    }
    CHECK(sqrt(squares / COUNT) < 0x1p-23);
}

enum { LONGEST = 2000 };

/* Adds as tensor cores do: products of tf32 are exact, `to` keeps 24 digits of sums of 8, the rest is cut off. */
static float add_cut(float to, const float *a, const float *b, int count) {
    double sum = (double)to;
    for (int k = 0; k < count; k++) sum += (double)a[k] * (double)b[k];
    const float nearest = (float)sum;
    return fabs((double)nearest) > fabs(sum) ? nextafterf(nearest, 0) : nearest;
}

/* A row times a column, as sli_split_multiply: pieces of k, and in each [low high high] times [high low high]. */
static float multiply_split(const float *x, const float *y, int k) {
    static float a[3 * 512], b[3 * 512];
    const int each = (int)sli_cuda_split_piece(k);
    float result = 0;
    for (int first = 0; first < k; first += each) {
        const int count = k - first < each ? k - first : each, longer = (count + 7) / 8 * 8;
        REQUIRE(longer <= 512);
        memset(a, 0, sizeof a);
        memset(b, 0, sizeof b);
        for (int i = 0; i < count; i++) {
            sli_split(x[first + i], &a[longer + i], &a[i]);
            a[2 * longer + i] = a[longer + i];
            sli_split(y[first + i], &b[i], &b[longer + i]);
            b[2 * longer + i] = b[i];
        }
        float sum = 0;
        for (int i = 0; i < 3 * longer; i += 8) sum = add_cut(sum, a + i, b + i, 8);
        result += sum;
    }
    return result;
}

/* Relative to the rms of the results, as src/proof measures: within the tolerance's terms, and near what f32 has. */
TEST(cuda_split_sums_are_as_exact_as_f32) {
    static float x[LONGEST], y[LONGEST];
    static const int lengths[] = {1, 8, 33, 256, 512, 513, LONGEST};
    uint64_t state = test_seed;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int k = lengths[l];
        double split = 0, plain = 0, size = 0;
        for (int r = 0; r < 200; r++) {
            double exact = 0;
            float ordinary = 0;
            for (int i = 0; i < k; i++) {
                x[i] = (float)test_random(&state);
                y[i] = (float)test_random(&state);
                exact += (double)x[i] * (double)y[i];
                ordinary = fmaf(x[i], y[i], ordinary);
            }
            const double error = (double)multiply_split(x, y, k) - exact;
            split += error * error;
            plain += ((double)ordinary - exact) * ((double)ordinary - exact);
            size += exact * exact;
        }
        const double relative = sqrt(split / size), of_f32 = sqrt(plain / size);
        if (!(relative < 0x1p-21 + 4 * 0x1p-24 * sqrt(k)))
            test_fail(__FILE__, __LINE__, "%d products: error %g, f32 has %g", k, relative, of_f32);
        CHECK(relative < 5 * of_f32 + 0x1p-23);
    }
}

TEST(cuda_split_pays_for_large_products) {
    const sli_caps turing = invented(75), ampere = invented(80), hopper = invented(90);
    const struct {
        int64_t m, n, k;
        bool split;
    } cases[] = {
        {700, 10000, 1500, true}, {700, 6000, 1500, true},  {1500, 6000, 700, true}, {1024, 1501, 1401, true},
        {20, 6000, 1500, false},  {64, 16384, 4096, false}, {700, 800, 200, false},  {1024, 1024, 8, false},
        {1, 1, 1, false},         {0, 1000, 1000, false},   {4096, 4096, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t m = cases[i].m, n = cases[i].n, k = cases[i].k;
        const size_t bytes = sli_cuda_split_bytes(&hopper, SL_F32X3, m, n, k);
        if ((bytes > 0) != cases[i].split) test_fail(__FILE__, __LINE__, "case %zu: %zu bytes", i, bytes);
        CHECK(sli_cuda_split_bytes(&hopper, SL_F32, m, n, k) == 0 &&
              sli_cuda_split_bytes(&hopper, SL_TF32, m, n, k) == 0);
        CHECK(sli_cuda_split_bytes(&turing, SL_F32X3, m, n, k) == 0);
        CHECK(sli_cuda_split_bytes(&ampere, SL_F32X3, m, n, k) == bytes);
    }
    CHECK(sli_cuda_split_bytes(&hopper, SL_F32X3, 1024, 1501, 1401) == (size_t)3 * 4 * 512 * (1024 + 1504));
    CHECK(sli_cuda_split_bytes(&hopper, SL_F32X3, 1500, 6000, 500) == (size_t)3 * 4 * 504 * (1500 + 6000));
}

/* What is booked for a plan is enough for its smaller calls, and for each of their pieces. */
TEST(cuda_split_grows_with_the_product) {
    const sli_caps caps = invented(90);
    for (int64_t n = 5; n < 4000; n += 397)
        for (int64_t other = 1; other < 5000; other *= 3) {
            size_t by_m = 0, by_k = 0, pad_by_m = 0, pad_by_k = 0;
            for (int64_t grown = 1; grown < 9000; grown += 101) {
                const size_t m = sli_cuda_split_bytes(&caps, SL_F32X3, grown, n, other);
                const size_t k = sli_cuda_split_bytes(&caps, SL_F32X3, other, n, grown);
                const size_t pad_m = sli_cuda_pad_bytes(&caps, SL_F32X3, grown, n, other);
                const size_t pad_k = sli_cuda_pad_bytes(&caps, SL_F32X3, other, n, grown);
                CHECK(m >= by_m && k >= by_k && pad_m >= pad_by_m && pad_k >= pad_by_k);
                CHECK(k == 0 || (size_t)(12 * sli_cuda_split_piece(grown) * (other + n)) <= k);
                by_m = m;
                by_k = k;
                pad_by_m = pad_m;
                pad_by_k = pad_k;
            }
        }
}

TEST(cuda_split_pieces) {
    for (int64_t k = 1; k < 300000; k += k < 5000 ? 1 : 997) {
        const int64_t each = sli_cuda_split_piece(k), pieces = (k + each - 1) / each;
        CHECK(each % 8 == 0 && each <= 512 && pieces <= (k + 511) / 512);
    }
    CHECK(sli_cuda_split_piece(512) == 512 && sli_cuda_split_piece(513) == 264 && sli_cuda_split_piece(1500) == 504);
}
