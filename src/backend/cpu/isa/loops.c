/* Loops over elements: softmax, dropout, optimizers, norms. A sum over elements runs in 32 lanes that are added in order at
 * the end, so that it has one order whatever the width of a vector. */
#include <math.h>
#include <string.h>
#include "backend/cpu/isa/exponential.h"
#include "backend/cpu/isa/isa.h"
#include "core/rng.h"

enum { LANES = 32 };

/* ----------------------------------------------------------------------------------------------------- softmax -- */
/* e^x for x <= 0: to the last digits down to -87, from -88.03 = -127 / log2e on 0, whose bits that number's exponent leaves none. So what
 * lies far below the largest costs no arithmetic of denormals here, nor in the products that follow. */
VF_INLINE vf decay(vf x) {
    return exp_times(vf_clamp(x, vf_set(-88.03f), vf_set(0.0f)), 1.44269504f, 1.92596299e-8f);
}

/* *largest = max z, *sum = sum of exp(z - largest). */
void ISA(softmax_sum)(size_t n, const float *z, float *largest, double *sum) {
    enum { VECTORS = LANES / VL };
    float best = z[0], lane[LANES], lanes[VL];
    for (int j = 0; j < LANES; j++) lane[j] = z[0];
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = z[i + j] > lane[j] ? z[i + j] : lane[j];
    for (; i < n; i++) best = z[i] > best ? z[i] : best;
    for (int j = 0; j < LANES; j++) best = lane[j] > best ? lane[j] : best;
    const vf top = vf_set(best);
    vf total[VECTORS];
    for (int v = 0; v < VECTORS; v++) total[v] = vf_set(0.0f);
    for (i = 0; i + LANES <= n; i += LANES)
        for (int v = 0; v < VECTORS; v++) total[v] += decay(vf_load(z + i + v * VL) - top);
    double rest = 0;
    for (size_t count; i < n; i += count) {
        count = n - i < VL ? n - i : VL;
        vf_store(lanes, decay((count < VL ? vf_load_part(z + i, (int)count) : vf_load(z + i)) - top));
        for (size_t j = 0; j < count; j++) rest += (double)lanes[j];
    }
    for (int v = 0; v < VECTORS; v++) vf_store(lane + v * VL, total[v]);
    for (int j = 0; j < LANES; j++) rest += (double)lane[j];
    *largest = best;
    *sum = rest;
}

/* dz = or += factor * exp(z - largest); dz may be z. */
void ISA(softmax_gradient)(size_t n, const float *z, float largest, float factor, float *dz, bool add) {
    const vf top = vf_set(largest), by = vf_set(factor);
    size_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf d = by * decay(vf_load(z + i) - top);
        if (add) d += vf_load(dz + i);
        vf_store(dz + i, d);
    }
    if (i == n) return;
    const int rest = (int)(n - i);
    vf d = by * decay(vf_load_part(z + i, rest) - top);
    if (add) d += vf_load_part(dz + i, rest);
    vf_store_part(dz + i, d, rest);
}

/* ----------------------------------------------------------------------------------------------------- dropout -- */
/* Words of elements first .. first + 4*LANES - 1; first is a multiple of 4. */
static void philox_words(const sli_rng *rng, uint64_t first, uint32_t *restrict words) {
    uint32_t w0[LANES], w1[LANES], w2[LANES], w3[LANES];
    for (int j = 0; j < LANES; j++) {
        const sli_rng_words w =
            sli_philox(rng->seed, (uint32_t)(first >> 2) + (uint32_t)j, rng->step, rng->stream, rng->micro_step);
        w0[j] = w.word[0];
        w1[j] = w.word[1];
        w2[j] = w.word[2];
        w3[j] = w.word[3];
    }
    for (int j = 0; j < LANES; j++) {
        words[4 * j] = w0[j];
        words[4 * j + 1] = w1[j];
        words[4 * j + 2] = w2[j];
        words[4 * j + 3] = w3[j];
    }
}

