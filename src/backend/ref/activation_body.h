/* Activations by libm and their slopes from the output y = act(x), and rounded operands. Included per type, see real_f32.h. */

static inline REAL NAME(activate)(sl_activation act, REAL x) {
    const REAL zero = 0, one = 1, half = (REAL)0.5;
    REAL y = x;
    switch (act) {
    case SL_ACT_TANH:
        return M(tanh)(x);
    case SL_ACT_SIGMOID:
        return one / (one + M(exp)(-x));
    case SL_ACT_RELU:
        return x < zero ? zero : x;
    case SL_ACT_HARD_SIGMOID:
        y = x / 6 + half;
        return y < zero ? zero : y > one ? one : y;
    case SL_ACT_HARD_SIGMOID_K2:
        y = (REAL)0.2 * x + half;
        return y < zero ? zero : y > one ? one : y;
    case SL_ACT_SOFTSIGN:
        return x / (one + M(fabs)(x));
    case SL_ACT_LINEAR:
    case SL_ACT_DEFAULT:
        break;
    }
    return y;
}

static inline REAL NAME(slope)(sl_activation act, REAL y) {
    const REAL zero = 0, one = 1;
    switch (act) {
    case SL_ACT_TANH:
        return one - y * y;
    case SL_ACT_SIGMOID:
        return y * (one - y);
    case SL_ACT_RELU:
        return y > zero ? one : zero;
    case SL_ACT_HARD_SIGMOID:
        return y > zero && y < one ? one / 6 : zero;
    case SL_ACT_HARD_SIGMOID_K2:
        return y > zero && y < one ? (REAL)0.2 : zero;
    case SL_ACT_SOFTSIGN:
        return (one - M(fabs)(y)) * (one - M(fabs)(y));
    case SL_ACT_LINEAR:
    case SL_ACT_DEFAULT:
        break;
    }
    return one;
}

/* A row of 8-bit numbers is whole multiples of 1/127 of its largest. */
static REAL NAME(i8_step)(const REAL *row, int count) {
    REAL largest = 0;
    for (int k = 0; k < count; k++) largest = M(fmax)(largest, M(fabs)(row[k]));
    return largest / 127;
}

/* out[count] = bias + M v with the rows of M [count][width], and v, in 8 bits; bias may be NULL. */
static void NAME(product_i8)(const REAL *matrix, const REAL *bias, const REAL *v, int count, int width, REAL *out) {
    const REAL step_v = NAME(i8_step)(v, width);
    for (int g = 0; g < count; g++) {
        const REAL *row = matrix + (size_t)g * width;
        const REAL step = NAME(i8_step)(row, width);
        REAL sum = 0;
        for (int k = 0; k < width && step > 0 && step_v > 0; k++)
            sum += M(rint)(row[k] / step) * M(rint)(v[k] / step_v);
        out[g] = (bias ? bias[g] : 0) + sum * (step * step_v);
    }
}

/* What enters a product: rounded where a proof asks for it (sli_call.operands); for i8 see product_i8. */
static inline REAL NAME(operand)(const sli_call *call, REAL x) {
    return call->operands == SL_DTYPE_DEFAULT ? x : (REAL)sli_round_to(call->operands, (double)x);
}
