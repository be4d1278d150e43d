/* Gradients against central differences.
 *
 * The objective is the loss, or sum(d_output * output) of a plan without one, computed in training mode: dropout and zoneout
 * draw the same masks in every call, as the generator is keyed by seed, step and element alone. Per tensor
 *     ||g - fd|| / ||fd|| <= 1e-6,   fd = (L(x + s) - L(x - s)) / 2s,   s = 1e-5
 * or below what rounding in L leaves of fd. Where a function has kinks (relu, hard sigmoid, clipped cells), a step may
 * cross one. No input keeps thousands of pre-activations away from every kink at once, so each value is also measured with a
 * smaller step: if both agree no kink was crossed, else the step is made smaller still, and a value at which no two steps
 * agree lies on a kink, has no derivative and is left out. At most a tenth of a tensor's values may be. */
#include "proof/differences.h"

#include <float.h>
#include <math.h>

#include "core/plan.h"
#include "core/rng.h"
#include "proof/tolerance.h"

enum { MOST_VALUES = 48, STREAM_SAMPLE = 6 << 16, STREAM_LINE = 7 << 16 };

typedef struct prover {
    sli_subject *subject;
    sli_report *report;
    sli_trial trial;
    sli_results analytic, plus, minus;
    bool kinks;
    size_t most;  /* values perturbed per tensor */
    double noise; /* of the objective, from rounding */
} prover;

/* --------------------------------------------------------------------------------------------------------- objective -- */

/* Sum of d_output * (plus - minus), or the difference of the losses: no cancellation of large sums. */
static double objective_difference(const prover *p) {
    double sum = 0;
    for (int k = 0; k < p->plus.count; k++) {
        const sli_part *plus = &p->plus.parts[k], *minus = &p->minus.parts[k];
        if (plus->kind == SLI_PART_LOSS) return plus->values[0] - minus->values[0];
        const double *d = p->subject->outputs[plus->source].values;
        for (size_t i = 0; i < plus->count; i++) sum += d[i] * (plus->values[i] - minus->values[i]);
    }
    return sum;
}

/* Rounding of the objective: a few units in the last place of each of its terms, independent of one another; a loss is one number
 * to which n were added one after the other, each time with a rounding of its size so far. */
static double objective_noise(const prover *p) {
    double squares = 0, loss = 0, added = 0;
    for (int k = 0; k < p->analytic.count; k++) {
        const sli_part *part = &p->analytic.parts[k];
        if (part->kind == SLI_PART_LOSS) loss = fabs(part->values[0]), added = part->values[1];
        if (part->kind != SLI_PART_OUTPUT) continue;
        const double *d = p->subject->outputs[part->source].values;
        for (size_t i = 0; i < part->count; i++) squares += d[i] * part->values[i] * d[i] * part->values[i];
    }
    return DBL_EPSILON * ((8 + sqrt(added)) * loss + 8 * sqrt(squares));
}

/* ------------------------------------------------------------------------------------------------------------ slopes -- */

typedef struct tensor {
    sli_subject_array *array;
    int param; /* index, or -1: an input */
    const sli_part *gradient;
} tensor;

static sl_status measure(prover *p, const tensor *t, sli_results *results) {
    sli_trial_call call = {.training = true};
    if (t->param >= 0) SLI_TRY(sli_trial_set_param(&p->trial, t->param));
    return sli_trial_run(&p->trial, &call, results);
}

/* *slope = (L(values[at] + step) - L(values[at] - step)) / 2 step. */
static sl_status slope_at(prover *p, const tensor *t, size_t at, double step, double *slope) {
    double *value = &t->array->values[at], kept = *value, above = kept + step, below = kept - step;
    *value = above;
    sl_status status = measure(p, t, &p->plus);
    *value = below;
    if (status == SL_OK) status = measure(p, t, &p->minus);
    *value = kept;
    *slope = objective_difference(p) / (above - below);
    return status;
}

/* As slope_at without crossing a kink; *smooth is false if there is no way around one. */
static sl_status smooth_slope(prover *p, const tensor *t, size_t at, double scale, double *slope, bool *smooth) {
    double step = SLI_DIFFERENCE_STEP, wide;
    *smooth = true;
    SLI_TRY(slope_at(p, t, at, step, slope));
    if (!p->kinks) return SL_OK;
    for (int attempt = 0; attempt < 3; attempt++) {
        wide = *slope;
        step /= 8;
        SLI_TRY(slope_at(p, t, at, step, slope));
        if (fabs(wide - *slope) <= 1e-7 * scale + 4 * p->noise / step) return SL_OK;
    }
    *smooth = false;
    return SL_OK;
}

