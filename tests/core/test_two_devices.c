/* One process, several devices: trainings on two of them, step by step in turns and in a thread each, give the bits of a training alone.
 * On GPUs cuda:0 and cuda:1; without one the CPU and the one that is far. */
#include <pthread.h>

#include "run_rig.h"

enum { DEVICES = 2, STEPS = 8, T = 9 };

static const char *device_of(int d) {
    if (test_on_gpu()) return d == 0 ? "cuda:0" : "cuda:1";
    return d == 0 ? "cpu" : "far";
}

/* tokens -> embedding -> LSTM -> GRU, stateful -> dense */
static sl_model *make_model(int units) {
    sl_model *model;
    const sl_embedding embedding = {.vocabulary = V, .units = 7};
    const sl_recurrent recurrent = {.units = units, .return_sequences = 1, .stateful = 1};
    const sl_dense dense = {.units = V};
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_tokens(model, "tokens", V));
    REQUIRE_OK(sl_model_add_embedding(model, "embedding", &embedding, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "lstm", SL_LSTM, &recurrent, NULL));
    REQUIRE_OK(sl_model_add_recurrent(model, "gru", SL_GRU, &recurrent, NULL));
    REQUIRE_OK(sl_model_add_dense(model, "logits", &dense, NULL));
    return model;
}

static rig make_rig(const sl_model *model, sl_dtype dtype, int d) {
    return make_rig_on(model,
                       (sl_plan_options){.batch = B,
                                         .steps = T,
                                         .train = 1,
                                         .dtype = dtype,
                                         .masking = SL_MASK_LENGTHS,
                                         .loss = SL_LOSS_SOFTMAX,
                                         .optimizer = {.kind = SL_ADAM}},
                       device_of(d));
}

/* Bits of another GPU model are others, and there may be one GPU alone. */
static void need_two(const sl_model *model) {
    sli_caps caps[DEVICES];
    for (int d = 0; d < DEVICES && test_on_gpu(); d++) {
        const sl_plan_options options = {.batch = 1, .steps = 1, .device = device_of(d)};
        sl_plan *plan;
        if (sl_plan_new(model, &options, &plan) != SL_OK) test_skip("there is no %s", device_of(d));
        caps[d] = plan->caps;
        sl_plan_free(plan);
        if (d > 0 && (caps[d].compute_capability != caps[0].compute_capability ||
                      caps[d].multiprocessors != caps[0].multiprocessors))
            test_skip("%s is another GPU than cuda:0", device_of(d));
    }
}

/* FNV-1a */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return hash;
}

/* Of a step's result. */
static uint64_t hash_step(uint64_t hash, sl_run *run, int k, sl_status *status) {
    batch_data *d = malloc(sizeof *d);
    sl_result result = {0};
    fill_batch(d, k, B, T);
    *status = sl_run_step(run, &d->batch, (uint32_t)k, 0.01);
    if (*status == SL_OK) *status = sl_run_step_result(run, &result);
    free(d);
    return hash_bytes(hash_bytes(hash, &result.loss, sizeof result.loss), &result.gradient_norm,
                      sizeof result.gradient_norm);
}

/* Of parameters and states. */
static uint64_t hash_rig(uint64_t hash, const rig *r) {
    const size_t bytes = sl_run_state_bytes(r->run);
    void *states = malloc(bytes);
    REQUIRE_OK(sl_run_get_state(r->run, states, bytes));
    hash = hash_bytes(hash, states, bytes);
    free(states);
    for (int i = 0; i < sl_params_count(r->params); i++) {
        int rows, columns;
        const char *name = sl_params_name(r->params, i, &rows, &columns);
        const size_t count = (size_t)rows * (size_t)columns;
        double *values = malloc(count * sizeof *values);
        REQUIRE_OK(sl_params_get(r->params, name, values, count));
        hash = hash_bytes(hash, values, count * sizeof *values);
        free(values);
    }
    return hash;
}

typedef struct training {
    rig rig;
    uint64_t hash;
    sl_status status;
    pthread_t thread;
} training;

static void *train(void *given) {
    training *t = given;
    for (int k = 0; k < STEPS && t->status == SL_OK; k++) t->hash = hash_step(t->hash, t->rig.run, k, &t->status);
    return NULL;
}

static void in_turns(training *t) {
    for (int k = 0; k < STEPS; k++)
        for (int d = 0; d < DEVICES; d++) {
            t[d].hash = hash_step(t[d].hash, t[d].rig.run, k, &t[d].status);
            REQUIRE_OK(t[d].status);
        }
}

static void in_threads(training *t) {
    for (int d = 0; d < DEVICES; d++) REQUIRE(pthread_create(&t[d].thread, NULL, train, &t[d]) == 0);
    for (int d = 0; d < DEVICES; d++) pthread_join(t[d].thread, NULL);
}

/* `units`: of layers through a cluster, and over a whole GPU. */
static void check_trainings(const sl_model *model, sl_dtype dtype, int units) {
    training alone = {.rig = make_rig(model, dtype, 0)};
    train(&alone);
    REQUIRE_OK(alone.status);
    alone.hash = hash_rig(alone.hash, &alone.rig);
    free_rig(&alone.rig);
    for (int threads = 0; threads < 2; threads++) {
        training t[DEVICES] = {{.rig = make_rig(model, dtype, 0)}, {.rig = make_rig(model, dtype, 1)}};
        (threads ? in_threads : in_turns)(t);
        for (int d = 0; d < DEVICES; d++) {
            CHECK(t[d].status == SL_OK);
            if (hash_rig(t[d].hash, &t[d].rig) != alone.hash)
                test_fail(__FILE__, __LINE__, "%s, %d units, %s: other bits than on %s alone", device_of(d), units,
                          threads ? "in a thread" : "in turns", device_of(0));
        }
        for (int d = 0; d < DEVICES; d++) free_rig(&t[d].rig);
    }
}

TEST(two_devices_in_one_process) {
    static const sl_dtype dtypes[] = {SL_F32, SL_BF16};
    static const int sizes[] = {40, 700};
    for (int s = 0; s < (test_on_gpu() ? 2 : 1); s++) {
        sl_model *model = make_model(sizes[s]);
        need_two(model);
        for (int i = 0; i < 2; i++) check_trainings(model, dtypes[i], sizes[s]);
        sl_model_free(model);
    }
}
