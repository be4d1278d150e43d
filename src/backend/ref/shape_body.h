/* One-hot, dropout, merge, flip. Included per type, see real_f32.h. */

/* d_in[index][at] = or += value. */
static inline void NAME(give_one)(const sli_call *call, int index, size_t at, REAL value) {
    REAL *to = call->d_in[index];
    if (to) to[at] = sli_ref_accumulates(call, index) ? to[at] + value : value;
}

/* y[V] = 1 at the token, 0 elsewhere. */
static void NAME(onehot_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const int32_t *tokens = call->in[SLI_UNARY_X];
    REAL *y = call->out[SLI_UNARY_Y];
    for (size_t row = 0; row < sli_ref_rows(p); row++) {
        const REAL elsewhere = (uint32_t)tokens[row] < (uint32_t)p->inputs ? 0 : (REAL)NAN;
        for (int j = 0; j < p->inputs; j++) y[row * p->inputs + j] = tokens[row] == j ? 1 : elsewhere;
    }
}

/* y = x times 0 or 1/(1-p) in training, else x. */
static void NAME(dropout_forward)(const sli_call *call) {
    const REAL *x = call->in[SLI_UNARY_X];
    REAL *y = call->out[SLI_UNARY_Y];
    size_t count = sli_ref_rows(&call->problem) * (size_t)call->problem.units;
    for (size_t k = 0; k < count; k++) y[k] = (REAL)dropout_factor(call, k) * x[k];
}

static void NAME(dropout_backward)(const sli_call *call) {
    const REAL *dy = call->d_out[SLI_UNARY_Y];
    size_t count = sli_ref_rows(&call->problem) * (size_t)call->problem.units;
    for (size_t k = 0; k < count; k++)
        NAME(give_one)(call, SLI_UNARY_X, k, dy ? (REAL)dropout_factor(call, k) * dy[k] : 0);
}

/* y = sum, product, mean of the parts, or their features side by side. A product saves its factors, [parts][t][b][H]. */
static void NAME(merge_forward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    size_t rows = sli_ref_rows(p), H = (size_t)p->units;
    REAL *y = call->out[SLI_MERGE_Y];
    if (p->merge == SL_MERGE_CONCAT) {
        size_t first = 0;
        for (int part = 0; part < p->parts; first += (size_t)part_width(p, part), part++)
            for (size_t row = 0, width = (size_t)part_width(p, part); row < rows; row++)
                for (size_t j = 0; j < width; j++)
                    y[row * H + first + j] = ((const REAL *)call->in[part])[row * width + j];
        return;
    }
    for (size_t k = 0; k < rows * H; k++) {
        REAL value = ((const REAL *)call->in[0])[k];
        for (int part = 1; part < p->parts; part++) {
            REAL other = ((const REAL *)call->in[part])[k];
            value = p->merge == SL_MERGE_MULTIPLY ? value * other : value + other;
        }
        y[k] = p->merge == SL_MERGE_AVERAGE ? value / (REAL)p->parts : value;
    }
    if (p->merge != SL_MERGE_MULTIPLY || !call->training || !call->saved) return;
    for (int part = 0; part < p->parts; part++)
        for (size_t k = 0; k < rows * H; k++)
            ((REAL *)call->saved)[(size_t)part * rows * H + k] = ((const REAL *)call->in[part])[k];
}

static void NAME(merge_backward)(const sli_call *call) {
    const sli_problem *p = &call->problem;
    size_t rows = sli_ref_rows(p), H = (size_t)p->units, first = 0;
    const REAL *dy = call->d_out[SLI_MERGE_Y];
    for (int part = 0; part < p->parts; part++) {
        size_t width = p->merge == SL_MERGE_CONCAT ? (size_t)part_width(p, part) : H;
        for (size_t row = 0; row < rows; row++)
            for (size_t j = 0; j < width; j++) {
                size_t at = row * H + first + j;
                REAL value = dy ? dy[at] : 0;
                if (p->merge == SL_MERGE_AVERAGE) value /= (REAL)p->parts;
                if (p->merge == SL_MERGE_MULTIPLY)
                    for (int other = 0; other < p->parts; other++)
                        if (other != part) value *= ((const REAL *)call->saved)[(size_t)other * rows * H + at];
                NAME(give_one)(call, part, row * width + j, value);
            }
        if (p->merge == SL_MERGE_CONCAT) first += width;
    }
}

/* y[t] = x[T-1-t]; always the whole sequence. */
static void NAME(flip_forward)(const sli_call *call) {
    const REAL *x = call->in[SLI_UNARY_X];
    REAL *y = call->out[SLI_UNARY_Y];
    size_t T = (size_t)sli_ref_steps(&call->problem), row = (size_t)call->problem.batch * (size_t)call->problem.units;
    for (size_t t = 0; t < T; t++)
        for (size_t k = 0; k < row; k++) y[t * row + k] = x[(T - 1 - t) * row + k];
}

static void NAME(flip_backward)(const sli_call *call) {
    const REAL *dy = call->d_out[SLI_UNARY_Y];
    size_t T = (size_t)sli_ref_steps(&call->problem), row = (size_t)call->problem.batch * (size_t)call->problem.units;
    for (size_t t = 0; t < T; t++)
        for (size_t k = 0; k < row; k++)
            NAME(give_one)(call, SLI_UNARY_X, t * row + k, dy ? dy[(T - 1 - t) * row + k] : 0);
}
