/* Batches of array data. */
#include "data/arrays.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/rng.h"

static double number_at(const sl_array *array, size_t index) {
    switch (array->type) {
    case SL_ARRAY_F32:
        return ((const float *)array->data)[index];
    case SL_ARRAY_F64:
        return ((const double *)array->data)[index];
    case SL_ARRAY_I32:
        return ((const int32_t *)array->data)[index];
    case SL_ARRAY_I64:
        return (double)((const int64_t *)array->data)[index];
    case SL_ARRAY_U8:
    case SL_ARRAY_BOOL:
        return ((const uint8_t *)array->data)[index];
    }
    return 0;
}

static bool is_float(const sl_array *array) {
    return array->type == SL_ARRAY_F32 || array->type == SL_ARRAY_F64;
}

/* "[32][10][4]" */
static const char *shape_text(const sl_array *array, char *text, size_t capacity) {
    size_t used = 0;
    snprintf(text, capacity, "%s", array->rank == 0 ? "[]" : "");
    for (int i = 0; i < array->rank && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "[%lld]", (long long)array->shape[i]);
    return text;
}

static size_t element_count(const sl_array *array) {
    size_t count = 1;
    for (int i = 0; i < array->rank; i++) count *= (size_t)array->shape[i];
    return count;
}

/* Whole numbers in [low, high]. */
static sl_status check_integers(const sl_array *array, const char *name, const char *what, double low, double high) {
    SLI_FAIL_IF(is_float(array), SL_ERR_INPUT, "%s: holds floats where %s are wanted: save it as int32 or int64", name,
                what);
    size_t count = element_count(array);
    for (size_t i = 0; i < count; i++) {
        double value = number_at(array, i);
        SLI_FAIL_IF(value < low || value > high, SL_ERR_INPUT,
                    "%s: element %zu is %.0f, but %s must be in [%.0f, %.0f]: correct the data, or the model", name, i,
                    value, what, low, high);
    }
    return SL_OK;
}

/* Elements of a row of x or y that count; those beyond its length may be anything. */
static size_t read_of_row(const sli_array_data *data, const sl_array *array, bool has_steps, size_t row) {
    const size_t all = element_count(array) / data->rows;
    return has_steps && data->lengths ? all / (size_t)data->steps * (size_t)number_at(data->lengths, row) : all;
}

static sl_status check_finite(const sli_array_data *data, const sl_array *array, const char *name, bool has_steps) {
    const size_t all = element_count(array) / data->rows;
    for (size_t row = 0; is_float(array) && row < data->rows; row++) {
        const size_t read = read_of_row(data, array, has_steps, row);
        for (size_t i = row * all; i < row * all + read; i++) {
            const double value = number_at(array, i);
            SLI_FAIL_IF(!isfinite(value), SL_ERR_NUMBERS,
                        "%s: element %zu is not a finite number: clean the data first", name, i);
            SLI_FAIL_IF(!data->needs.doubles && fabs(value) > FLT_MAX, SL_ERR_NUMBERS,
                        "%s: element %zu is %g, which f32 cannot hold: scale the data, or use f64", name, i, value);
        }
    }
    return SL_OK;
}

static sl_status check_x(const sl_array *x, const sli_array_needs *needs) {
    char shape[200];
    int rank = 1 + needs->input_steps + !needs->tokens;
    SLI_FAIL_IF(x->rank != rank, SL_ERR_SHAPE,
                "x: has shape %s, but the model's input needs %s: reshape the array, or change the model's input",
                shape_text(x, shape, sizeof shape),
                needs->tokens        ? "tokens [N][T]"
                : needs->input_steps ? "[N][T][features]"
                                     : "[N][features]");
    SLI_FAIL_IF(element_count(x) == 0, SL_ERR_SHAPE, "x: is empty, shape %s: give at least one row of one step",
                shape_text(x, shape, sizeof shape));
    SLI_FAIL_IF(x->shape[0] > UINT32_MAX, SL_ERR_SHAPE, "x: has %lld rows, more than %u: split the array",
                (long long)x->shape[0], UINT32_MAX);
    SLI_FAIL_IF(needs->input_steps && x->shape[1] > INT32_MAX, SL_ERR_SHAPE,
                "x: has %lld steps, more than %d: cut the sequences", (long long)x->shape[1], INT32_MAX);
    if (needs->tokens) return check_integers(x, "x", "tokens", 0, needs->vocabulary - 1);
    SLI_FAIL_IF(needs->features > 0 && x->shape[rank - 1] != needs->features, SL_ERR_SHAPE,
                "x: has %lld features, the model's input %d: give an array with as many, or change the model's input",
                (long long)x->shape[rank - 1], needs->features);
    return SL_OK;
}

