/* Gradient norm, clipping and optimizers. Included per type, see real_f32.h. Element arithmetic is in the type, scalars are
 * computed in double and rounded once, as PyTorch does. */

/* *squares = sum of g^2 in double, in chunks of NORM_CHUNK elements; then g is clipped by value in place where asked. */
static void NAME(norm_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    REAL *g = call->out[SLI_NORM_GRAD], limit = (REAL)p->clip.value;
    double total = 0;
    for (int64_t first = 0; first < p->elements; first += NORM_CHUNK) {
        int64_t end = first + NORM_CHUNK < p->elements ? first + NORM_CHUNK : p->elements;
        double sum = 0;
        for (int64_t k = first; k < end; k++) {
            sum += (double)g[k] * (double)g[k];
            if (p->clip.kind == SL_CLIP_VALUE) g[k] = g[k] > limit ? limit : g[k] < -limit ? -limit : g[k];
        }
        total += sum;
    }
    if (!call->out[SLI_NORM_SQUARES]) return;
    *(double *)call->out[SLI_NORM_SQUARES] = total;
    sli_call_count_skipped(call);
}

/* SGD: g += wd p; m = momentum m + g; p -= lr m, or lr (g + momentum m) with Nesterov. */
static void NAME(sgd)(const sl_optimizer *o, double lr, REAL g, REAL *param, REAL *m) {
    REAL step = g + (REAL)o->weight_decay * *param;
    if (o->momentum != 0) {
        *m = (REAL)o->momentum * *m + step;
        step = o->nesterov ? step + (REAL)o->momentum * *m : *m;
    }
    *param -= (REAL)lr * step;
}

/* Adam: g += wd p; AdamW: p *= 1 - lr wd. m += (1-beta1)(g - m); v = beta2 v + (1-beta2) g^2;
 * p -= lr/(1-beta1^k) m / (sqrt(v)/sqrt(1-beta2^k) + epsilon) */
static void NAME(adam)(const sl_optimizer *o, double lr, double k, REAL g, REAL *param, REAL *m, REAL *v) {
    if (o->kind == SL_ADAMW)
        *param *= (REAL)(1 - lr * o->weight_decay);
    else
        g += (REAL)o->weight_decay * *param;
    *m += (REAL)(1 - o->beta1) * (g - *m);
    *v = (REAL)o->beta2 * *v + (REAL)(1 - o->beta2) * g * g;
    REAL denominator = M(sqrt)(*v) / (REAL)sqrt(1 - pow(o->beta2, k)) + (REAL)o->epsilon;
    *param -= (REAL)(lr / (1 - pow(o->beta1, k))) * *m / denominator;
}

/* RMSprop: g += wd p; v = rho v + (1-rho) g^2; p -= lr g / (sqrt(v) + epsilon). */
static void NAME(rmsprop)(const sl_optimizer *o, double lr, REAL g, REAL *param, REAL *v) {
    g += (REAL)o->weight_decay * *param;
    *v = (REAL)o->rho * *v + (REAL)(1 - o->rho) * g * g;
    *param -= (REAL)lr * g / (M(sqrt)(*v) + (REAL)o->epsilon);
}

/* Scales the gradient by the norm clip, steps, zeroes the gradient where it is not kept. Gradients that are not finite leave the parameters as they
 * are; the squares of all are there before any update. */
static void NAME(optim_forward)(const sli_call *call) {
    const sl_optimizer o = with_defaults(&call->problem.optimizer);
    const double lr = call->scalars->learning_rate, step = sli_call_optimizer_step(call);
    REAL *param = call->out[SLI_OPTIM_PARAM], *grad = call->out[SLI_OPTIM_GRAD];
    REAL *slot0 = call->out[SLI_OPTIM_SLOT0], *slot1 = call->out[SLI_OPTIM_SLOT1];
    const REAL factor = (REAL)clip_factor(call);
    const bool skip = call->metrics && !isfinite(call->metrics->squares);
    for (int64_t k = 0; k < call->problem.elements; k++) {
        REAL g = grad[k] * factor;
        if (!call->keep_gradient) grad[k] = 0;
        if (skip) continue;
        switch (o.kind) {
        case SL_SGD:
            NAME(sgd)(&o, lr, g, param + k, slot0 ? slot0 + k : NULL);
            break;
        case SL_ADAM:
        case SL_ADAMW:
            NAME(adam)(&o, lr, step, g, param + k, slot0 + k, slot1 + k);
            break;
        case SL_RMSPROP:
            NAME(rmsprop)(&o, lr, g, param + k, slot0 + k);
            break;
        }
    }
}
