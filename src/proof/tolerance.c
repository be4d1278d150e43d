/* Tolerances.
 *
 * Outputs. One product of a row of n numbers in 24 bits has a relative error of about 2^-24 * sqrt(n) if roundings are
 * independent; activations and the pointwise part add a few more roundings, and a gated step hands on a little less than it
 * got, so that errors of earlier steps add up to a small factor, taken as 4. Operands rounded to the unit u (bf16, f16, tf32)
 * add 2u. Layers in a row add their errors:
 *     output   = layers * (2u + 4 * eps * sqrt(I + H))
 * f32x3 (backend/cuda/runtime/split.h) drops less than 2^-21 of a product, so its u is 2^-22. Tensor cores cut off, 8 products
 * at a time, what does not fit into a sum of 24 bits: on average half a unit towards 0, which adds up to eps * n / 8 at most,
 * half of 4 * eps * sqrt(n) for n = 512; longer sums are cut (SPLIT_MOST in workspace.c).
 *
 * i8. Every row of weights and of operands is rounded to whole multiples of 1/127 of its largest number, and sums of these are
 * exact. The reference rounds likewise, so that what remains is numbers which fall on the other side of the middle between two
 * multiples because they differ by a float's rounding: of one in 10^4 to 10^5 numbers, by 1/127 of the largest. In a recurrence such
 * a step changes the next operands by a little more, and so more of them, but never by more than rounding itself does. 2u is
 * one such step in every product: u = 2^-8. (That the sums are exact is proved to the bit: tests/backend/test_cpu_panel_i8.c.)
 *
 * Gradients. The backward pass multiplies the saved values (with the error above) by gradients that went through products
 * of G*H numbers (an error of the same kind), and sums T*B of these products into each parameter. The sum is taken in fixed
 * chunks; its own roundings are independent and of the size eps * sqrt(T*B) at most:
 *     gradient = 2 * layers * (2u + 4 * eps * sqrt(I + G*H)) + eps * sqrt(T*B)
 * with eps = 2^-24, or 2^-53 in double.
 *
 * An RNN with recurrent dropout forgets nothing by itself: where gates hand on a little less than they got, in training its states and
 * gradients are multiplied by 1 / (1 - rate) a step. Independent errors of the steps add up over a path that is left; the saturation of
 * tanh ends that after some time, taken as sixteen steps for gradients and four for states: sqrt(min(T, 16)) and sqrt(min(T, 4)) times
 * these bounds. Measured (rates 0.3 and 0.5, 9 and 40 steps, 3 to 17 units, 100 seeds each in bf16): without it 1.9 and 2.6 of the bound,
 * with it two of 300 beyond (1.3), in f32 one of 250 (1.2).
 *
 * Few numbers. rms(reference) stands for the size of the terms that were summed. One sum of random signs is k times smaller
 * than usual with probability 1/k; over n numbers this averages out as 1/n. The bound grows by 1 + 32/n. Measured for single
 * numbers over 300 seeds (lstm:b1_t3_i1_h1_p1_train, f32 reference): median 1e-7, 90% below 4e-7, largest 5e-5: the tail of
 * such cancellation, which one seed in some hundreds carries beyond this bound as well.
 * n are the numbers that decide the rms: 3 (sum x^2)^2 / sum x^4, which is n where they are normally distributed, and few where a few
 * are far larger than the rest. Recurrent dropout does that to a small RNN's d h0: a path through nine steps that none of them dropped has
 * been multiplied by 1 / 0.7 nine times (rnn:b17_t9_i1_h3_bf16_train+rdrop=0.3: 2 to 10 of its 51 numbers; with n = 51 one seed in thirty failed by up to 3 times).
 *
 * What rounding makes of a problem. A bound knows no dynamics that part from each other, and no cell that lies beside a kink. Where it does not hold, the reference is
 * moved by rounding and what that makes of its results is allowed as well (parity.c): of 3260 problems drawn for a GPU (up to 2300 units, 300 rows, 400 steps) six failed otherwise, by all
 * kernels alike, of 750 drawn a day for a CPU one in some thousand.
 *
 * Rows of another library. Where a row states what its activations err by in f32 (sli_kernel.f32_error), outputs may err by
 * that much more, gradients by four times as much. cuDNN's relu in 16 bits rounds its own intermediate values: a unit near the
 * kink falls on its other side, and with it a whole term of a gradient (0.11 seen); a quarter is allowed.
 *
 * Folded weights. A row that multiplies weights with each other beforehand (sli_kernel.folds) rounds their product where the reference
 * rounds both and what lies between them: 2u again. But near a kink (a clip, relu, hard_sigmoid) its numbers may fall on the
 * other side. Off by 2u of numbers that spread about as far as the kink is, a share of 4u of them does, each of which adds a
 * term of a gradient or loses it: sqrt(4u) of their sum. (Seen in bf16: 0.016 with clip=0.5, 0.034 with relu and a clip, where 0.14 is allowed; by
 * cuda:step, which rounds as the reference does, 0.003.) */
