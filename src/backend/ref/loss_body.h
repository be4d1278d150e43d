/* Losses. Included per type, see real_f32.h. Sums are doubles and are added to the metrics element by element in the order of
 * time. The gradients are loss_scale times d loss_sum / d z; they may overwrite the logits they are computed from. */

/* The largest logit of a row, and sum over j of exp(z_j - largest). */
static REAL NAME(softmax_parts)(const REAL *z, int V, double *sum, int *best) {
    REAL largest = z[0];
    *best = 0;
    for (int j = 1; j < V; j++)
        if (z[j] > largest) largest = z[j], *best = j;
    *sum = 0;
    for (int j = 0; j < V; j++) *sum += exp((double)z[j] - (double)largest);
    return largest;
}

/* loss = log sum_j exp(z_j) - z_label */
static void NAME(xent_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const REAL *z = call->in[SLI_LOSS_Z];
    const int32_t *labels = call->in[SLI_LOSS_TARGET];
    if (call->recompute || !labels) return;
    for (int t = 0; t < sli_ref_steps(p); t++)
        for (int b = 0; b < p->batch; b++) {
            size_t row = (size_t)t * p->batch + b;
            int best, label = labels[row];
            double sum;
            if (label < 0 || !sli_ref_valid(call, t, b)) continue;
            double largest = (double)NAME(softmax_parts)(z + row * p->units, p->units, &sum, &best);
            call->metrics->loss_sum += log(sum) + largest - (double)z[row * p->units + label];
            call->metrics->count += 1;
            call->metrics->correct += best == label;
        }
}

/* dz = loss_scale (softmax(z) - onehot(label)); 0 where the label is ignored. */
static void NAME(xent_backward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int32_t *labels = call->in[SLI_LOSS_TARGET];
    REAL *dz = call->d_in[SLI_LOSS_Z];
    if (!dz) return;
    for (int t = 0; t < sli_ref_steps(p); t++)
        for (int b = 0; b < p->batch; b++) {
            size_t row = (size_t)t * p->batch + b, first = row * p->units;
            const REAL *z = (const REAL *)call->in[SLI_LOSS_Z] + first;
            int best, label = labels ? labels[row] : -1;
            double sum = 1, largest = 0;
            bool counts = label >= 0 && sli_ref_valid(call, t, b);
            if (counts) largest = (double)NAME(softmax_parts)(z, p->units, &sum, &best);
            for (int j = 0; j < p->units; j++) {
                double value = counts ? exp((double)z[j] - largest) / sum - (j == label) : 0;
                value *= counts ? call->scalars->loss_scale : 0;
                dz[first + j] = sli_ref_accumulates(call, SLI_LOSS_Z) ? dz[first + j] + (REAL)value : (REAL)value;
            }
        }
}

/* Binary cross-entropy from logits, max(z, 0) - z y + log(1 + exp(-|z|)), or squared error (z - y)^2. */
static void NAME(elementwise_loss)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const REAL *zs = call->in[SLI_LOSS_Z], *ys = call->in[SLI_LOSS_TARGET];
    if (call->recompute || !ys) return;
    for (int t = 0; t < sli_ref_steps(p); t++)
        for (int b = 0; b < p->batch; b++) {
            if (!sli_ref_valid(call, t, b)) continue;
            size_t first = ((size_t)t * p->batch + b) * p->units;
            for (int j = 0; j < p->units; j++) {
                double z = (double)zs[first + j], y = (double)ys[first + j];
                if (p->op == SLI_OP_MSE) {
                    call->metrics->loss_sum += (z - y) * (z - y);
                } else {
                    call->metrics->loss_sum += (z > 0 ? z : 0) - z * y + log1p(exp(-fabs(z)));
                    call->metrics->correct += (z > 0) == (y > 0.5);
                }
                call->metrics->count += 1;
            }
        }
}

/* dz = loss_scale (sigmoid(z) - y) or loss_scale 2 (z - y); 0 at masked steps. */
static void NAME(elementwise_loss_back)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const REAL *zs = call->in[SLI_LOSS_Z], *ys = call->in[SLI_LOSS_TARGET];
    REAL *dz = call->d_in[SLI_LOSS_Z];
    if (!dz) return;
    for (int t = 0; t < sli_ref_steps(p); t++)
        for (int b = 0; b < p->batch; b++) {
            size_t first = ((size_t)t * p->batch + b) * p->units;
            bool counts = ys && sli_ref_valid(call, t, b);
            for (int j = 0; j < p->units; j++) {
                double value = 0;
                if (counts) {
                    double z = (double)zs[first + j], y = (double)ys[first + j];
                    value = p->op == SLI_OP_MSE ? 2 * (z - y) : 1 / (1 + exp(-z)) - y;
                    value *= call->scalars->loss_scale;
                }
                dz[first + j] = sli_ref_accumulates(call, SLI_LOSS_Z) ? dz[first + j] + (REAL)value : (REAL)value;
            }
        }
}
