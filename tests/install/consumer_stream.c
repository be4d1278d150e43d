/* A program outside the tree that runs a stream model, FILE.slm, with the small library alone. */
#include <sluice_stream.h>
#include <stdio.h>

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
    for (int t = 0; t < 5 && sl_stream_outputs(model) <= 256; t++) status = sl_stream_step_token(stream, t, y);
    printf("%s kernels, %d tokens, y[0] = %f\n", sl_stream_isa(model), sl_stream_vocabulary(model), y[0]);
    sl_stream_free(stream);
    sl_stream_model_free(model);
    return status == SL_OK ? 0 : 1;
}
