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
 * A call: us = call + steps * step + input product; training adds as much for backward, and its products over all steps.
 * Origin of all constants: medians of replayed CUDA graphs on one H200 (132 multiprocessors), cuDNN 9.19, 2026-11-21, made by
 * `sluice bench bench/shapes.txt --device cuda:0 --dtype D --jsonl FILE`: LSTM and GRU, T 20-2000, B 1-256, H 64-4096, 1-4
 * layers. Times are us, rates bytes or FLOP a us, of the whole machine. The middle prediction is 5-10% off; what is 1.5 or
 * more is said below. */
enum {
    REFERENCE_MULTIPROCESSORS = 132,
    OVERLAP_UNITS = 256, /* kernels of layers up to this size run side by side */
    FEW_ROWS = 4,        /* up to here cuDNN multiplies matrix by vector */
    TILE_ROWS = 16,      /* a product's tile: fewer rows cost what they are, as many again cost less */
    MMA_UNITS = 32,      /* f16: persistent kernels of multiples of this use tensor cores; 200, 650, 1500 do not */
    SMALL_ROWS = 8,      /* rows of a block of the small-H kernels */
    HELD_BYTES = 106000, /* recurrent weights that persistent kernels hold on a multiprocessor */
};
static const double overlap = 0.35, l2_rate = 6.0e6, memory_rate = 4.0e6, l2_part = 0.8;

/* cudnn:standard, one product and one pointwise kernel a step. */
typedef struct standard_rates {
    double call;
    double forward, backward;             /* launches of one step */
    double forward_depth, backward_depth; /* and a unit: the sums of a product of few rows are a chain */
    double many_rows;                     /* and with more rows than one tile */
    double few, many;                     /* FLOP a us: a step's product of one tile of rows, of many */
    double all;                           /* FLOP a us: products over all steps */
    double unaligned;                     /* a step's product, where a row of weights is no multiple of 16 bytes */
} standard_rates;

/* Furthest off: two layers of 64 units, B32 take 1.5 times as long in f32, 1.5 times less in tf32 training. */
static const standard_rates standard_f32 = {15, 4.3, 5.4, 4.2e-3, 12.9e-3, 5.4, 12e6, 42e6, 55e6, 1};
static const standard_rates standard_tf32 = {8, 4.9, 13.4, 3.7e-3, 8.2e-3, 0, 1e9, 0.6e9, 230e6, 1.4};
static const standard_rates standard_16 = {12, 5.1, 6.5, 0, 2.1e-3, 0, 1e9, 1e9, 530e6, 3.4};

/* The persistent rows, one kernel for all steps: every multiprocessor reads all rows' h, so that time grows with rows. */
typedef struct persistent_pass {
    double step, unit; /* a step; and a unit */
    double row;        /* a step and row */
    double spilled;    /* bytes a us: weights that are not held are read for every row */
} persistent_pass;
typedef struct persistent_rates {
    double wide; /* from so many units on a row costs in proportion to them */
    persistent_pass forward, backward;
} persistent_rates;

/* 512 units, B128 takes 1.7 times less than predicted. */
static const persistent_rates static_fma = {2560, {0, 1.5e-3, 0.77, 0.81e6}, {0, 25e-3, 0.84, 6.0e6}};
static const persistent_rates dynamic_f32 = {720, {0, 1.6e-3, 0.66, 1.6e6}, {2.7, 0, 0.87, 1.7e6}};
static const persistent_rates dynamic_f16 = {625, {0, 1.8e-3, 0.83, 1.6e6}, {2.6, 0, 1.6, 1.7e6}};
/* Tensor cores take the first rows together; forward reads what is not held once a step. GRU: one figure only, H768 B16. */
static const persistent_rates static_mma = {740, {0.88, 1.4e-3, 0.068, 3.0e6}, {2.7, 1.3e-3, 0.116, 5.8e6}};
static const double mma_gru = 1.95, persistent_call = 8;

static double recurrent_matrix(const sli_problem *p) {
    return (double)sli_cudnn_gates(p) * p->units * sli_problem_output(p) + (double)p->units * p->projection;
}

static const standard_rates *standard_of(sl_dtype dtype) {
    return dtype == SL_F32 ? &standard_f32 : dtype == SL_TF32 ? &standard_tf32 : &standard_16;
}

/* Weights are read in every step, from L2 where those of all parts fit into it, and multiplied. A projection is a second
 * product with launches of its own: twelve, 16 to 256 rows of 512 to 4096 units projected to 32 to 512, are predicted at 0.70 to 1.27 of what was
 * measured, without them at 0.51 to 0.87 (bench/results/projection_h200_2026-11-24.txt). */
