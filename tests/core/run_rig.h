/* Plan, parameters and run of a model of tokens, and its batches: what tests of whole training steps share. */
#ifndef SLI_TESTS_RUN_RIG_H
#define SLI_TESTS_RUN_RIG_H

#include "core/run.h"
#include "test.h"

enum { B = 3, LONG = 1400, V = 5 }; /* LONG: enough rows for two chunks on any device */

typedef struct rig {
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
} rig;

static inline rig make_rig_on(const sl_model *model, sl_plan_options options, const char *device) {
    options.device = device;
    rig r;
    REQUIRE_OK(sl_plan_new(model, &options, &r.plan));
    REQUIRE_OK(sl_params_new(r.plan, &r.params));
    REQUIRE_OK(sl_params_init(r.params, 3));
    REQUIRE_OK(sl_run_new(r.plan, r.params, &r.run));
    REQUIRE_OK(sl_run_set_seed(r.run, 8));
    return r;
}

static inline void free_rig(rig *r) {
    sl_run_free(r->run);
    sl_params_free(r->params);
    sl_plan_free(r->plan);
}

/* One batch; call k of a training has other tokens, labels and lengths. */
typedef struct batch_data {
    int32_t tokens[LONG * B], labels[LONG * B], lengths[B];
    const void *inputs[1];
    sl_batch batch;
} batch_data;

static inline void fill_batch(batch_data *d, int k, int rows, int steps) {
    for (int i = 0; i < LONG * B; i++) d->tokens[i] = (i * i + 3 * k) % V;
    for (int i = 0; i < LONG * B; i++) d->labels[i] = (i + k) % V;
    for (int b = 0; b < B; b++) d->lengths[b] = b == k % B ? steps - 1 : steps;
    d->inputs[0] = d->tokens;
    d->batch =
        (sl_batch){.batch = rows, .steps = steps, .inputs = d->inputs, .lengths = d->lengths, .targets = d->labels};
}

#endif
