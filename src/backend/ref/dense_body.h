/* Dense and embedding. Included per type, see real_f32.h. Parameter gradients are added straight into d_param from the last
 * step to the first, rows ascending, so that cutting time into segments does not change one addition. */

/* y[H] = act(W x + b) for every (step, row); the activated values are saved where the slope needs them. */
static void NAME(dense_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int I = p->inputs, H = p->units;
    const REAL *kernel = call->param[SLI_DENSE_KERNEL], *bias = call->param[SLI_DENSE_BIAS];
    for (size_t row = 0; row < sli_ref_rows(p); row++) {
        const REAL *x = (const REAL *)call->in[SLI_DENSE_X] + row * I;
        REAL *y = (REAL *)call->out[SLI_DENSE_Y] + row * H;
        for (int j = 0; j < H; j++) {
            REAL sum = bias ? bias[j] : 0;
            for (int k = 0; k < I; k++) sum += kernel[(size_t)j * I + k] * x[k];
            y[j] = NAME(activate)(p->act, sum);
            if (dense_saves(p) && call->training && call->saved) ((REAL *)call->saved)[row * H + j] = y[j];
        }
    }
}

/* dz = dy act'(z); dW += dz x^T, db += dz, dX = or += W^T dz. */
static void NAME(dense_backward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int I = p->inputs, H = p->units;
    const REAL *kernel = call->param[SLI_DENSE_KERNEL], *dy = call->d_out[SLI_DENSE_Y];
    REAL *dx = call->d_in[SLI_DENSE_X], *d_kernel = call->d_param[SLI_DENSE_KERNEL];
    REAL *d_bias = call->d_param[SLI_DENSE_BIAS], *dz = call->scratch;
    for (int t = sli_ref_steps(p) - 1; t >= 0; t--)
        for (int b = 0; b < p->batch; b++) {
            size_t row = (size_t)t * p->batch + b;
            const REAL *x = (const REAL *)call->in[SLI_DENSE_X] + row * I;
            for (int j = 0; j < H; j++) {
                dz[j] = dy ? dy[row * H + j] : 0;
                if (dense_saves(p)) dz[j] *= NAME(slope)(p->act, ((const REAL *)call->saved)[row * H + j]);
                if (d_bias && dy) d_bias[j] += dz[j];
                for (int k = 0; d_kernel && dy && k < I; k++) d_kernel[(size_t)j * I + k] += dz[j] * x[k];
            }
            for (int k = 0; dx && k < I; k++) {
                REAL sum = 0;
                for (int j = 0; j < H; j++) sum += kernel[(size_t)j * I + k] * dz[j];
                dx[row * I + k] = sli_ref_accumulates(call, SLI_DENSE_X) ? dx[row * I + k] + sum : sum;
            }
        }
}

/* y[E] = table[token]. */
static void NAME(embed_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int32_t *tokens = call->in[SLI_EMBED_TOKENS];
    const REAL *table = call->param[SLI_EMBED_TABLE];
    REAL *y = call->out[SLI_EMBED_Y];
    for (size_t row = 0; row < sli_ref_rows(p); row++)
        for (int j = 0; j < p->units; j++) y[row * p->units + j] = table[(size_t)tokens[row] * p->units + j];
}

/* d_table[token] += dy. */
static void NAME(embed_backward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int32_t *tokens = call->in[SLI_EMBED_TOKENS];
    const REAL *dy = call->d_out[SLI_EMBED_Y];
    REAL *d_table = call->d_param[SLI_EMBED_TABLE];
    if (!dy || !d_table) return;
    for (int t = sli_ref_steps(p) - 1; t >= 0; t--)
        for (int b = 0; b < p->batch; b++) {
            size_t row = (size_t)t * p->batch + b;
            for (int j = 0; j < p->units; j++) d_table[(size_t)tokens[row] * p->units + j] += dy[row * p->units + j];
        }
}
