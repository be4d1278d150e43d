/* The one random generator: Philox4x32-10 (Salmon 2011), counter-based, so that masks are recomputed and never stored and
 * are the same on every device. Header only: compiled by C11 and CUDA C alike.
 *   key     = seed (64 bits)
 *   counter = { element / 4, step, layer << 8 | purpose, micro_step },   word = element % 4
 * `element` is the index in the logical [T][global batch][H] whatever the layout. Dropped when word < p * 2^32. */
#ifndef SLI_RNG_H
#define SLI_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define SLI_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SLI_HOST_DEVICE static inline
#endif

enum sli_purpose {
    SLI_PURPOSE_INIT = 1,
    SLI_PURPOSE_DROPOUT = 2,
    SLI_PURPOSE_RECURRENT_DROPOUT = 3,
    SLI_PURPOSE_ZONEOUT_H = 4,
    SLI_PURPOSE_ZONEOUT_C = 5,
    SLI_PURPOSE_SHUFFLE = 6,
    SLI_PURPOSE_SAMPLE = 7,
    SLI_PURPOSE_BACKWARD_DIRECTION = 0x40 /* added by the backward half of a bidirectional layer */
};

typedef struct sli_rng_words {
    uint32_t word[4];
} sli_rng_words;

/* One block of four words. */
SLI_HOST_DEVICE sli_rng_words sli_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    sli_rng_words out = {{c0, c1, c2, c3}};
    return out;
}

/* What a kernel needs to draw: everything but the element. */
typedef struct sli_rng {
    uint64_t seed;
    uint32_t step, micro_step;
    uint32_t stream; /* layer << 8 | purpose */
} sli_rng;

/* Chosen, not indexed: a GPU's registers have no index, words would go through memory. */
SLI_HOST_DEVICE uint32_t sli_rng_word(const sli_rng *rng, uint64_t element) {
    const sli_rng_words of = sli_philox(rng->seed, (uint32_t)(element >> 2), rng->step, rng->stream, rng->micro_step);
    const uint32_t low = element & 1 ? of.word[1] : of.word[0], high = element & 1 ? of.word[3] : of.word[2];
    return element & 2 ? high : low;
}

/* Dropped iff sli_rng_word(...) < sli_drop_threshold(p); p in [0, 1). */
SLI_HOST_DEVICE uint32_t sli_drop_threshold(double p) {
    return (uint32_t)(p * 4294967296.0);
}
/* Uniform in (0, 1), 53 bits' worth from two words is not needed anywhere: 32 bits, centred. */
SLI_HOST_DEVICE double sli_rng_uniform(const sli_rng *rng, uint64_t element) {
    return ((double)sli_rng_word(rng, element) + 0.5) * (1.0 / 4294967296.0);
}

#endif
