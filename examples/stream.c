/* Step-by-step inference: load a model file, feed one step at a time, keep the state as a plain blob.
 *     stream [MODEL.safetensors]      without an argument it makes a small model first */
#include <stdio.h>
#include <stdlib.h>

#include "sluice.h"

static void check(sl_status status) {
    if (status == SL_OK) return;
    fprintf(stderr, "stream: %s\n", sl_error_detail());
    exit(sl_status_exit_code(status));
}

/* A run reads as much of x as its model takes, which it alone knows. */
static void expect_two_features(const sl_model *model, const char *path) {
    int features = 0, has_steps = 0;
    sl_model_input(model, 0, NULL, &features, &has_steps);
    if (features == 2 && has_steps && sl_model_input(model, 1, NULL, NULL, NULL) == NULL) return;
    fprintf(stderr, "stream: %s is not of one input of two features\n", path);
    exit(3);
}

/* Feeds five steps of two features, one a call, and prints the output after each. */
static void stream(const char *path) {
    sl_file *file;
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    sl_run *run;

    /* Describe: the model is in the file. */
    check(sl_file_open(NULL, path, &file));
    check(sl_file_model(file, &model));
    expect_two_features(model, path);

    /* Plan: one row, one step a call. */
    sl_plan_options options = {.batch = 1, .steps = 1};
    check(sl_plan_new(model, &options, &plan));

    /* Run: two blocks of memory; nothing is allocated after them. */
    check(sl_params_new(plan, &params));
    check(sl_file_load_params(file, params));
    check(sl_run_new(plan, params, &run));
    for (int t = 0; t < 5; t++) {
        float x[2] = {0.5f * (float)t, 1.0f - (float)t}, y[1];
        const void *inputs[] = {x};
        sl_batch batch = {.batch = 1, .steps = 1, .inputs = inputs};

        /* A stateful layer carries its state to the next call. */
        check(sl_run_forward(run, &batch));
        check(sl_run_output(run, NULL, y, 1));
        printf("step %d: %6.3f\n", t, y[0]);
    }

    /* The state is a plain blob: for a file, another machine, another run of the plan. */
    size_t bytes = sl_run_state_bytes(run);
    void *state = malloc(bytes);
    check(sl_run_get_state(run, state, bytes));
    check(sl_run_set_state(run, state, bytes));
    free(state);

    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    sl_file_close(file);
}

/* An LSTM of 8 units and a dense output, with the parameters that seed 1 draws. */
static void make_model(const char *path) {
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    sl_recurrent lstm = {.units = 8, .return_sequences = 1, .stateful = 1};
    sl_dense output = {.units = 1};
    check(sl_model_new(NULL, &model));
    check(sl_model_add_input(model, "x", 2, 0));
    check(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));
    check(sl_model_add_dense(model, "y", &output, NULL));
    check(sl_plan_new(model, NULL, &plan));
    check(sl_params_new(plan, &params));
    check(sl_params_init(params, 1));
    check(sl_file_save(path, model, params, NULL));
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "stream.safetensors";
    if (argc < 2) make_model(path);
    stream(path);
    return 0;
}