/* y = or += x * (dropped ? 0 : scale), elements first .. first + n - 1; y may be x. */
void ISA(dropout)(const sli_rng *rng, uint64_t first, size_t n, uint32_t threshold, float scale, const float *x,
                  float *y, bool add) {
    uint32_t words[4 * LANES];
    for (size_t i = 0; i < n;) {
        const uint64_t aligned = (first + i) & ~(uint64_t)3;
        const size_t skip = (size_t)(first + i - aligned), room = 4 * LANES - skip, count = n - i < room ? n - i : room;
        philox_words(rng, aligned, words);
        const uint32_t *w = words + skip;
        if (add) {
            INDEPENDENT
            for (size_t j = 0; j < count; j++) y[i + j] += x[i + j] * (w[j] < threshold ? 0.0f : scale);
        } else {
            INDEPENDENT
            for (size_t j = 0; j < count; j++) y[i + j] = x[i + j] * (w[j] < threshold ? 0.0f : scale);
        }
        i += count;
    }
}

/* ------------------------------------------------------------------------------------------------ norm, update -- */
/* Sum of squares in double; then g is clipped by value in place where limit > 0. */
double ISA(squares)(size_t n, float *g, float limit) {
    double lane[LANES] = {0}, total = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (double)g[i + j] * (double)g[i + j];
    for (; i < n; i++) total += (double)g[i] * (double)g[i];
    for (int j = 0; j < LANES; j++) total += lane[j];
    if (limit > 0)
        for (i = 0; i < n; i++) g[i] = g[i] > limit ? limit : g[i] < -limit ? -limit : g[i];
    return total;
}

/* g scaled by the clip factor, and with L2 where the optimizer adds it to the gradient. */
#define GRADIENT(i) (g[i] * o->factor + o->weight_decay * p[i])

static void sgd(const sli_isa_update *o, size_t n, float *restrict p, float *restrict g, float *restrict m) {
    if (o->momentum == 0)
        for (size_t i = 0; i < n; i++) p[i] -= o->rate * GRADIENT(i);
    else if (o->nesterov)
        for (size_t i = 0; i < n; i++) {
            const float step = GRADIENT(i);
            m[i] = o->momentum * m[i] + step;
            p[i] -= o->rate * (step + o->momentum * m[i]);
        }
    else
        for (size_t i = 0; i < n; i++) {
            m[i] = o->momentum * m[i] + GRADIENT(i);
            p[i] -= o->rate * m[i];
        }
}

/* decay: p *= 1 - lr * wd first (AdamW). p -= rate1 m / (sqrt(v) / root2 + epsilon), rate1 = lr / (1 - beta1^k),
 * root2 = sqrt(1 - beta2^k). */
static void adam(const sli_isa_update *o, size_t n, float *restrict p, float *restrict g, float *restrict m,
                 float *restrict v) {
    for (size_t i = 0; i < n; i++) {
        const float x = p[i] * o->decay, d = g[i] * o->factor + o->weight_decay * p[i];
        m[i] += o->one_beta1 * (d - m[i]);
        v[i] = o->beta2 * v[i] + o->one_beta2 * d * d;
        p[i] = x - o->rate * m[i] / (sqrtf(v[i]) / o->root2 + o->epsilon);
    }
}

static void rmsprop(const sli_isa_update *o, size_t n, float *restrict p, float *restrict g, float *restrict v) {
    for (size_t i = 0; i < n; i++) {
        const float d = GRADIENT(i);
        v[i] = o->beta2 * v[i] + o->one_beta2 * d * d;
        p[i] -= o->rate * d / (sqrtf(v[i]) + o->epsilon);
    }
}

void ISA(update)(const sli_isa_update *o, size_t n, float *p, float *g, float *slot0, float *slot1) {
    if (o->kind == SLI_UPDATE_SGD)
        sgd(o, n, p, g, slot0);
    else if (o->kind == SLI_UPDATE_ADAM)
        adam(o, n, p, g, slot0, slot1);
    else
        rmsprop(o, n, p, g, slot0);
    for (size_t i = 0; i < n && !o->keep; i++) g[i] = 0.0f;
}