static sl_status check_y(const sl_array *x, const sl_array *y, const sli_array_needs *needs) {
    char shape[200], x_shape[200];
    shape_text(y, shape, sizeof shape);
    shape_text(x, x_shape, sizeof x_shape);
    int rank = 1 + needs->output_steps + !needs->labels;
    /* A single output may leave out its last dimension of 1. */
    bool squeezed = !needs->labels && needs->classes == 1 && y->rank == rank - 1;
    SLI_FAIL_IF(y->rank != rank && !squeezed, SL_ERR_SHAPE,
                "y: has shape %s, but the model and the loss need %s%s: reshape the array, or choose another loss",
                shape, needs->output_steps ? "[N][T]" : "[N]", needs->labels ? " class numbers" : "[features]");
    SLI_FAIL_IF(y->shape[0] != x->shape[0], SL_ERR_SHAPE, "y: has %lld rows, x %lld: both must have as many",
                (long long)y->shape[0], (long long)x->shape[0]);
    SLI_FAIL_IF(needs->output_steps && y->shape[1] != x->shape[1], SL_ERR_SHAPE,
                "y: has shape %s, x %s: both must have as many steps", shape, x_shape);
    if (needs->labels) return check_integers(y, "y", "class numbers (-1 = ignore)", -1, needs->classes - 1);
    SLI_FAIL_IF(!squeezed && y->shape[rank - 1] != needs->classes, SL_ERR_SHAPE,
                "y: has %lld features, the model's output %d: give an array with as many, or change the units of the "
                "last layer",
                (long long)y->shape[rank - 1], needs->classes);
    return SL_OK;
}

size_t sli_array_counted(const sli_array_data *data, const uint32_t *order, size_t first, size_t rows) {
    const bool has_steps = data->needs.output_steps;
    const size_t steps = has_steps ? (size_t)data->steps : 1;
    size_t counted = 0;
    for (size_t b = 0; b < rows; b++) {
        size_t row = order ? order[first + b] : first + b;
        size_t length = has_steps && data->lengths ? (size_t)number_at(data->lengths, row) : steps;
        if (!data->needs.labels) counted += length;
        for (size_t t = 0; data->needs.labels && t < length; t++) counted += number_at(data->y, row * steps + t) >= 0;
    }
    return counted;
}

static sl_status check_probabilities(const sli_array_data *data) {
    const size_t rows = data->rows, all = element_count(data->y) / rows;
    for (size_t row = 0; row < rows; row++) {
        const size_t read = read_of_row(data, data->y, data->needs.output_steps, row);
        for (size_t i = row * all; i < row * all + read; i++) {
            double value = number_at(data->y, i);
            SLI_FAIL_IF(!(value >= 0 && value <= 1), SL_ERR_INPUT,
                        "y: element %zu is %g, but targets of the binary loss must be in [0, 1]: correct the data, or "
                        "choose another loss",
                        i, value);
        }
    }
    return SL_OK;
}

