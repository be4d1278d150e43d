/* Array data: rows of x and y, in a new order every epoch, as time-major batches. The arrays are borrowed. */
#ifndef SLI_ARRAYS_H
#define SLI_ARRAYS_H

#include "core/memory.h"

/* What the model wants of them. */
typedef struct sli_array_needs {
    bool tokens; /* x holds token ids < vocabulary, else floats */
    int vocabulary;
    int features;       /* of float x; 0 = any */
    bool input_steps;   /* x is [N][T]... */
    bool labels;        /* y holds class ids < classes, else floats */
    bool probabilities; /* float y is in [0, 1]: binary cross-entropy is below 0 beyond */
    int classes;        /* features of the output */
    bool output_steps;  /* y is [N][T]... */
    bool doubles;       /* batches hold double, else float */
} sli_array_needs;

typedef struct sli_array_data {
    const sl_array *x, *y, *lengths; /* y and lengths may be NULL */
    sli_array_needs needs;
    size_t rows; /* N */
    int steps;   /* T; 1 where x has no time */
} sli_array_data;

/* Checks ranks, sizes, types, every label, token and length, and that no float is a NaN or infinity; SL_ERR_SHAPE or
 * SL_ERR_INPUT says which array, where. Numbers count within their row's length alone; beyond it they may be anything. SL_ERR_INPUT, too, where nothing of y counts: a mean over it would be 0 / 0. */
sl_status sli_array_data_new(const sl_array *x, const sl_array *y, const sl_array *lengths,
                             const sli_array_needs *needs, sli_array_data *data);

/* Bytes of one row of inputs / targets in a batch. */
size_t sli_array_input_bytes(const sli_array_data *data);
size_t sli_array_target_bytes(const sli_array_data *data);
/* Rows order[0..rows) (NULL: first, first + 1, ...) as [T][rows][F] inputs, targets alike, 0 beyond lengths, int32 lengths (may be NULL). */
void sli_array_fill(const sli_array_data *data, const uint32_t *order, size_t first, int rows, void *inputs,
                    void *targets, int32_t *lengths);

/* Steps of y in these rows, named as in sli_array_fill, that have a loss: within the row's length, the label not -1. */
size_t sli_array_counted(const sli_array_data *data, const uint32_t *order, size_t first, size_t rows);

/* The order of an epoch: a permutation of [0, rows) keyed by (seed, epoch). */
void sli_shuffle(uint64_t seed, uint32_t epoch, size_t rows, uint32_t *order);

#endif
