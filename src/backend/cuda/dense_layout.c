/* Places in cuda:dense's booked memory. */
#include "backend/cuda/dense_layout.h"
#include "backend/cuda/cuda.h"

/* Puts `bytes` at the end of *at and returns where. */
static size_t take(size_t *at, size_t bytes) {
    const size_t place = *at;
    *at += sli_round_up(bytes, SLI_DENSE_PLACE);
    return place;
}

/* The operand copy of [rows][columns], where there is one. */
static size_t copy_bytes(const sli_problem *p, int64_t rows, int64_t columns) {
    if (!sli_dense_copies(p, columns)) return 0;
    return (size_t)rows * (size_t)sli_dense_row(p, columns) * (sli_dense_is_narrow(p) ? 2 : sizeof(float));
}

int64_t sli_dense_chunk_rows(const sli_problem *p, int chunk) {
    return (int64_t)(chunk > 0 ? chunk : 1) * p->batch;
}

void sli_dense_forward_layout(const sli_problem *p, const sli_caps *caps, int chunk, sli_dense_forward_places *places) {
    const int64_t rows = sli_dense_chunk_rows(p, chunk);
    *places = (sli_dense_forward_places){.workspace_bytes = sli_cuda_workspace(caps, rows, p->units, p->inputs)};
    size_t at = 0;
    places->x = take(&at, copy_bytes(p, rows, p->inputs));
    places->split_bytes = sli_cuda_split_bytes(caps, p->dtype, rows, p->units, p->inputs);
    places->split = take(&at, places->split_bytes);
    places->workspace = take(&at, places->workspace_bytes);
    places->bytes = at;
}

bool sli_dense_transposes(const sli_problem *p, const sli_caps *caps, int64_t rows) {
    const int64_t n[2] = {p->inputs, 0};
    return sli_cuda_transpose_gain(caps, p->dtype, p->units, n, p->units + sli_dense_row(p, p->inputs), rows) > 0;
}

void sli_dense_backward_layout(const sli_problem *p, const sli_caps *caps, int chunk,
                               sli_dense_backward_places *places) {
    const int64_t rows = sli_dense_chunk_rows(p, chunk);
    *places = (sli_dense_backward_places){.workspace_bytes = sli_cuda_workspace(caps, rows, p->units, p->inputs)};
    size_t at = 0;
    places->dz = take(&at, sli_dense_is_linear(p) ? 0 : (size_t)rows * (size_t)p->units * sizeof(float));
    places->dz_copy = take(&at, copy_bytes(p, rows, p->units));
    places->x = take(&at, copy_bytes(p, rows, p->inputs));
    const size_t row = sli_dense_transposes(p, caps, rows) ? (size_t)sli_cuda_transposed_row(rows) * sizeof(float) : 0;
    places->dz_t = take(&at, (size_t)p->units * row);
    places->x_t = take(&at, (size_t)sli_dense_row(p, p->inputs) * row);
    places->columns = take(&at, p->no_bias ? 0 : sli_cuda_column_scratch(rows, p->units));
    const size_t for_x = sli_cuda_pad_bytes(caps, p->dtype, rows, p->inputs, p->units);
    const size_t for_kernel = sli_cuda_pad_bytes(caps, p->dtype, p->units, p->inputs, rows);
    places->pad_bytes = for_x > for_kernel ? for_x : for_kernel;
    places->pad = take(&at, places->pad_bytes);
    const size_t split_x = sli_cuda_split_bytes(caps, p->dtype, rows, p->inputs, p->units);
    const size_t split_kernel = sli_cuda_split_bytes(caps, p->dtype, p->units, p->inputs, rows);
    places->split_bytes = split_x > split_kernel ? split_x : split_kernel;
    places->split = take(&at, places->split_bytes);
    places->workspace = take(&at, places->workspace_bytes);
    places->bytes = at;
}

size_t sli_dense_saved(const sli_problem *p) {
    if (sli_dense_is_linear(p) || !p->train) return 0;
    return sli_cuda_rows_of(p) * (size_t)p->units * sizeof(float);
}

size_t sli_dense_packed(const sli_problem *p) {
    return copy_bytes(p, p->units, p->inputs);
}
