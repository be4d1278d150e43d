/* cuDNN handles of each GPU. They live as long as the process: cuDNN cannot be relied on while it ends. */
#include <pthread.h>

#include "internal.h"

enum { MAX_GPUS = 64, MAX_SPARE = 64 };

typedef struct gpu {
    CUcontext context;
    cudnnHandle_t questions; /* never launches anything; under the lock */
    cudnnHandle_t spare[MAX_SPARE];
    int spares;
} gpu;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static gpu gpus[MAX_GPUS];

void sli_cudnn_lock(void) {
    pthread_mutex_lock(&lock);
}
void sli_cudnn_unlock(void) {
    pthread_mutex_unlock(&lock);
}

static bool driver_fine(CUresult result, const char *what, sli_why *why) {
    if (result == CUDA_SUCCESS) return true;
    sli_cudnn_passing = true;
    return sli_cudnn_refuse(why, "the CUDA driver says error %d in %s while cuDNN is made ready", (int)result, what);
}

bool sli_cudnn_questions(int index, cudnnHandle_t *questions, sli_why *why) {
    if (index < 0 || index >= MAX_GPUS)
        return sli_cudnn_refuse(why, "GPU %d: cuDNN rows serve the first %d", index, MAX_GPUS);
    gpu *g = &gpus[index];
    if (!g->questions) SLI_CUDNN_TRY(cudnnCreate(&g->questions), why);
    *questions = g->questions;
    return true;
}

/* The context that the CUDA runtime uses as well; kept for ever. */
static bool find_context(int index, gpu *g, sli_why *why) {
    CUdevice device;
    if (g->context) return true;
    return driver_fine(sli_cudnn.cuInit(0), "cuInit", why) &&
           driver_fine(sli_cudnn.cuDeviceGet(&device, index), "cuDeviceGet", why) &&
           driver_fine(sli_cudnn.cuDevicePrimaryCtxRetain(&g->context, device), "cuDevicePrimaryCtxRetain", why);
}

bool sli_cudnn_has_spare(int index) {
    return index >= 0 && index < MAX_GPUS && gpus[index].spares > 0;
}

bool sli_cudnn_enter(int index, cudnnHandle_t *questions, cudnnHandle_t *spare, sli_why *why) {
    if (index < 0 || index >= MAX_GPUS)
        return sli_cudnn_refuse(why, "GPU %d: cuDNN rows serve the first %d", index, MAX_GPUS);
    gpu *g = &gpus[index];
    if (!find_context(index, g, why)) return false;
    if (!driver_fine(sli_cudnn.cuCtxPushCurrent_v2(g->context), "cuCtxPushCurrent", why)) return false;
    bool fine = sli_cudnn_questions(index, questions, why);
    if (fine && g->spares == 0) {
        fine = sli_cudnn_fine(sli_cudnn.cudnnCreate(&g->spare[0]), "cudnnCreate", why);
        if (fine) g->spares = 1;
    }
    if (fine) *spare = g->spare[g->spares - 1]; /* the one to be taken next */
    if (!fine) sli_cudnn_leave();
    return fine;
}

void sli_cudnn_leave(void) {
    CUcontext former;
    sli_cudnn.cuCtxPopCurrent_v2(&former);
}

bool sli_cudnn_take_handle(int index, cudnnHandle_t *handle, sli_why *why) {
    bool fine = true;
    sli_cudnn_lock();
    if (index >= 0 && index < MAX_GPUS && gpus[index].spares > 0)
        *handle = gpus[index].spare[--gpus[index].spares];
    else
        fine = sli_cudnn_fine(sli_cudnn.cudnnCreate(handle), "cudnnCreate", why);
    sli_cudnn_unlock();
    return fine;
}

/* More than MAX_SPARE at once: the handle stays unused. */
void sli_cudnn_give_handle(int index, cudnnHandle_t handle) {
    sli_cudnn_lock();
    if (index >= 0 && index < MAX_GPUS && gpus[index].spares < MAX_SPARE)
        gpus[index].spare[gpus[index].spares++] = handle;
    sli_cudnn_unlock();
}