sl_status sli_array_data_new(const sl_array *x, const sl_array *y, const sl_array *lengths,
                             const sli_array_needs *needs, sli_array_data *data) {
    SLI_TRY(check_x(x, needs));
    if (y) SLI_TRY(check_y(x, y, needs));
    int steps = needs->input_steps ? (int)x->shape[1] : 1;
    if (lengths) {
        char shape[200];
        SLI_FAIL_IF(lengths->rank != 1 || lengths->shape[0] != x->shape[0], SL_ERR_SHAPE,
                    "lengths: has shape %s, x has %lld rows: one length per row is needed",
                    shape_text(lengths, shape, sizeof shape), (long long)x->shape[0]);
        SLI_FAIL_IF(!needs->input_steps, SL_ERR_SHAPE,
                    "lengths: given, but the model's input has no steps: leave them out");
        SLI_TRY(check_integers(lengths, "lengths", "lengths", 0, steps));
    }
    *data = (sli_array_data){x, y, lengths, *needs, (size_t)x->shape[0], steps};
    if (!needs->tokens) SLI_TRY(check_finite(data, x, "x", needs->input_steps));
    if (y && !needs->labels) SLI_TRY(check_finite(data, y, "y", needs->output_steps));
    if (y && needs->probabilities) SLI_TRY(check_probabilities(data));
    SLI_FAIL_IF(
        y && sli_array_counted(data, NULL, 0, data->rows) == 0, SL_ERR_INPUT,
        "y: nothing of it counts, every element is -1 (ignore) or beyond its row's length: correct y or lengths");
    return SL_OK;
}

static size_t features(const sl_array *array, bool whole_numbers, bool has_steps) {
    int last = 1 + has_steps;
    return whole_numbers || array->rank <= last ? 1 : (size_t)array->shape[last];
}

static size_t element_bytes(const sli_array_data *data, bool whole_numbers) {
    return whole_numbers ? sizeof(int32_t) : data->needs.doubles ? sizeof(double) : sizeof(float);
}

size_t sli_array_input_bytes(const sli_array_data *data) {
    return (size_t)data->steps * features(data->x, data->needs.tokens, data->needs.input_steps) *
           element_bytes(data, data->needs.tokens);
}

size_t sli_array_target_bytes(const sli_array_data *data) {
    size_t steps = data->needs.output_steps ? (size_t)data->steps : 1;
    return data->y ? steps * features(data->y, data->needs.labels, data->needs.output_steps) *
                         element_bytes(data, data->needs.labels)
                   : 0;
}

/* Row `from` of the array [N][T][F] becomes row `to` of [T][rows][F]; numbers, not tokens or labels, of steps beyond `length` become 0. */
static void copy_row(const sl_array *array, size_t from, size_t steps, size_t length, size_t width, size_t rows,
                     size_t to, void *out, bool whole_numbers, bool doubles) {
    for (size_t t = 0; t < steps; t++) {
        size_t source = (from * steps + t) * width, target = (t * rows + to) * width;
        for (size_t f = 0; f < width; f++) {
            double value = t < length || whole_numbers ? number_at(array, source + f) : 0;
            if (whole_numbers)
                ((int32_t *)out)[target + f] = (int32_t)value;
            else if (doubles)
                ((double *)out)[target + f] = value;
            else
                ((float *)out)[target + f] = (float)value;
        }
    }
}

void sli_array_fill(const sli_array_data *data, const uint32_t *order, size_t first, int rows, void *inputs,
                    void *targets, int32_t *lengths) {
    const sli_array_needs *n = &data->needs;
    size_t y_steps = n->output_steps ? (size_t)data->steps : 1;
    for (size_t b = 0; b < (size_t)rows; b++) {
        size_t from = order ? order[first + b] : first + b;
        const size_t length = data->lengths ? (size_t)number_at(data->lengths, from) : (size_t)data->steps;
        copy_row(data->x, from, (size_t)data->steps, length, features(data->x, n->tokens, n->input_steps), (size_t)rows,
                 b, inputs, n->tokens, n->doubles);
        if (data->y && targets)
            copy_row(data->y, from, y_steps, n->output_steps ? length : y_steps,
                     features(data->y, n->labels, n->output_steps), (size_t)rows, b, targets, n->labels, n->doubles);
        if (lengths) lengths[b] = (int32_t)length;
    }
}

void sli_shuffle(uint64_t seed, uint32_t epoch, size_t rows, uint32_t *order) {
    sli_rng rng = {seed, epoch, 0, SLI_PURPOSE_SHUFFLE};
    for (size_t i = 0; i < rows; i++) order[i] = (uint32_t)i;
    /* Fisher-Yates: element i changes places with one of [0, i]. */
    for (size_t i = rows; i-- > 1;) {
        size_t other = (size_t)(((uint64_t)sli_rng_word(&rng, i) * (i + 1)) >> 32);
        uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}