static double standard_step(const sli_problem *p, const sli_caps *caps, double scale, bool backward) {
    const standard_rates *r = standard_of(p->dtype);
    double e = (double)sli_cudnn_bytes(p), matrix = recurrent_matrix(p), B = p->batch;
    int parts = sli_cudnn_parts(p);
    bool few = B <= FEW_ROWS;
    double read = e * matrix / (e * matrix * parts < l2_part * (double)caps->l2_bytes ? l2_rate : memory_rate);
    double multiply = 2 * matrix * fmax(fmin(B, TILE_ROWS) / r->few, B / r->many);
    double depth = few ? 0 : (backward ? r->backward_depth : r->forward_depth) * p->units;
    double unaligned = (size_t)p->units * sli_cudnn_bytes(p) % 16 != 0 ? r->unaligned : 1;
    double launches = (backward && !few ? r->backward : r->forward) + (B > TILE_ROWS ? r->many_rows : 0);
    double step = (p->projection > 0 ? 2 : 1) * launches + unaligned * (scale * (read + multiply) + depth);
    return p->units <= OVERLAP_UNITS ? step * (1 + overlap * (parts - 1)) / parts : step;
}

static double persistent_step(const sli_problem *p, sli_cudnn_algo algo, double scale, bool backward) {
    bool mma = algo == SLI_CUDNN_PERSIST_STATIC && p->dtype == SL_F16 && p->units % MMA_UNITS == 0;
    const persistent_rates *r = algo == SLI_CUDNN_PERSIST_DYNAMIC ? p->dtype == SL_F16 ? &dynamic_f16 : &dynamic_f32
                                : mma                             ? &static_mma
                                                                  : &static_fma;
    const persistent_pass *pass = backward ? &r->backward : &r->forward;
    double H = p->units, B = p->batch, held = HELD_BYTES * (REFERENCE_MULTIPROCESSORS / scale);
    double spilled = fmax(0, recurrent_matrix(p) * (mma ? 2 : 4) - held) / pass->spilled;
    double rows = mma ? fmax(0, B - SMALL_ROWS) : B;
    double step = pass->step + pass->unit * H + scale * pass->row * rows * fmax(1, H / r->wide);
    step += scale * spilled * (mma && !backward ? 1 : B);
    return mma && p->op == SLI_OP_GRU ? mma_gru * step : step;
}

/* Small-H: one block works on a slice of rows by itself; backward takes 1.3 us more a step. */
static double small_step(const sli_problem *p, double scale, bool backward) {
    double blocks = REFERENCE_MULTIPROCESSORS / scale;
    return (0.0115 * p->units + (backward ? 1.3 : 0)) * fmax(1, p->batch / (SMALL_ROWS * blocks));
}

double sli_cudnn_seconds(const sli_problem *p, const sli_caps *caps, sli_cudnn_algo algo) {
    /* Building persistent dynamic kernels takes seconds, once; counted as spread over a short training. */
    const double build = algo == SLI_CUDNN_PERSIST_DYNAMIC ? 3e6 / 5000 : 0, small_call = 38;
    const standard_rates *rates = standard_of(p->dtype);
    double scale = caps->multiprocessors > 0 ? (double)REFERENCE_MULTIPROCESSORS / caps->multiprocessors : 1;
    double T = (double)sli_cudnn_steps(p), parts = sli_cudnn_parts(p), us = build, inputs = 0;
    for (int part = 0; part < sli_cudnn_parts(p); part++)
        inputs += 2 * T * p->batch * sli_cudnn_gates(p) * p->units * (double)sli_cudnn_part_inputs(p, part);
    for (int backward = 0; backward <= (p->train ? 1 : 0); backward++) {
        double step = algo == SLI_CUDNN_STANDARD  ? standard_step(p, caps, scale, backward)
                      : algo == SLI_CUDNN_SMALL_H ? small_step(p, scale, backward)
                                                  : persistent_step(p, algo, scale, backward);
        double call = algo == SLI_CUDNN_STANDARD  ? rates->call
                      : algo == SLI_CUDNN_SMALL_H ? small_call
                                                  : persistent_call;
        double flops = backward ? 2 * inputs + 2 * T * p->batch * parts * recurrent_matrix(p) : inputs;
        us += call + parts * T * step + scale * flops / rates->all;
    }
    return 1e-6 * us;
}
