/* Describe, plan, train: a GRU learns to say what it heard two steps ago. */
#include <stdio.h>
#include <stdlib.h>

#include "sluice.h"

enum { T = 12, B = 16, STEPS = 400 };

static void check(sl_status status) {
    if (status == SL_OK) return;
    fprintf(stderr, "train: %s\n", sl_error_detail());
    exit(sl_status_exit_code(status));
}

int main(void) {
    sl_model *model; /* describe */
    sl_recurrent gru = {.units = 24, .return_sequences = 1};
    sl_dense output = {.units = 1};
    check(sl_model_new(NULL, &model));
    check(sl_model_add_input(model, "x", 1, 0));
    check(sl_model_add_recurrent(model, "gru", SL_GRU, &gru, NULL));
    check(sl_model_add_dense(model, "y", &output, NULL));

    sl_plan *plan; /* plan */
    sl_plan_options options = {.batch = B, .steps = T, .train = 1, .loss = SL_LOSS_MSE, .optimizer = {.kind = SL_ADAM}};
    check(sl_plan_new(model, &options, &plan));

    sl_params *params; /* train */
    sl_run *run;
    sl_result result = {0};
    check(sl_params_new(plan, &params));
    check(sl_params_init(params, 1));
    check(sl_run_new(plan, params, &run));
    float x[T][B], y[T][B];
    unsigned noise = 1;
    for (unsigned step = 0; step < STEPS; step++) {
        for (int t = 0; t < T; t++)
            for (int b = 0; b < B; b++) {
                noise = noise * 1664525u + 1013904223u;
                x[t][b] = (noise >> 31) ? 1 : -1;
                y[t][b] = t < 2 ? 0 : x[t - 2][b];
            }
        const void *inputs[] = {x};
        sl_batch batch = {.batch = B, .steps = T, .inputs = inputs, .targets = y};
        check(sl_run_gradients(run, &batch, NULL, step, 0, 1, &result));
        check(sl_run_update(run, 0.01, NULL));
        if (step == 0) printf("mean squared error at first: %.1f\n", result.loss);
    }
    printf("after %d steps it is %s\n", STEPS, result.loss < 0.01 ? "below 0.01" : "still above 0.01");
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    return 0;
}
