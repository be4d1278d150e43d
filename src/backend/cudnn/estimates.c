/* Estimates of the cuDNN rows: bytes on a device that is not there, cost, predicted time. */
#include <math.h>

#include "backend/cudnn/rules.h"

/* Weights: exact, cuDNN packs the matrices of all parts and two biases a gate. Reserve and workspace: what its equations need
 * kept (gates, c, the inner product of a GRU, h and its dropped copy; the input products of all parts and a GEMM workspace). */
void sli_cudnn_estimate(const sli_problem *p, sli_cudnn_sizes *sizes) {
    enum { GEMM_WORKSPACE = 4 << 20 };
    size_t e = sli_cudnn_bytes(p), G = (size_t)sli_cudnn_gates(p), H = (size_t)p->units, weights = 0;
    size_t O = (size_t)sli_problem_output(p), parts = (size_t)sli_cudnn_parts(p);
    for (int part = 0; part < (int)parts; part++)
        weights += G * H * (sli_cudnn_part_inputs(p, part) + O + 2) + (p->projection > 0 ? O * H : 0);
    size_t rows = sli_cudnn_steps(p) * (size_t)p->batch;
    sizes->weights = weights * e;
    sizes->reserve = parts * rows * (G + 4) * H * e;
    sizes->workspace_inference = parts * rows * G * H * e + GEMM_WORKSPACE;
    sizes->workspace_training = sizes->workspace_inference + parts * rows * H * e;
}

/* Multiply-adds count 2; training is forward, gradients of data, gradients of weights. */
void sli_cudnn_cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    double rows = (double)sli_cudnn_steps(p) * p->batch, G = sli_cudnn_gates(p), H = p->units;
    double O = sli_problem_output(p), times = p->train ? 3 : 1;
    cost->flops = cost->bytes = 0;
    for (int part = 0; part < sli_cudnn_parts(p); part++) {
        double I = (double)sli_cudnn_part_inputs(p, part), matrix = G * H * (I + O) + H * p->projection;
        cost->flops += times * 2 * rows * matrix;
        cost->bytes += times * 4 * (rows * (I + O + G * H) + matrix);
    }
}

/* ------------------------------------------------------------------------------------------------- seconds --
 * Fitted to cuDNN 9.19 on one H200 (132 multiprocessors, 1.98 GHz), LSTM, forward with input product, in a CUDA graph, T 20-2000,
 * B 1-256, H 64-4096: microseconds a step and part. Fits within about 30%; the planner needs the order only. */
typedef struct fit {
    double step;      /* us: launches and waiting of one step */
    double bytes;     /* bytes of recurrent weights a us */
    double flops;     /* FLOP a us of the step's product */
    double rows;      /* the product takes as long as for so many rows */
    double training;  /* forward and backward / forward */
    double big_flops; /* FLOP a us of the input product over all steps */
} fit;
/* Standard: 512 B16 .. 4096 B128, from the table of peers. */
static fit standard_fit(sl_dtype dtype) {
    if (dtype == SL_F32) return (fit){8, 3.0e6, 45e6, 64, 2.4, 45e6};
    if (dtype == SL_TF32) return (fit){7, 3.0e6, 180e6, 64, 2.9, 250e6};
    return (fit){5.5, 3.2e6, 400e6, 64, 2.5, 500e6};
}

/* Persistent static and dynamic: every multiprocessor reads all rows' h, so that time grows with rows. f16: 256 B16 1.3, B64 5.1;
 * 1024 B16 2.3, B128 14; 1536 B16 5.6, B32 8. f32 (FMA): 256 B1 0.96, B4 3.2; 512 B1 2.5, B4 4.5; 650 B20 21; 1024 B1 5.7-7.5. */
static double persistent_step(const sli_problem *p) {
    double H = p->units, B = p->batch;
    if (p->dtype == SL_F16) return 0.4 + 0.075 * B * (1 + H / 2048) + (H > 1024 ? 2.5 : 0);
    return 0.0065 * H + 0.75 * (B - 1) * fmax(1, H / 768);
}

/* Small-H: one block works on a slice of rows by itself. 128 B1 0.8-2.5, 64 B32 0.7. */
static double small_step(const sli_problem *p) {
    return 0.4 + 0.006 * p->units + 0.008 * fmax(p->batch, 8) * p->units / 64;
}

/* Standard: a product and a pointwise kernel a step, whichever of weights and multiply-adds takes longer. Few rows take another
 * product; 16-bit rows that are no multiple of 16 bytes halve its rate; the small kernels of two layers run side by side. */
static double standard_step(const sli_problem *p, const fit *f, double scale) {
    double e = (double)sli_cudnn_bytes(p), rows = fmax(p->batch, p->batch <= 8 ? 16 : f->rows);
    double matrix = (double)sli_cudnn_gates(p) * p->units * sli_problem_output(p) + (double)p->units * p->projection;
    double slow = sli_cudnn_narrow(p) && p->units % 8 != 0 ? 2 : 1;
    double step = f->step + scale * slow * fmax(e * matrix / f->bytes, 2 * rows * matrix / f->flops);
    return sli_cudnn_parts(p) > 1 && p->units <= 256 ? step / 2 : step;
}

double sli_cudnn_seconds(const sli_problem *p, const sli_caps *caps, sli_cudnn_algo algo) {
    /* Building persistent dynamic kernels takes seconds, once; counted as spread over a short training. */
    const double call = 30, build = algo == SLI_CUDNN_PERSIST_DYNAMIC ? 3e6 / 5000 : 0, reference_sms = 132;
    fit f = standard_fit(p->dtype);
    double G = sli_cudnn_gates(p), T = (double)sli_cudnn_steps(p), inputs = 0, step;
    double scale = caps->multiprocessors > 0 ? reference_sms / caps->multiprocessors : 1;
    for (int part = 0; part < sli_cudnn_parts(p); part++)
        inputs += 2 * T * p->batch * G * p->units * (double)sli_cudnn_part_inputs(p, part);
    if (algo == SLI_CUDNN_STANDARD)
        step = standard_step(p, &f, scale);
    else {
        step = G / 4 * (algo == SLI_CUDNN_SMALL_H ? small_step(p) : persistent_step(p));
        f.training = 3.2;
    }
    double us = sli_cudnn_parts(p) * T * step + scale * inputs / f.big_flops;
    return 1e-6 * (build + (call + us) * (p->train ? f.training : 1));
}
