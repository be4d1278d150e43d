/* Initial values of parameters, as Keras and PyTorch draw them (their distributions, our Philox). A matrix is stored
 * [rows = outputs][columns = inputs], so fan_in = columns and fan_out = rows: Keras's (inputs, outputs) transposed. Not so tables and biases (sli_fans). */
#include <math.h>

#include "core/params.h"
#include "core/threads.h"

typedef struct draw {
    sli_rng rng;
    size_t first; /* element that values[0] is */
} draw;

/* Words of (parameter index as `step`, purpose INIT); micro_step tells retries and Box-Muller's halves apart. */
static double uniform(draw *d, uint64_t element) {
    return sli_rng_uniform(&d->rng, element);
}

static double normal(draw *d, uint64_t element) {
    uint32_t before = d->rng.micro_step;
    d->rng.micro_step = before | 0x80000000u;
    double angle = 2 * 3.14159265358979323846 * uniform(d, element);
    d->rng.micro_step = before;
    return sqrt(-2 * log(uniform(d, element))) * cos(angle);
}

/* Redrawn beyond two standard deviations (Keras TruncatedNormal). */
static double truncated(draw *d, uint64_t element) {
    double value = normal(d, element);
    for (uint32_t attempt = 1; fabs(value) > 2 && attempt < 100; attempt++) {
        d->rng.micro_step = attempt;
        value = normal(d, element);
    }
    d->rng.micro_step = 0;
    return fabs(value) > 2 ? 0 : value;
}

/* Elements [d->first, d->first + count). */
static void fill(draw *d, double *values, size_t count, double (*sample)(draw *, uint64_t), double scale,
                 double shift) {
    for (size_t i = 0; i < count; i++) values[i] = scale * sample(d, d->first + i) + shift;
}

static void fill_uniform(draw *d, double *values, size_t count, double limit) {
    fill(d, values, count, uniform, 2 * limit, -limit);
}

/* Keras divides the deviation of truncated draws by that of a unit normal cut at +-2. */
static const double truncated_deviation = 0.87962566103423978;

static double variance(const sli_param *param) {
    const double rows = param->rows, columns = param->columns;
    const bool matrix = param->fans == SLI_FANS_MATRIX;
    const double fan_in = param->fans == SLI_FANS_TWO_BIASES ? 2 : param->fans == SLI_FANS_TABLE ? rows : columns;
    const double fan_out = matrix ? rows : columns;
    switch (param->init.kind) {
    case SL_INIT_GLOROT_UNIFORM:
    case SL_INIT_GLOROT_NORMAL:
        return 2 / (fan_in + fan_out);
    case SL_INIT_HE_UNIFORM:
    case SL_INIT_HE_NORMAL:
        return 2 / fan_in;
    default:
        return 1 / fan_in;
    }
}

bool sli_initialise_needs_all(const sli_param *param) {
    return param->init.kind == SL_INIT_ORTHOGONAL;
}

/* Where Keras's Identity has the one of a column: the gates that it has first and second are our second and first. */
static size_t identity_row(const sli_param *param, size_t column) {
    const size_t gate = (size_t)param->identity_row;
    return column < gate ? column + gate : column < 2 * gate ? column - gate : column;
}

