/* Growth of the peak resident set, from before planning to the end of some training steps, beside the plan's bytes.
 *     rss PRESET VOCABULARY        one line; exit 1 if it is above block + 5% + 4 MB + BLAS buffers */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

static double peak_mb(void) {
    char line[256];
    double kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lf kB", &kilobytes) == 1) break;
    if (file) fclose(file);
    return kilobytes * 1024 / 1e6;
}

static void need(sl_status status) {
    if (status == SL_OK) return;
    fprintf(stderr, "rss: %s\n", sl_error_detail());
    exit(sl_status_exit_code(status));
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: rss PRESET VOCABULARY\n"), 2;
    int vocabulary = atoi(argv[2]);
    sl_model *model;
    sl_training t;
    need(sl_preset(NULL, argv[1], vocabulary, &model, &t));
    size_t count = (size_t)t.batch * (size_t)t.steps;
    int32_t *tokens = malloc(count * sizeof *tokens);
    if (!tokens) return 5;
    for (size_t i = 0; i < count; i++) tokens[i] = (int32_t)(i * 7919 % (size_t)vocabulary);
    double before = peak_mb();
    sl_plan_options options = {.batch = t.batch,
                               .steps = t.steps,
                               .train = 1,
                               .loss = t.loss,
                               .reduction = t.reduction,
                               .optimizer = t.optimizer,
                               .clip = t.clip,
                               .device = "cpu"};
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    need(sl_plan_new(model, &options, &plan));
    need(sl_params_new(plan, &params));
    need(sl_params_init(params, 1));
    need(sl_run_new(plan, params, &run));
    const void *inputs[] = {tokens};
    sl_batch batch = {.batch = t.batch, .steps = t.steps, .inputs = inputs, .targets = tokens};
    for (uint32_t step = 0; step < 3; step++) {
        need(sl_run_gradients(run, &batch, NULL, step, 0, 1.0, NULL));
        need(sl_run_update(run, 1e-3, NULL));
    }
    double growth = peak_mb() - before;
    sl_memory m;
    sl_plan_memory(plan, &m);
    double block = (double)(m.params_block + m.run_block) / 1e6, blas = (double)m.blas_buffers / 1e6;
    double limit = block * 1.05 + 4.194304 + blas;
    printf("%-10s block %.1f MB, BLAS buffers %.1f MB, peak RSS grew %.1f MB, limit %.1f MB: %s\n", argv[1], block,
           blas, growth, limit, growth <= limit ? "within" : "ABOVE");
    sl_run_free(run);
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    free(tokens);
    return growth > limit;
}
