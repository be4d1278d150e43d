/* Gradient norm and optimizers: slices of the norm, the numbers of an update and its formulas for one element, and the rule
 * of the loss scale. Plain C, compiled into both sides and, as host code, by the tests. */
#ifndef SLI_CUDA_UPDATES_LAYOUT_H
#define SLI_CUDA_UPDATES_LAYOUT_H

#include <math.h>
#include "backend/cuda/cuda.h"

/* Scratch of the norm: double [slices], each the sum of squares of so many elements in a fixed order. */
enum { SLI_NORM_SLICE = 4096 };
static inline size_t sli_norm_slices(int64_t elements) {
    return (size_t)((elements + SLI_NORM_SLICE - 1) / SLI_NORM_SLICE);
}

/* -------------------------------------------------------------------------------------------------- loss scale -- */
#define SLI_SCALE_MOST 0x1p40
#define SLI_SCALE_LEAST 0x1p-20
#define SLI_SCALE_PATIENCE 2000.0

/* After the squares of all gradients are known: gradients carry the scale so far; the next ones another where it is time. */
SLI_HOST_DEVICE void sli_scaling_advance(sli_scaling *s, double squares) {
    s->carried = s->scale;
    if (!isfinite(squares)) {
        s->skipped += 1;
        s->good = 0;
        s->scale = s->scale * 0.5 > SLI_SCALE_LEAST ? s->scale * 0.5 : SLI_SCALE_LEAST;
        return;
    }
    s->good += 1;
    if (s->good < SLI_SCALE_PATIENCE) return;
    s->good = 0;
    s->scale = s->scale * 2 < SLI_SCALE_MOST ? s->scale * 2 : SLI_SCALE_MOST;
}

/* ------------------------------------------------------------------------------------------------------ update -- */
typedef enum sli_update_rule {
    SLI_RULE_SGD,      /* p -= rate g */
    SLI_RULE_MOMENTUM, /* with Nesterov's too */
    SLI_RULE_ADAM,     /* Adam and AdamW */
    SLI_RULE_RMSPROP
} sli_update_rule;

static inline sli_update_rule sli_update_rule_of(const sl_optimizer *o) {
    if (o->kind == SL_SGD) return o->momentum != 0 ? SLI_RULE_MOMENTUM : SLI_RULE_SGD;
    return o->kind == SL_RMSPROP ? SLI_RULE_RMSPROP : SLI_RULE_ADAM;
}

/* Scalars are computed in double and rounded once. */
typedef struct sli_update_numbers {
    float factor;                             /* of the norm clip, over the loss scale */
    float rate, weight_decay /* L2, added */; /* Adam: rate = lr / (1 - beta1^k) */
    float decay;                              /* AdamW: 1 - lr wd, else 1 */
    float momentum, one_beta1, beta2 /* rho */, one_beta2, root2 /* sqrt(1 - beta2^k) */, epsilon;
    int nesterov, skip;
} sli_update_numbers;

SLI_HOST_DEVICE double sli_update_or(double value, double usual) {
    return value == 0 ? usual : value;
}

/* squares: what the norm clips compare with, of gradients without the loss scale; all_finite: of all parameters' gradients. */
SLI_HOST_DEVICE sli_update_numbers sli_update_numbers_of(const sl_optimizer *o, const sl_clip *clip, double lr,
                                                         double step, double squares, double loss_scale,
                                                         int all_finite) {
    sli_update_numbers u;
    const double beta1 = sli_update_or(o->beta1, 0.9), beta2 = sli_update_or(o->beta2, 0.999);
    const double rho = sli_update_or(o->rho, 0.9), norm = sqrt(squares);
    const int clips = clip->kind == SL_CLIP_NORM || clip->kind == SL_CLIP_GLOBAL_NORM;
    u.factor = (float)((clips && norm > clip->value ? clip->value / norm : 1) / loss_scale);
    u.rate = (float)lr;
    u.weight_decay = o->kind == SL_ADAMW ? 0.0f : (float)o->weight_decay;
    u.decay = o->kind == SL_ADAMW ? (float)(1 - lr * sli_update_or(o->weight_decay, 0.01)) : 1.0f;
    u.momentum = (float)o->momentum;
    u.one_beta1 = (float)(1 - beta1);
    u.beta2 = (float)(o->kind == SL_RMSPROP ? rho : beta2);
    u.one_beta2 = (float)(1 - (o->kind == SL_RMSPROP ? rho : beta2));
    u.root2 = 1.0f;
    u.epsilon = (float)sli_update_or(o->epsilon, 1e-8);
    u.nesterov = o->nesterov != 0;
    u.skip = !all_finite;
    if (o->kind != SL_ADAM && o->kind != SL_ADAMW) return u;
    u.rate = (float)(lr / (1 - pow(beta1, step)));
    u.root2 = (float)sqrt(1 - pow(beta2, step));
    return u;
}

/* One element: param, slots =; g is the gradient as it lies in memory. */
SLI_HOST_DEVICE void sli_update_element(sli_update_rule rule, const sli_update_numbers *u, float g, float *param,
                                        float *slot0, float *slot1) {
    const float p = *param, d = g * u->factor + u->weight_decay * p;
    switch (rule) {
    case SLI_RULE_SGD:
        *param = p - u->rate * d;
        break;
    case SLI_RULE_MOMENTUM: /* m = momentum m + g; p -= lr m, or lr (g + momentum m) */
        *slot0 = u->momentum * *slot0 + d;
        *param = p - u->rate * (u->nesterov ? d + u->momentum * *slot0 : *slot0);
        break;
    case SLI_RULE_ADAM: /* m += (1-beta1)(g - m); v = beta2 v + (1-beta2) g^2; p -= rate m / (sqrt(v) / root2 + epsilon) */
        *slot0 += u->one_beta1 * (d - *slot0);
        *slot1 = u->beta2 * *slot1 + u->one_beta2 * d * d;
        *param = p * u->decay - u->rate * *slot0 / (sqrtf(*slot1) / u->root2 + u->epsilon);
        break;
    case SLI_RULE_RMSPROP: /* v = rho v + (1-rho) g^2; p -= lr g / (sqrt(v) + epsilon) */
        *slot0 = u->beta2 * *slot0 + u->one_beta2 * d * d;
        *param = p - u->rate * d / (sqrtf(*slot0) + u->epsilon);
        break;
    }
}

#endif