static double norm(const double *values, size_t count) {
    double squares = 0;
    for (size_t k = 0; k < count; k++) squares += values[k] * values[k];
    return sqrt(squares);
}

static uint32_t word(const prover *p, int stream, size_t element) {
    sli_rng rng = {p->subject->seed, 0, 0, (uint32_t)stream};
    return sli_rng_word(&rng, element);
}

/* +1 or -1: of value k, on the line. */
static double side_of(const prover *p, size_t k) {
    return word(p, STREAM_LINE, k) & 1 ? 1 : -1;
}

/* ----------------------------------------------------------------------------------------------------------- findings -- */

typedef struct difference {
    size_t tries, used; /* values; those that lie on no kink */
    double error, tolerance;
} difference;

static sl_status compare_values(prover *p, const tensor *t, difference *d) {
    const double *g = t->gradient->values;
    size_t count = t->array->count, tries = count < p->most ? count : p->most, used = 0;
    double wrong = 0, size = 0, scale = norm(g, count) / sqrt((double)count);
    for (size_t k = 0; k < tries; k++) {
        size_t at = tries == count ? k : word(p, STREAM_SAMPLE, k) % count;
        double slope;
        bool smooth;
        SLI_TRY(smooth_slope(p, t, at, fmax(scale, fabs(g[at])), &slope, &smooth));
        if (!smooth) continue;
        used++;
        wrong += (slope - g[at]) * (slope - g[at]);
        size += slope * slope;
    }
    double smallest_step = p->kinks ? SLI_DIFFERENCE_STEP / 8 : SLI_DIFFERENCE_STEP;
    double noise = p->noise / smallest_step * sqrt((double)(used + 1));
    double of = size > 0 ? sqrt(size)
                         : noise; /* below many layers gradients are less than rounding leaves: all differences 0 */
    *d = (difference){tries, used, wrong == 0 ? 0 : sqrt(wrong) / of,
                      fmax(SLI_DIFFERENCE_TOLERANCE, of > 0 ? noise / of : 0)};
    return SL_OK;
}

/* A function that bends within a step is measured by smaller ones, as one with kinks is. */
static sl_status check_values(prover *p, const tensor *t) {
    const bool kinks = p->kinks;
    difference d;
    SLI_TRY(compare_values(p, t, &d));
    if (!kinks && !(d.error <= d.tolerance)) {
        p->kinks = true;
        const sl_status status = compare_values(p, t, &d);
        p->kinks = false;
        SLI_TRY(status);
    }
    if (d.tries - d.used > d.tries / 10 + 1)
        sli_report_add(p->report, "ref", (double)(d.tries - d.used), 0, "d %s: values on kinks", t->array->name);
    sli_report_add(p->report, "ref", d.error, d.tolerance, "d %s: %zu of %zu differences", t->array->name, d.used,
                   t->array->count);
    return SL_OK;
}

/* Derivative along a line with components +-1/sqrt(n): sees every value of the tensor in two calls. */
static sl_status line_slope(prover *p, const tensor *t, double length, double *slope) {
    const size_t count = t->array->count;
    const double step = length / sqrt((double)count);
    sl_status status = SL_OK;
    for (int side = 0; side < 2 && status == SL_OK; side++) {
        /* Moves from 0 to +step, then from +step to -step. */
        for (size_t k = 0; k < count; k++) t->array->values[k] += (side ? -2 : 1) * side_of(p, k) * step;
        status = measure(p, t, side ? &p->minus : &p->plus);
    }
    for (size_t k = 0; k < count; k++) /* drawn values are exact in float */
        t->array->values[k] = (double)(float)(t->array->values[k] + side_of(p, k) * step);
    *slope = objective_difference(p) / (2 * length);
    return status;
}

