/* cuda:step: launches of runs. Host code. */
#include <stdio.h>

#include "backend/cuda/compile.h"
#include "backend/cuda/kernels/step_run_host.cuh"

static_assert(sizeof(step_forward_run) <= 32764 && sizeof(step_backward_run) <= 32764, "arguments of a kernel");

static float bound_of(const step_way *way) {
    return way->wide.scaled ? sli_step_bound(way) : 0.0f;
}

wide_args sli_step_wide_args(const step_way *way, float *to, int64_t row, const char *weights) {
    const sli_step_wide *w = &way->wide;
    wide_args a = {};
    a.weights = (const unsigned char *)weights;
    a.v = (const unsigned char *)(way->work + way->scratch.wide);
    if (w->runs) a.v_apart = (int64_t)sli_step_wide_v(w);
    a.d = to;
    a.apart = way->s.B * row;
    a.row = (int)row;
    a.B = (int)way->s.B;
    a.stages = w->stages;
    a.pieces = w->pieces;
    a.blocks = w->blocks;
    a.near = sli_step_wide_near(w, way->s.directions, sli_cuda_caps_of(way->queue)) / w->pieces;
    if (w->scaled) a.largest = (const float *)(way->weights + way->packed.wide_largest);
    a.bound = bound_of(way);
    return a;
}

step_wide_v sli_step_wide_place(const step_way *way) {
    const sli_step_wide *w = &way->wide;
    const int64_t depth = SLI_STEP_WIDE_BYTES / (w->narrow ? 2 : 4);
    return {way->work + way->scratch.wide, w->rows, bound_of(way), w->stages * depth * w->rows};
}

/* -------------------------------------------------------------------------------------------------------- launch -- */
/* Units in vectors, where rows and all that comes from outside begin at 16 bytes. */
static bool aligned(const step_way *way, const step_forward_args *a) {
    return way->s.H % 4 == 0 && sli_step_aligned_io(way, a->y) && sli_step_aligned(a->h_last) && sli_step_aligned(a->c_last) &&
           sli_step_aligned(a->bias_n);
}
static bool aligned(const step_way *way, const step_backward_args *a) {
    return way->s.H % 4 == 0 && sli_step_aligned_io(way, a->dy) && sli_step_aligned(a->pw_from) && sli_step_aligned(a->dc_from);
}

cudaError_t sli_step_run_configure(const void *kernel, const sli_step_wide *w, step_run_configuration *to) {
    const int shared = SLI_STEP_WIDE_SHARED(w->rows, w->narrow, sli_step_wide_pairs(w));
    *to = step_run_configuration{};
    to->config.gridDim = dim3((unsigned)sli_step_wide_grid(w), 1, 1);
    to->config.blockDim = dim3(SLI_STEP_WIDE_THREADS, 1, 1);
    to->config.dynamicSmemBytes = (size_t)shared;
    to->config.attrs = to->attributes;
    to->config.numAttrs = 1;
    to->attributes[0].id = cudaLaunchAttributeCooperative;
    to->attributes[0].val.cooperative = 1;
    if (sli_step_wide_pairs(w)) {
        to->attributes[1].id = cudaLaunchAttributeClusterDimension;
        to->attributes[1].val.clusterDim.x = 2;
        to->attributes[1].val.clusterDim.y = 1;
        to->attributes[1].val.clusterDim.z = 1;
        to->config.numAttrs = 2;
    }
    return sli_cuda_injected(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
}

static void launch(step_way *way, step_run *run, void *arguments, bool backward, bool vectors) {
    if (sli_cuda_failed(way->queue)) return;
    const sli_step_wide *w = &way->wide;
    char defines[SLI_STEP_RUN_DEFINES];
    sli_why why = {""};
    const sli_problem *p = &way->call->problem;
    sli_step_run_defines(p, w, backward, vectors ? 4 : 1, sli_step_options(p), sli_step_act(p), sli_step_gate_act(p), defines, sizeof defines);
    const void *kernel = (const void *)sli_cuda_compile(way->queue, SLI_STEP_RUN_SOURCE, SLI_STEP_RUN_ENTRY, defines, &why);
    if (!kernel) {
        if (!sli_cuda_failed(way->queue))
            sli_cuda_fail(way->queue, SL_ERR_DEVICE, "the kernel of many steps was not compiled: %s; SLUICE_NVRTC=0 does without it", why.text);
        return;
    }
    const int grid = sli_step_wide_grid(w);
    step_run_configuration c;
    if (!sli_cuda_try(way->queue, sli_step_run_configure(kernel, w, &c), "preparing many steps")) return;
    run->counts = (uint32_t *)(way->work + way->scratch.counts);
    run->v = way->run_v;
    run->d = way->run_d;
    way->run_v += (uint32_t)(grid * run->steps);
    way->run_d += (uint32_t)run->products;
    c.config.stream = way->stream;
    void *each[] = {arguments};
    sli_cuda_try(way->queue, sli_cuda_injected(cudaLaunchKernelExC(&c.config, kernel, each)), "launch of many steps");
}

/* Of two v that which the next product reads: they take turns from step to step, and the first is there before. */
static int turn_of(const step_way *way) {
    return (int)(way->run_v / (uint32_t)sli_step_wide_grid(&way->wide) % 2);
}

void sli_step_run_forward(step_way *way, step_forward_run *run, int steps) {
    bool vectors = true;
    run->run.product = sli_step_wide_args(way, (float *)(way->work + way->scratch.s), way->s.us, way->weights + way->packed.wide_forward);
    run->run.steps = run->run.products = steps;
    run->run.turn = turn_of(way);
    for (int i = 0; i < steps; i++) {
        run->step[i].s = {run->run.product.d, run->run.product.apart, run->run.product.pieces};
        run->step[i].wide.to = (char *)run->step[i].wide.to + (run->run.turn + i + 1) % 2 * run->run.product.v_apart;
        vectors = vectors && aligned(way, &run->step[i]);
    }
    launch(way, &run->run, run, false, vectors);
}

step_sums sli_step_run_backward(step_way *way, step_backward_run *run, int steps, bool ends) {
    bool vectors = true;
    run->run.product = sli_step_wide_args(way, (float *)(way->work + way->scratch.dp), way->s.hs, way->weights + way->packed.wide_backward);
    run->run.steps = steps;
    run->run.products = steps - (ends ? 1 : 0);
    run->run.turn = turn_of(way);
    const step_sums sums = {run->run.product.d, run->run.product.apart, run->run.product.pieces};
    for (int i = 0; i < steps; i++) {
        if (i > 0) run->step[i].dp = sums;
        run->step[i].wide.to = (char *)run->step[i].wide.to + (run->run.turn + i) % 2 * run->run.product.v_apart;
        vectors = vectors && aligned(way, &run->step[i]);
    }
    launch(way, &run->run, run, true, vectors);
    return ends ? step_sums{NULL, 0, 0} : sums;
}
