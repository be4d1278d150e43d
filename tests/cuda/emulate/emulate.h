/* CUDA C on the CPU, for tests where there is no GPU: what a kernel file uses of the language, and launches.
 *
 * Every thread is a fiber; one scheduler in one thread of the process chooses, from a seed, which fiber runs next, when stores
 * that are on their way arrive, which blocks, warps or lanes lag behind all others, and which block begins when all others wait. A program that waits for all that it
 * must wait for computes the same under every seed. Lanes of a warp are as independent as threads: they meet at warp-wide
 * instructions and at __syncwarp alone. Shared memory begins as NaN. Stores to global memory are visible at once.
 *
 * A launch fails with a sentence about: threads that wait for ever and at what; lanes that disagree about a warp-wide
 * instruction; addresses out of range or misaligned; stores into a block that has ended. */
#ifndef SLI_TESTS_EMULATE_H
#define SLI_TESTS_EMULATE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <functional>
#include <set>
#include <string>

#ifndef SLI_EMULATE
#define SLI_EMULATE 1
#endif

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline /* not always: compiled in a third of the time, and as fast */
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#define EMULATE_VECTORS(NAME, TYPE, SCALE)                                 \
    struct alignas(2 * sizeof(TYPE)) NAME##2 {                             \
        TYPE x, y;                                                         \
    };                                                                     \
    struct alignas(SCALE) NAME##4 {                                        \
        TYPE x, y, z, w;                                                   \
    };                                                                     \
    static inline NAME##2 make_##NAME##2(TYPE x, TYPE y) {                 \
        return {x, y};                                                     \
    }                                                                      \
    static inline NAME##4 make_##NAME##4(TYPE x, TYPE y, TYPE z, TYPE w) { \
        return {x, y, z, w};                                               \
    }
EMULATE_VECTORS(float, float, 16)
EMULATE_VECTORS(int, int, 16)
EMULATE_VECTORS(uint, unsigned, 16)
EMULATE_VECTORS(ushort, unsigned short, 8)

namespace emulate {

/* Where in the kernel's source something was called: default arguments are evaluated at the call. */
struct place {
    const char *file;
    int line;
    static constexpr place here(const char *f = __builtin_FILE(), int l = __builtin_LINE()) { return {f, l}; }
};
#define EMULATE_HERE emulate::place at = emulate::place::here()

struct launch_config {
    dim3 grid, block;
    unsigned cluster = 1;  /* blocks along x */
    size_t shared = 0;     /* bytes of dynamic shared memory of a block */
    unsigned resident = 0; /* clusters that run at a time; 0: all, as in a cooperative launch */
    uint64_t seed = 0;     /* 0: all in order, everything arrives at once */
};
struct launch_result {
    std::string failure; /* empty: ended well */
    uint64_t switches, collectives, deliveries;
};
/* Runs `kernel` in every thread of the grid. */
launch_result launch(const launch_config &config, const std::function<void()> &kernel);
/* Printed if the process dies of a signal; copied. */
void on_death(const std::string &text);

/* The registers of the running fiber that a kernel names. */
struct registers {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    unsigned cluster_rank;
    unsigned char *shared;
};
extern registers *now;

/* A warp-wide instruction: returns when all lanes of `mask` have called it, after `compute` saw the arguments of all. */
typedef void (*warp_function)(void **arguments, uint32_t mask, place at);
void warp_wide(const char *name, warp_function compute, uint32_t mask, void *arguments, place at);
void warp_nothing(void **arguments, uint32_t mask, place at);
void block_barrier(const char *name, int id, int threads, place at);
void cluster_barrier(place at);
/* Host pointer of `bytes` at a shared address, checked. */
enum reach { OWN_BLOCK, WHOLE_CLUSTER };
unsigned char *at_shared(uint32_t address, size_t bytes, size_t align, reach whose, place at);
void load_shared(uint32_t (&to)[4], uint32_t from, place at);
void load_global(void *to, const void *from, size_t bytes, place at);
uint32_t shared_address(const void *pointer, place at);
uint32_t map_shared(uint32_t address, uint32_t rank, place at);
void copy_later(uint32_t to, const void *from, size_t bytes, place at);
void copies_group();
void copies_wait(int but, place at); /* for all groups but the last so many */
void arrive_at(uint32_t barrier, place at);
void arrivals_init(uint32_t barrier, uint32_t count, place at);
void arrivals_expect(uint32_t barrier, uint32_t bytes, place at);
void arrivals_wait(uint32_t barrier, uint32_t parity, place at);
bool arrivals_came(uint32_t barrier, uint32_t parity, place at);
void send_later(uint32_t to, const void *data, const void *from, uint32_t bytes, uint32_t barrier, place at);
void count_release(uint32_t *counter, place at);
uint32_t count_acquire(const uint32_t *counter, place at);
void give(void *to, const void *words, size_t bytes, place at);
void take(uint32_t (&to)[4], const void *from, place at);
void fence_given(place at);
/* What launches ask L2 for ahead of time is noted here, unless it is NULL. */
extern std::set<const float *> *asked_ahead;
void pause(place at);
[[noreturn]] void fail(place at, const char *format, ...) __attribute__((format(printf, 2, 3)));

float from_bf16(uint32_t bits);
float from_f16(uint32_t bits);
uint32_t to_bf16(float x);
uint32_t to_f16(float x);
uint32_t to_tf32(uint32_t bits);

struct shuffle_arguments {
    uint32_t words[4];
    int count, from; /* lane that is read */
};
void warp_shuffle(void **arguments, uint32_t mask, place at);
template <typename T> T shuffle(uint32_t mask, T value, int from, int width, place at) {
    static_assert(sizeof(T) % 4 == 0 && sizeof(T) <= 16, "words");
    shuffle_arguments a = {{0, 0, 0, 0}, (int)(sizeof(T) / 4), from};
    const int lane = (int)(now->thread.x % 32);
    if (from < 0 || from > 31 || from / width != lane / width) a.from = lane;
    memcpy(a.words, &value, sizeof value);
    warp_wide("__shfl_sync", warp_shuffle, mask, &a, at);
    memcpy(&value, a.words, sizeof value);
    return value;
}
struct vote_arguments {
    uint32_t votes;
};
void warp_vote(void **arguments, uint32_t mask, place at);

} // namespace emulate

