/* Asking cuDNN at planning time: whether it takes a problem, and how many bytes it wants. Answers are kept. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

typedef struct answer {
    sli_cudnn_key key;
    bool taken;
    bool passing;          /* it may be another next time: memory ran out */
    sli_cudnn_sizes sizes; /* enough for every call of the plan */
    sli_why why;
} answer;

enum { MAX_ANSWERS = 4096 };
static answer *answers; /* under the lock */
static int answer_count, answer_capacity;

static const answer *find_answer(const sli_cudnn_key *key) {
    for (int k = 0; k < answer_count; k++)
        if (memcmp(&answers[k].key, key, sizeof *key) == 0) return &answers[k];
    return NULL;
}

/* Not kept if there is no room: cuDNN is asked again. */
static void keep_answer(const answer *a) {
    if (a->passing) return;
    if (answer_count == answer_capacity) {
        int capacity = answer_capacity ? 2 * answer_capacity : 16;
        answer *more = capacity <= MAX_ANSWERS ? realloc(answers, (size_t)capacity * sizeof *more) : NULL;
        if (!more) return;
        answers = more;
        answer_capacity = capacity;
    }
    answers[answer_count++] = *a;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Calls of a plan may have fewer rows and steps, and cuDNN's choice of products may then want more workspace: the most that any
 * halving of the shape wants is booked. */
static void measure_smaller(const sli_cudnn_key *key, cudnnHandle_t questions, sli_cudnn_sizes *sizes) {
    for (int steps = key->problem.steps;; steps /= 2) {
        for (int batch = key->problem.batch;; batch /= 2) {
            sli_cudnn_key smaller = *key;
            sli_why why;
            smaller.problem.steps = steps;
            smaller.problem.batch = batch;
            sli_cudnn_shape *shape = sli_cudnn_shape_new(&smaller, questions, &why);
            if (shape) {
                sizes->workspace_inference = larger(sizes->workspace_inference, shape->sizes.workspace_inference);
                sizes->workspace_training = larger(sizes->workspace_training, shape->sizes.workspace_training);
                sizes->reserve = larger(sizes->reserve, shape->sizes.reserve);
            }
            sli_cudnn_shape_free(shape);
            if (batch == 1) break;
        }
        if (steps == 1) break;
    }
}

/* ----------------------------------------------------------------------------------------------------- trial --
 * Two steps of zeros. The persistent kernels refuse some sizes only when they are called; and a handle's first calls load
 * kernels and allocate, which must be over when a run records its work. */
typedef struct trial {
    const sli_cudnn_shape *shape;
    cudnnHandle_t handle;
    char *x, *y, *states, *weights, *workspace, *reserve;
    size_t state; /* bytes from one state array to the next */
} trial;

static bool try_calls(const trial *t, sli_why *why) {
    const sli_cudnn_shape *s = t->shape;
    const sli_cudnn_sizes *n = &s->sizes;
    bool lstm = s->c != NULL, train = s->key.problem.train;
    char *h[6];
    for (int k = 0; k < 6; k++) h[k] = t->states + (size_t)k * t->state;
    SLI_CUDNN_TRY(cudnnRNNForward(t->handle, s->rnn, train ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, NULL,
                                  s->x, t->x, s->y, t->y, s->h, h[0], h[1], s->c, lstm ? h[2] : NULL,
                                  lstm ? h[3] : NULL, n->weights, t->weights,
                                  train ? n->workspace_training : n->workspace_inference, t->workspace,
                                  train ? n->reserve : 0, train ? t->reserve : NULL),
                  why);
    if (!train) return true;
    SLI_CUDNN_TRY(cudnnRNNBackwardData_v8(t->handle, s->rnn, NULL, s->y, t->y, t->y, s->x, t->x, s->h, h[0], h[1], h[4],
                                          s->c, lstm ? h[2] : NULL, lstm ? h[3] : NULL, lstm ? h[5] : NULL, n->weights,
                                          t->weights, n->workspace_training, t->workspace, n->reserve, t->reserve),
                  why);
    SLI_CUDNN_TRY(cudnnRNNBackwardWeights_v8(t->handle, s->rnn, CUDNN_WGRAD_MODE_ADD, NULL, s->x, t->x, s->h, h[0],
                                             s->y, t->y, n->weights,
                                             t->weights + sli_round_up(n->weights, SLI_CUDNN_ALIGN),
                                             n->workspace_training, t->workspace, n->reserve, t->reserve),
                  why);
    return true;
}

/* Bytes, or with `block` the places, of the trial's arrays. */
static size_t place_trial(trial *t, uintptr_t block) {
    const sli_problem *p = &t->shape->key.problem;
    sli_cudnn_counts n = sli_cudnn_count(p);
    const sli_cudnn_sizes *sizes = &t->shape->sizes;
    size_t e = sli_cudnn_bytes(p), at = 0;
    t->state = sli_round_up(larger(n.h, n.c) * e, SLI_CUDNN_ALIGN);
    t->x = (char *)(block + sli_cudnn_take(&at, n.x * e));
    t->y = (char *)(block + sli_cudnn_take(&at, n.y * e));
    t->states = (char *)(block + sli_cudnn_take(&at, 6 * t->state));
    t->weights = (char *)(block + sli_cudnn_take(&at, 2 * sli_round_up(sizes->weights, SLI_CUDNN_ALIGN)));
    t->workspace = (char *)(block + sli_cudnn_take(&at, larger(sizes->workspace_inference, sizes->workspace_training)));
    t->reserve = (char *)(block + sli_cudnn_take(&at, sizes->reserve));
    return at;
}

/* Without memory for it there is no trial: cuDNN's sizes stand. */
static bool try_shape(const sli_cudnn_key *key, cudnnHandle_t questions, cudnnHandle_t handle, sli_why *why) {
    sli_cudnn_key two = *key;
    if (two.problem.steps > 2) two.problem.steps = 2;
    sli_cudnn_shape *shape = sli_cudnn_shape_new(&two, questions, why);
    if (!shape) return false;
    trial t = {.shape = shape, .handle = handle};
    size_t bytes = place_trial(&t, 0);
    CUdeviceptr block = 0;
    CUstream stream = NULL;
    bool taken = true;
    if (sli_cudnn.cuMemAlloc_v2(&block, bytes) == CUDA_SUCCESS &&
        sli_cudnn.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
        place_trial(&t, (uintptr_t)block);
        sli_cudnn.cuMemsetD8Async(block, 0, bytes, stream);
        taken = sli_cudnn_fine(sli_cudnn.cudnnSetStream(handle, stream), "cudnnSetStream", why) && try_calls(&t, why);
        CUresult done = sli_cudnn.cuStreamSynchronize(stream);
        if (done != CUDA_SUCCESS) sli_cudnn_passing = true;
        if (taken && done != CUDA_SUCCESS)
            taken = sli_cudnn_refuse(why, "cuDNN failed in a trial of two steps: CUDA error %d", (int)done);
        sli_cudnn.cudnnSetStream(handle, NULL);
    } else {
        sli_cudnn_passing = true;
    }
    if (stream) sli_cudnn.cuStreamDestroy_v2(stream);
    if (block) sli_cudnn.cuMemFree_v2(block);
    sli_cudnn_shape_free(shape);
    return taken;
}

/* ----------------------------------------------------------------------------------------------------- probe -- */
/* Persistent dynamic kernels would have to be built, which takes seconds: their handle is tried with the standard ones. */
static bool try_handle(const sli_cudnn_key *key, cudnnHandle_t questions, cudnnHandle_t spare, sli_why *why) {
    sli_cudnn_key tried = *key;
    if (key->algo == SLI_CUDNN_PERSIST_DYNAMIC) tried.algo = SLI_CUDNN_STANDARD;
    return try_shape(&tried, questions, spare, why);
}

static void ask(answer *a) {
    cudnnHandle_t questions, spare;
    if (!sli_cudnn_enter(a->key.device, &questions, &spare, &a->why)) return;
    sli_cudnn_shape *shape = sli_cudnn_shape_new(&a->key, questions, &a->why);
    a->taken = shape != NULL;
    if (shape) a->sizes = shape->sizes;
    sli_cudnn_shape_free(shape);
    if (a->taken) a->taken = try_handle(&a->key, questions, spare, &a->why);
    /* Every batch of persistent dynamic kernels may need a build to be measured. */
    if (a->taken && a->key.algo != SLI_CUDNN_PERSIST_DYNAMIC) measure_smaller(&a->key, questions, &a->sizes);
    sli_cudnn_leave();
}

/* The answer is known, but the handle made with it is in use: another, for the run to come. */
static void refill(const sli_cudnn_key *key) {
    cudnnHandle_t questions, spare;
    sli_why why;
    if (sli_cudnn_has_spare(key->device) || !sli_cudnn_enter(key->device, &questions, &spare, &why)) return;
    try_handle(key, questions, spare, &why);
    sli_cudnn_leave();
}

bool sli_cudnn_probe(const sli_problem *problem, const sli_caps *caps, sli_cudnn_algo algo, sli_booking *booking,
                     sli_why *why) {
    answer fresh = {.taken = false};
    sli_cudnn_key_fill(&fresh.key, problem, algo, caps->index);
    sli_cudnn_lock();
    const answer *known = find_answer(&fresh.key);
    if (known) {
        fresh = *known;
        if (fresh.taken) refill(&fresh.key);
    } else {
        sli_cudnn_passing = false;
        ask(&fresh);
        fresh.passing = sli_cudnn_passing;
        keep_answer(&fresh);
    }
    sli_cudnn_unlock();
    if (fresh.taken)
        sli_cudnn_book(problem, &fresh.sizes, booking);
    else
        *why = fresh.why;
    return fresh.taken;
}