/* Of an orthogonal matrix, what it is made of. */
static void draw_part(const sli_param *param, int index, uint64_t seed, size_t first, size_t count, double *values) {
    size_t columns = (size_t)param->columns;
    draw d = {{seed, (uint32_t)index, 0, (uint32_t)(param->layer + 1) << 8 | SLI_PURPOSE_INIT}, first};
    const double v = param->init.value, spread = variance(param);
    switch (param->init.kind) {
    case SL_INIT_CONSTANT:
    case SL_INIT_ONES:
        for (size_t i = 0; i < count; i++) values[i] = param->init.kind == SL_INIT_ONES ? 1 : v;
        break;
    case SL_INIT_UNIFORM:
        fill_uniform(&d, values, count, v);
        break;
    case SL_INIT_NORMAL:
        fill(&d, values, count, normal, v, 0);
        break;
    case SL_INIT_TRUNCATED_NORMAL:
        fill(&d, values, count, truncated, v, 0);
        break;
    case SL_INIT_GLOROT_UNIFORM:
    case SL_INIT_HE_UNIFORM:
    case SL_INIT_LECUN_UNIFORM:
        fill_uniform(&d, values, count, sqrt(3 * spread));
        break;
    case SL_INIT_GLOROT_NORMAL:
    case SL_INIT_HE_NORMAL:
    case SL_INIT_LECUN_NORMAL:
        fill(&d, values, count, truncated, sqrt(spread) / truncated_deviation, 0);
        break;
    case SL_INIT_ORTHOGONAL:
        fill(&d, values, count, normal, 1, 0);
        break;
    case SL_INIT_IDENTITY:
        for (size_t i = 0; i < count; i++)
            values[i] = (first + i) / columns == identity_row(param, (first + i) % columns) ? (v == 0 ? 1 : v) : 0;
        break;
    case SL_INIT_PYTORCH:
        if (param->pytorch_fan > 0)
            fill_uniform(&d, values, count, 1 / sqrt((double)param->pytorch_fan));
        else
            fill(&d, values, count, normal, 1, 0);
        break;
    default:
        for (size_t i = 0; i < count; i++) values[i] = 0;
    }
}

static void set_part(const sli_param *param, size_t first, size_t count, double *values) {
    for (size_t i = 0; i < count; i++) {
        size_t at = first + i, from = (size_t)param->set_offset;
        if (at >= from && at < from + (size_t)param->set_count) values[i] = param->set_value;
    }
}

/* An LSTM's bias whose forget slice is set: Keras draws what lies before and behind that slice apart, each with its own fans. */
static void draw_elements(const sli_param *param, int index, uint64_t seed, size_t first, size_t count,
                          double *values) {
    if (param->fans != SLI_FANS_BIAS || param->set_count == 0 || param->init.kind == SL_INIT_IDENTITY) {
        draw_part(param, index, seed, first, count, values);
        return;
    }
    const size_t set = (size_t)param->set_offset, before = first >= set ? 0 : count < set - first ? count : set - first;
    sli_param part = *param;
    part.columns = param->set_offset;
    draw_part(&part, index, seed, first, before, values);
    part.columns = param->columns - param->set_offset - param->set_count;
    draw_part(&part, index, seed, first + before, count - before, values + before);
}

void sli_initialise_part(const sli_param *param, int index, uint64_t seed, size_t first, size_t count, double *values) {
    draw_elements(param, index, seed, first, count, values);
    set_part(param, first, count, values);
}

enum { PIECE = 1 << 16 };

typedef struct whole {
    const sli_param *param;
    int index;
    uint64_t seed;
    size_t count;
    double *values;
} whole;

static void draw_piece(void *context, int piece) {
    const whole *w = context;
    const size_t first = (size_t)piece * PIECE, left = w->count - first;
    draw_elements(w->param, w->index, w->seed, first, left < PIECE ? left : PIECE, w->values + first);
}

void sli_initialise(const sli_param *param, int index, uint64_t seed, sli_threads *threads, double *values) {
    const size_t rows = (size_t)param->rows, columns = (size_t)param->columns, count = rows * columns;
    const double gain = param->init.value == 0 ? 1 : param->init.value;
    whole w = {param, index, seed, count, values};
    sli_threads_for(threads, (int)((count + PIECE - 1) / PIECE), draw_piece, &w);
    if (param->init.kind == SL_INIT_ORTHOGONAL) {
        sli_orthonormalise(threads, values, rows, columns);
        for (size_t i = 0; i < count; i++) values[i] *= gain;
    }
    set_part(param, 0, count, values);
}