#include "proof/tolerance.h"

#include <math.h>
#include <string.h>

#include "core/plan.h"

/* Rounding unit of the operands, beyond f32. */
static double operand_unit(sl_dtype dtype) {
    switch (dtype) {
    case SL_BF16:
    case SL_I8:
        return ldexp(1, -8);
    case SL_F16:
    case SL_TF32:
        return ldexp(1, -11);
    case SL_F32X3:
        return ldexp(1, -22);
    default:
        return 0;
    }
}

bool sli_has_kink(const sli_problem *p) {
    const sl_activation kinks[] = {SL_ACT_RELU, SL_ACT_HARD_SIGMOID, SL_ACT_HARD_SIGMOID_K2};
    bool kink = p->cell_clip > 0;
    for (size_t i = 0; i < sizeof kinks / sizeof *kinks; i++)
        kink |= p->act == kinks[i] || p->recurrent_act == kinks[i];
    return kink;
}

/* Steps whose errors add up in full, `most` at most. */
static double steps_that_add_up(const sl_plan *plan, const sli_problem *p, double most) {
    const bool keeps = p->op == SLI_OP_RNN && p->train && p->recurrent_dropout > 0;
    return keeps ? fmin(plan->options.steps, most) : 1;
}

sli_tolerance sli_tolerance_of(const sl_plan *plan, sl_dtype dtype) {
    double approximate = 0, kink = 0, states = 1, slopes = 1;
    double layers = 1, forward = 1, backward = 1, u = operand_unit(dtype), eps = ldexp(1, dtype == SL_F64 ? -53 : -24);
    for (int k = 0; k < plan->step_count; k++) {
        const sli_problem *p = &plan->steps[k].problem;
        const sli_kernel *row = plan->steps[k].kernel;
        if (dtype == SL_F32) approximate += row->f32_error;
        states = fmax(states, steps_that_add_up(plan, p, 4));
        slopes = fmax(slopes, steps_that_add_up(plan, p, 16));
        if (u > 0 && p->act == SL_ACT_RELU && strncmp(row->name, "cudnn:", 6) == 0) kink = 0.25;
        if (row->folds && row->folds(p) && sli_has_kink(p)) kink = fmax(kink, sqrt(4 * u));
        bool products = sli_op_is_recurrent(p->op) || p->op == SLI_OP_DENSE;
        double gates = sli_op_is_recurrent(p->op) ? sli_op_gates(p->op) : 1;
        if (products) layers += sli_problem_parts(p) - (k == 0); /* a wide step: its parts */
        if (p->layers > 1) {
            sli_problem above = sli_problem_part(p, 1, 0);
            forward = fmax(forward, (double)above.inputs + above.units);
            backward = fmax(backward, above.inputs + gates * above.units);
        }
        forward = fmax(forward, (double)p->inputs + p->units);
        backward = fmax(backward, p->inputs + gates * p->units);
    }
    double rows = (double)plan->options.batch * plan->options.steps;
    return (sli_tolerance){.output = layers * (2 * u + 4 * eps * sqrt(forward)) * sqrt(states) + approximate,
                           .gradient = 2 * layers * (2 * u + 4 * eps * sqrt(backward)) * sqrt(slopes) +
                                       eps * sqrt(rows) + 4 * approximate + kink};
}

double sli_tolerance_of_few(double numbers) {
    return numbers > 0 ? 1 + 32 / numbers : 1;
}

double sli_numbers_that_count(const double *values, size_t count) {
    const double normal = 3; /* sum of x^4 over the squared sum of x^2, times n, of n normal numbers */
    double largest = 0, squares = 0, fourths = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(values[i]));
    for (size_t i = 0; i < count && largest > 0;
         i++) { /* of the largest: fourth powers of small gradients are denormal */
        const double square = values[i] / largest * (values[i] / largest);
        squares += square;
        fourths += square * square;
    }
    const double numbers = fourths > 0 ? normal * squares * squares / fourths : (double)count;
    return fmin(numbers, (double)count);
}
