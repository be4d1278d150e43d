/* Dense and embedding. Included per type, see real_f32.h. Parameter gradients are added straight into d_param from the last
 * step to the first, rows ascending, so that cutting time into segments does not change one addition. */

/* The unit is the outer loop everywhere: its row of W stays in the cache while all (step, row) pairs pass. */

/* y[H] = act(W x + b) for every (step, row), W and x in 8 bits; inference. */
static void NAME(dense_forward_i8)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const size_t I = (size_t)p->inputs, H = (size_t)p->units;
    for (size_t row = 0; row < sli_ref_rows(p); row++) {
        REAL *y = (REAL *)call->out[SLI_DENSE_Y] + row * H;
        NAME(product_i8)
        (call->param[SLI_DENSE_KERNEL], call->param[SLI_DENSE_BIAS], (const REAL *)call->in[SLI_DENSE_X] + row * I,
         p->units, p->inputs, y);
        for (size_t j = 0; j < H; j++) y[j] = NAME(activate)(p->act, y[j]);
    }
}

/* The same, not rounded or rounded number by number; the activated values are saved where the slope needs them. */
static void NAME(dense_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int I = p->inputs, H = p->units;
    const REAL *kernel = call->param[SLI_DENSE_KERNEL], *bias = call->param[SLI_DENSE_BIAS];
    const REAL *x = call->in[SLI_DENSE_X];
    REAL *y = call->out[SLI_DENSE_Y], *saved = dense_saves(p) && call->training ? call->saved : NULL;
    if (call->operands == SL_I8) {
        NAME(dense_forward_i8)(call);
        return;
    }
    for (int j = 0; j < H; j++)
        for (size_t row = 0; row < sli_ref_rows(p); row++) {
            REAL sum = bias ? bias[j] : 0;
            for (int k = 0; k < I; k++) sum += kernel[(size_t)j * I + k] * NAME(operand)(call, x[row * I + k]);
            y[row * H + j] = NAME(activate)(p->act, sum);
            if (saved) saved[row * H + j] = y[row * H + j];
        }
}

/* dz = dy act'(z) of one (step, row) and unit. */
static REAL NAME(dense_dz)(const sli_call *call, size_t at) {
    REAL dz = ((const REAL *)call->d_out[SLI_DENSE_Y])[at];
    return dense_saves(&call->problem) ? dz * NAME(slope)(call->problem.act, ((const REAL *)call->saved)[at]) : dz;
}

/* dW += dz x^T, db += dz, from the last step to the first. */
static void NAME(dense_param_gradients)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int I = p->inputs, H = p->units;
    REAL *d_kernel = call->d_param[SLI_DENSE_KERNEL], *d_bias = call->d_param[SLI_DENSE_BIAS];
    for (int j = 0; j < H; j++)
        for (int t = sli_ref_steps(p) - 1; t >= 0; t--)
            for (int b = 0; b < p->batch; b++) {
                size_t row = (size_t)t * p->batch + b;
                const REAL *x = (const REAL *)call->in[SLI_DENSE_X] + row * I;
                const REAL dz = NAME(dense_dz)(call, row * H + j);
                if (d_bias) d_bias[j] += dz;
                for (int k = 0; d_kernel && k < I; k++) d_kernel[(size_t)j * I + k] += dz * x[k];
            }
}

/* dX = or += W^T dz. */
static void NAME(dense_backward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int I = p->inputs, H = p->units;
    const size_t rows = sli_ref_rows(p);
    const REAL *kernel = call->param[SLI_DENSE_KERNEL];
    REAL *dx = call->d_in[SLI_DENSE_X];
    if (dx && !sli_ref_accumulates(call, SLI_DENSE_X)) memset(dx, 0, rows * I * sizeof *dx);
    if (!call->d_out[SLI_DENSE_Y]) return;
    NAME(dense_param_gradients)(call);
    for (int j = 0; dx && j < H; j++)
        for (size_t row = 0; row < rows; row++) {
            const REAL dz = NAME(dense_dz)(call, row * H + j);
            for (int k = 0; k < I; k++) dx[row * I + k] += kernel[(size_t)j * I + k] * dz;
        }
}

/* y[E] = table[token]. */
static void NAME(embed_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int32_t *tokens = call->in[SLI_EMBED_TOKENS];
    const REAL *table = call->param[SLI_EMBED_TABLE];
    REAL *y = call->out[SLI_EMBED_Y];
    for (size_t row = 0; row < sli_ref_rows(p); row++) {
        const bool known = (uint32_t)tokens[row] < (uint32_t)p->inputs; /* else NaN: another library's memory */
        for (int j = 0; j < p->units; j++)
            y[row * p->units + j] = known ? table[(size_t)tokens[row] * p->units + j] : (REAL)NAN;
    }
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
            if ((uint32_t)tokens[row] >= (uint32_t)p->inputs) continue;
            for (int j = 0; j < p->units; j++) d_table[(size_t)tokens[row] * p->units + j] += dy[row * p->units + j];
        }
}
