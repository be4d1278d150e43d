/* A trained model on a device or in an audio callback: convert it once, then one step at a time with sluice_stream.h.
 *     stream_device [MODEL.slm]      without an argument it makes a small model first */
#include <stdio.h>
#include <stdlib.h>

#include "sluice_stream.h"

static void check(sl_status status) {
    if (status == SL_OK) return;
    fprintf(stderr, "stream_device: %s\n", sl_error_detail());
    exit(sl_status_exit_code(status));
}

/* What `sluice convert MODEL OUT.slm` does; this part needs libsluice. */
static void make_model(const char *path) {
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    check(sl_model_new(NULL, &model));
    check(sl_model_add_input(model, "x", 1, 0));
    check(sl_model_add_recurrent(model, "gru", SL_GRU, &(sl_recurrent){.units = 16, .return_sequences = 1}, NULL));
    check(sl_model_add_dense(model, "y", &(sl_dense){.units = 1}, NULL));
    check(sl_plan_new(model, &(sl_plan_options){.device = "cpu"}, &plan));
    check(sl_params_new(plan, &params));
    check(sl_params_init(params, 1)); /* or trained */
    check(sl_model_convert(model, params, NULL, path));
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "device.slm";
    sl_stream_model *model;
    if (argc < 2) make_model(path);
    check(sl_stream_model_load(path, &model)); /* or _place, in memory of the caller */

    /* Two channels share the weights; each has its own state, here in memory that is not the heap's. */
    static char memory[2][4096];
    if (sl_stream_inputs(model) != 1 || sl_stream_outputs(model) != 1 || sl_stream_size(model) > sizeof memory[0]) {
        fprintf(stderr, "stream_device: %s is not of one input and one output\n", path);
        return 3;
    }
    sl_stream *left = sl_stream_place(model, memory[0]), *right = sl_stream_place(model, memory[1]);

    /* A block of samples, as a callback gets it: no allocation, no lock, no system call from here on. */
    float block[4] = {1.0f, 0.5f, 0.0f, -0.5f}, other;
    check(sl_stream_steps(left, 4, block, block));
    for (int t = 0; t < 4; t++) printf("left  %6.3f\n", block[t]);

    /* Or one at a time. */
    for (int t = 0; t < 2; t++) {
        check(sl_stream_step(right, &(float){0.5f}, &other));
        printf("right %6.3f\n", other);
    }
    sl_stream_model_free(model);
    return 0;
}
