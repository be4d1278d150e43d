/* What runtime/products.cu calls for multiplying itself, for programs that include it and do not: its choice of algorithms, and their times. */
#ifndef SLI_TESTS_PRODUCTS_STUBS_H
#define SLI_TESTS_PRODUCTS_STUBS_H

sli_plugin_host sli_cuda_host;
static sli_caps caps;
extern "C" {
const sli_caps *sli_cuda_caps_of(const sli_queue *) {
    return &caps;
}
bool sli_cuda_failed(const sli_queue *) {
    return false;
}
void sli_cuda_fail(sli_queue *, sl_status, const char *, ...) {}
bool sli_cuda_try(sli_queue *, cudaError_t, const char *) {
    return true;
}
cudaError_t sli_cuda_injected(cudaError_t error) {
    return error;
}
}
/* What came to our own kernels. */
static struct {
    sli_cuda_product tiles[4], small[4];
    int tile_count, small_count;
    sli_cuda_move move; /* the last */
} owns;
extern "C" void sli_cuda_move_rows(sli_queue *, cudaStream_t, const sli_cuda_move *move) {
    owns.move = *move;
}
bool sli_few_rows_fit(const sli_cuda_product *p) {
    return p->m <= 4;
}
void sli_few_rows_multiply(sli_queue *, cudaStream_t, const sli_cuda_product *) {}
bool sli_small_fit(const sli_cuda_product *) {
    return false;
}
void sli_small_multiply(sli_queue *, cudaStream_t, const sli_cuda_product *p) {
    if (owns.small_count < 4) owns.small[owns.small_count++] = *p;
}
bool sli_few_columns_fit(const sli_cuda_product *) {
    return false;
}
void sli_few_columns_multiply(sli_queue *, cudaStream_t, const sli_cuda_product *) {}
bool sli_split_fits(const sli_queue *, const sli_cuda_product *) {
    return false;
}
void sli_split_multiply(sli_queue *, cudaStream_t, const sli_cuda_product *) {}
void sli_tiles_multiply(sli_queue *, cudaStream_t, const sli_cuda_product *p) {
    if (owns.tile_count < 4) owns.tiles[owns.tile_count++] = *p;
}

#endif
