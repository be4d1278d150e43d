/* tanh and sigmoid on vectors against libm in long double, over a dense sweep, in the instruction set that this file is compiled
 * for; the bounds are those of cell/activations.h. */
#include <math.h>
#include "backend/cpu/isa/cell_vector.h"
#include "cell/activations.h"
#include "test.h"

static double ulp(long double value) {
    const float y = fabsf((float)value);
    return y >= 1 ? ldexp(1, -24) : (double)(nextafterf(y, 2) - y);
}

/* The same x in every lane; the last answers. */
static float last(vf v) {
    float lanes[VL];
    vf_store(lanes, v);
    return lanes[VL - 1];
}

static float vector_tanh(float x) {
    return last(cell_tanh(vf_set(x)));
}

static float vector_sigmoid(float x) {
    return last(cell_sigmoid(vf_set(x)));
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TEST(cell_vector_tanh_accuracy) {
    double worst = 0;
    for (uint32_t bits = 0x0da24260; bits < 0x43480000; bits += 9973) { /* 1e-30 to 200 */
        const float x = float_of(bits), y = vector_tanh(x);
        const long double exact = tanhl(x);
        worst = fmax(worst, (double)fabsl((long double)y - exact) / ulp(exact));
        if (fabsf(y) > 1 || y != -vector_tanh(-x)) worst = INFINITY;
    }
    if (!(worst <= 6)) test_fail(__FILE__, __LINE__, "tanh is off by %g ulp", worst);
    CHECK(vector_tanh(0) == 0 && vector_tanh(INFINITY) == 1 && vector_tanh(-INFINITY) == -1);
    CHECK(isnan(vector_tanh(NAN)));
}

TEST(cell_vector_sigmoid_accuracy) {
    double absolute = 0, relative = 0;
    for (uint32_t bits = 0x0da24260; bits < 0x43480000; bits += 9973)
        for (int sign = -1; sign <= 1; sign += 2) {
            const float x = (float)sign * float_of(bits);
            const long double exact = 1 / (1 + expl(-(long double)x));
            const double error = (double)fabsl((long double)vector_sigmoid(x) - exact);
            absolute = fmax(absolute, error);
            if (exact >= 1.17549435e-38L) relative = fmax(relative, error / (double)exact);
        }
    if (!(absolute <= 3e-7)) test_fail(__FILE__, __LINE__, "sigmoid is off by %g", absolute);
    if (!(relative <= 1e-5)) test_fail(__FILE__, __LINE__, "sigmoid is off by %g relative", relative);
    CHECK(vector_sigmoid(0) == 0.5f && vector_sigmoid(INFINITY) == 1 && vector_sigmoid(-INFINITY) < 1e-37f);
    CHECK(isnan(vector_sigmoid(NAN)));
}
