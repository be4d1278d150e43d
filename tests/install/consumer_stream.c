/* A program outside the tree that runs a stream model, FILE.slm, with the small library alone; steps allocate nothing. */
#include <sluice_stream.h>
#include <stdio.h>

#ifdef COUNT_ALLOCATIONS /* linked with --wrap=malloc: the library has no other way to allocate */
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
static int allocations;
void *__wrap_malloc(size_t bytes) {
    allocations++;
    return __real_malloc(bytes);
}
#else
static const int allocations = 0;
#endif

int main(int argc, char **argv) {
    sl_stream_model *model;
    sl_stream *stream;
    float y[256];
    sl_status status = sl_stream_model_load(argc > 1 ? argv[1] : "model.slm", &model);
    if (status == SL_OK) status = sl_stream_new(model, &stream);
    if (status != SL_OK) {
        fprintf(stderr, "%s: %s\n", sl_status_text(status), sl_error_detail());
        return sl_status_exit_code(status);
    }
    const int before = allocations;
    for (int t = 0; t < 5 && sl_stream_outputs(model) <= 256; t++) status = sl_stream_step_token(stream, t, y);
    const int during = allocations - before;
    printf("%s kernels, %d tokens, y[0] = %f\n", sl_stream_isa(model), sl_stream_vocabulary(model), y[0]);
    sl_stream_free(stream);
    sl_stream_model_free(model);
    return status == SL_OK && during == 0 ? 0 : 1;
}
