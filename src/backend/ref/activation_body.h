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

/* What enters a product: rounded where a proof asks for it (sli_call.operands). */
static inline REAL NAME(operand)(const sli_call *call, REAL x) {
    return call->operands == SL_DTYPE_DEFAULT ? x : (REAL)sli_round_to(call->operands, (double)x);
}