#define threadIdx (emulate::now->thread)
#define blockIdx (emulate::now->block)
#define blockDim (emulate::now->block_dim)
#define gridDim (emulate::now->grid_dim)
#define warpSize 32

/* In place of `extern __shared__`. */
static inline unsigned char *emulated_shared() {
    return emulate::now->shared;
}

static inline void __syncthreads(EMULATE_HERE) {
    emulate::block_barrier("__syncthreads", 0, (int)(blockDim.x * blockDim.y * blockDim.z), at);
}
static inline void __syncwarp(uint32_t mask = 0xffffffffu, EMULATE_HERE) {
    emulate::warp_wide("__syncwarp", emulate::warp_nothing, mask, nullptr, at);
}
template <typename T> T __shfl_sync(uint32_t mask, T value, int lane, int width = 32, EMULATE_HERE) {
    const int own = (int)(threadIdx.x % 32);
    return emulate::shuffle(mask, value, own / width * width + (lane & (width - 1)), width, at);
}
template <typename T> T __shfl_xor_sync(uint32_t mask, T value, int lanes, int width = 32, EMULATE_HERE) {
    return emulate::shuffle(mask, value, (int)(threadIdx.x % 32) ^ lanes, width, at);
}
template <typename T> T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32, EMULATE_HERE) {
    return emulate::shuffle(mask, value, (int)(threadIdx.x % 32) - (int)by, width, at);
}
template <typename T> T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32, EMULATE_HERE) {
    return emulate::shuffle(mask, value, (int)(threadIdx.x % 32) + (int)by, width, at);
}
static inline uint32_t __ballot_sync(uint32_t mask, int predicate, EMULATE_HERE) {
    emulate::vote_arguments a = {predicate ? 1u : 0u};
    emulate::warp_wide("__ballot_sync", emulate::warp_vote, mask, &a, at);
    return a.votes;
}
static inline int __any_sync(uint32_t mask, int predicate, EMULATE_HERE) {
    return __ballot_sync(mask, predicate, at) != 0;
}
static inline int __all_sync(uint32_t mask, int predicate, EMULATE_HERE) {
    return __ballot_sync(mask, predicate, at) == mask;
}

static inline uint32_t __float_as_uint(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __uint_as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline int __float_as_int(float x) {
    return (int)__float_as_uint(x);
}
static inline float __int_as_float(int bits) {
    return __uint_as_float((uint32_t)bits);
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
template <typename T> T __ldg(const T *from) {
    return *from;
}
template <typename T> T __ldcg(const T *from) {
    return *from;
}
template <typename T> T __ldcs(const T *from) {
    return *from;
}
template <typename T> void __stcg(T *to, T value) {
    *to = value;
}
template <typename T> void __stcs(T *to, T value) {
    *to = value;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline int min(int a, int b) {
    return a < b ? a : b;
}
static inline int max(int a, int b) {
    return a > b ? a : b;
}

#endif
