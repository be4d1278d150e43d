/* The vector tanh and sigmoid of streams against long double, as tests/cell/test_activations.c does for the others. */
#include "stream/isa/cells.h"
#include "test.h"

static double ulp_of(double value) {
    return ldexp(1, ilogb(value) - 23);
}

static float lane(vf v) {
    float all[VL];
    vf_store(all, v);
    return all[VL - 1];
}

TEST(stream_cells_tanh_and_sigmoid_are_accurate) {
    double ulps = 0, absolute = 0, relative = 0, beyond = 0;
    for (int i = -400000; i <= 400000; i++) {
        const float x = (float)(i * 2.2e-4 + i * 1e-10);
        const fraction t = tanh_fraction(vf_set(x));
        const double y = lane(t.x * t.p / t.q), s = lane(vf_set(1.0f) / sigmoid_divisor(vf_set(x)));
        const double exact = (double)tanhl(x), sigmoid = (double)(1 / (1 + expl(-(long double)x)));
        if (i) ulps = fmax(ulps, fabs(y - exact) / ulp_of(exact));
        absolute = fmax(absolute, fabs(s - sigmoid));
        if (sigmoid > 2e-38) relative = fmax(relative, fabs(s - sigmoid) / sigmoid);
        beyond = fmax(beyond, fabs(y) - 1);
    }
    CHECK(ulps <= 6);
    CHECK(absolute <= 3e-7);
    CHECK(relative <= 1e-5);
    CHECK(beyond <= 3e-7);
    CHECK(isnan(lane(sigmoid_divisor(vf_set(NAN)))));
    CHECK(isnan(lane(tanh_fraction(vf_set(NAN)).p)));
    CHECK(lane(vf_set(1.0f) / sigmoid_divisor(vf_set(INFINITY))) == 1);
}