/* The step grows with n^(1/4): such a line is smoother than a single value, and rounding would hide the slope. Where it bends all the same, smaller ones. */
static sl_status check_line(prover *p, const tensor *t) {
    const double *g = t->gradient->values;
    const size_t count = t->array->count;
    double length = SLI_DIFFERENCE_STEP * pow((double)count, 0.25), expected = 0, error = 0, tolerance = 0,
           scale = norm(g, count) / sqrt((double)count);
    for (size_t k = 0; k < count; k++) expected += g[k] * side_of(p, k) / sqrt((double)count);
    for (int attempt = 0; attempt < 4; attempt++, length /= 8) {
        double slope;
        SLI_TRY(line_slope(p, t, length, &slope));
        error = slope == expected ? 0 : fabs(slope - expected) / scale;
        tolerance = fmax(SLI_DIFFERENCE_TOLERANCE, scale > 0 ? p->noise / length / scale : 0);
        if (error <= tolerance) break;
    }
    sli_report_add(p->report, "ref", error, tolerance, "d %s: along a line", t->array->name);
    return SL_OK;
}

static sl_status check_tensor(prover *p, const sli_part *part) {
    sli_subject *s = p->subject;
    bool param = part->kind == SLI_PART_GRADIENT;
    tensor t = {param ? &s->params[part->source] : &s->inputs[part->source], param ? part->source : -1, part};
    sl_status status = check_values(p, &t);
    if (status == SL_OK && t.array->count > p->most && !p->kinks) status = check_line(p, &t);
    if (param && status == SL_OK) status = sli_trial_set_param(&p->trial, t.param);
    return status;
}

/* --------------------------------------------------------------------------------------------------------------- all -- */

/* Of softsign the slope's own slope jumps, which a difference sees as well. */
static bool has_kinks(const sl_plan *plan) {
    for (int k = 0; k < plan->step_count; k++) {
        const sli_problem *q = &plan->steps[k].problem;
        if (sli_has_kink(q) || q->act == SL_ACT_SOFTSIGN || q->recurrent_act == SL_ACT_SOFTSIGN) return true;
    }
    return false;
}

/* Values a tensor, by what one call costs: its products, about 100 FLOPs for each activation, and the call itself. */
static size_t affordable(const prover *p, double budget) {
    const sl_plan *plan = p->trial.plan;
    double call = 3e4 + sl_plan_flops(plan), tensors = 0;
    for (int k = 0; k < plan->step_count; k++) {
        const sli_problem *q = &plan->steps[k].problem;
        call += 100.0 * q->batch * (q->steps > 0 ? q->steps : 1) * q->units;
    }
    for (int k = 0; k < p->analytic.count; k++)
        tensors +=
            p->analytic.parts[k].kind == SLI_PART_INPUT_GRADIENT || p->analytic.parts[k].kind == SLI_PART_GRADIENT;
    double values = budget / (call * 2 * (p->kinks ? 2 : 1) * fmax(tensors, 1));
    return values > MOST_VALUES ? MOST_VALUES : (size_t)values;
}

static sl_status check_all(prover *p, double budget) {
    sl_plan_options options = p->subject->options;
    options.dtype = SL_F64;
    options.narrow_parameters = options.narrow_tensors = 0;
    options.device = "cpu";
    options.require = NULL;
    options.memory_limit = 0;
    sli_trial_call call = {.training = true};
    SLI_TRY(sli_trial_open(p->subject, &options, &p->trial));
    SLI_TRY(sli_results_new(p->subject, true, &p->analytic));
    SLI_TRY(sli_results_new(p->subject, false, &p->plus));
    SLI_TRY(sli_results_new(p->subject, false, &p->minus));
    SLI_TRY(sli_trial_run(&p->trial, &call, &p->analytic));
    p->kinks = has_kinks(p->trial.plan);
    p->noise = objective_noise(p);
    p->most = affordable(p, budget);
    if (p->most == 0) {
        sli_report_note(p->report, "ref",
                        "central differences left out: one call takes %.3g GFLOP; check a smaller problem of the kind",
                        sl_plan_flops(p->trial.plan) * 1e-9);
        return SL_OK;
    }
    for (int k = 0; k < p->analytic.count; k++) {
        const sli_part *part = &p->analytic.parts[k];
        bool gradient = part->kind == SLI_PART_INPUT_GRADIENT || part->kind == SLI_PART_GRADIENT;
        if (gradient) SLI_TRY(check_tensor(p, part));
    }
    return SL_OK;
}

sl_status sli_check_differences(sli_subject *subject, double budget, sli_report *report) {
    prover p = {.subject = subject, .report = report};
    sl_status status = check_all(&p, budget);
    sli_trial_close(&p.trial);
    return status;
}
