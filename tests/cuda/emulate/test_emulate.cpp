/* The emulation itself: what kernels may rely on, and that it finds what they do wrong. */
#include <vector>
#include "backend/cuda/kernels/ptx.cuh"
#include "cases.h"

using emulate::launch;
using emulate::launch_config;

static launch_config config_of(unsigned blocks, unsigned threads, unsigned cluster, size_t shared, uint64_t seed) {
    launch_config config;
    config.grid = dim3(blocks);
    config.block = dim3(threads);
    config.cluster = cluster;
    config.shared = shared;
    config.seed = seed;
    return config;
}
/* What was found to be wrong must contain `text`. */
static std::string expect_failure(const launch_config &config, const char *text, const std::function<void()> &kernel) {
    const std::string failure = launch(config, kernel).failure;
    if (failure.find(text) != std::string::npos) return "";
    return "expected a failure that says '" + std::string(text) + "', not '" + failure + "'";
}
static uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}
static float value_of(uint32_t i) { /* exact in every type: multiples of 1/8 up to 4 */
    return (float)((int)(mix(i) % 64) - 32) / 8.0f;
}

EMULATE_CASE("emulate: conversions") {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float bf = emulate::from_bf16(bits), h = emulate::from_f16(bits);
        if (bf == bf && emulate::to_bf16(bf) != bits) return emulate_say("bf16 %04x", bits);
        if (h == h && emulate::to_f16(h) != bits) return emulate_say("f16 %04x", bits);
    }
    if (emulate::to_f16(65519.0f) != 0x7bff || emulate::to_f16(65520.0f) != 0x7c00) return "f16 at its end";
    if (emulate::to_f16(1.00048828125f) != 0x3c00 || emulate::to_f16(1.00146484375f) != 0x3c02)
        return "f16 ties to even";
    if (emulate::to_bf16(1.00390625f) != 0x3f80 || emulate::to_bf16(1.01171875f) != 0x3f82) return "bf16 ties to even";
    if (emulate::to_tf32(0x3f801000u) != 0x3f802000u || emulate::to_tf32(0x3f800fffu) != 0x3f800000u)
        return "tf32 ties away from zero";
    return "";
}

/* d [16][8] = a [16][k] b [8][k]^T by the layouts that ptx.cuh states: a by 4-byte loads, b by ptx_load_matrices. */
static std::string check_mma(int type, uint64_t seed) {
    const int k = type == 2 ? 8 : 16;
    std::vector<float> a(16 * k), b(8 * k), d(16 * 8, NAN);
    for (size_t i = 0; i < a.size(); i++) a[i] = value_of((uint32_t)i);
    for (size_t i = 0; i < b.size(); i++) b[i] = value_of((uint32_t)i + 1000);
    const auto bits_of = [&](float x) {
        return type == 0 ? emulate::to_bf16(x) : type == 1 ? emulate::to_f16(x) : __float_as_uint(x);
    };
    const std::string failure =
        launch(config_of(1, 32, 1, 24 * 48, seed), [&] {
            unsigned char *shared = emulated_shared();
            const int lane = (int)threadIdx.x, bytes = 32 / k;
            for (int i = lane; i < 24 * k; i += 32) { /* a, then b: rows of 32 bytes, 48 apart */
                const uint32_t bits = bits_of(i < 16 * k ? a[i] : b[i - 16 * k]);
                memcpy(shared + i / k * 48 + i % k * bytes, &bits, (size_t)bytes);
            }
            __syncwarp();
            uint32_t of_a[4], of_b[2];
            for (int part = 0; part < 4; part++)
                memcpy(&of_a[part], shared + (lane / 4 + part % 2 * 8) * 48 + part / 2 * 16 + lane % 4 * 4, 4);
            ptx_load_matrices(of_b, ptx_shared(shared + (16 + lane % 8) * 48 + lane / 8 % 2 * 16));
            float sum[4] = {1, 1, 1, 1};
            if (type == 0) ptx_mma_bf16(sum, of_a, of_b[0], of_b[1]);
            if (type == 1) ptx_mma_f16(sum, of_a, of_b[0], of_b[1]);
            if (type == 2) ptx_mma_tf32(sum, of_a, of_b[0], of_b[1]);
            for (int part = 0; part < 4; part++) d[(lane / 4 + part / 2 * 8) * 8 + lane % 4 * 2 + part % 2] = sum[part];
        }).failure;
    if (!failure.empty()) return failure;
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            float sum = 1;
            for (int i = 0; i < k; i++) sum += a[row * k + i] * b[column * k + i];
            if (d[row * 8 + column] != sum)
                return emulate_say("d[%d][%d] is %g, not %g", row, column, d[row * 8 + column], sum);
        }
    return "";
}
EMULATE_CASE("emulate: mma bf16") {
    return check_mma(0, seed);
}
EMULATE_CASE("emulate: mma f16") {
    return check_mma(1, seed);
}
EMULATE_CASE("emulate: mma tf32") {
    return check_mma(2, seed);
}

EMULATE_CASE("emulate: shuffles and votes") {
    std::vector<uint32_t> got(64 * 4);
    const std::string failure =
        launch(config_of(1, 64, 1, 0, seed), [&] {
            const uint32_t lane = threadIdx.x % 32, all = 0xffffffffu;
            uint32_t *to = &got[threadIdx.x * 4];
            to[0] = __shfl_xor_sync(all, lane * 3, 5);
            to[1] = (uint32_t)__shfl_sync(all, (float)lane, (int)lane + 1, 8);
            to[2] = __ballot_sync(all, lane % 3 == 0);
            to[3] = lane < 16 ? __shfl_down_sync(0xffffu, lane, 4, 16) : __shfl_up_sync(0xffff0000u, lane, 4u, 16);
        }).failure;
    if (!failure.empty()) return failure;
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t lane = i % 32, down = lane < 12 ? lane + 4 : lane, up = lane < 20 ? lane : lane - 4;
        const uint32_t expected[4] = {(lane ^ 5) * 3, lane / 8 * 8 + (lane + 1) % 8, 0x49249249u,
                                      lane < 16 ? down : up};
        for (int j = 0; j < 4; j++)
            if (got[i * 4 + j] != expected[j]) return emulate_say("thread %u, result %d: %u", i, j, got[i * 4 + j]);
    }
    return "";
}

/* Two blocks of a cluster: each step, every thread sends what it has to the other block, two buffers in turns. `mistake`
 * leaves something out. */
enum exchange_mistake {
    EXCHANGE_RIGHT,
    EXCHANGE_NO_WAIT,
    EXCHANGE_UNWAITED,
    EXCHANGE_FEW_BYTES,
    EXCHANGE_NO_INIT,
    EXCHANGE_TWICE
};
static void exchange(exchange_mistake mistake, int steps, std::vector<uint32_t> *result) {
    unsigned char *shared = emulated_shared();
    const uint32_t self = ptx_shared(shared), barriers = self + 2 * 64 * 16;
    const uint32_t next = 1 - ptx_cluster_rank(), thread = threadIdx.x;
    if (thread == 0 && mistake != EXCHANGE_NO_INIT) {
        ptx_arrivals_init(barriers, 1);
        ptx_arrivals_init(barriers + 8, 1);
        ptx_arrivals_init_fence();
        ptx_arrivals_expect(barriers, 64 * 16);
        ptx_arrivals_expect(barriers + 8, 64 * 16);
    }
    ptx_cluster_sync();
    uint32_t v[4] = {blockIdx.x, thread, 1, 0};
    for (int s = 0; s < steps; s++) {
        const uint32_t buffer = (uint32_t)s & 1u, barrier = barriers + 8 * buffer;
        const bool skip = mistake == EXCHANGE_FEW_BYTES && s == 2 && thread == 5;
        if (!skip) ptx_send16(ptx_map(self + (buffer * 64 + thread) * 16, next), v, ptx_map(barrier, next));
        if (mistake != EXCHANGE_NO_WAIT) ptx_arrivals_wait(barrier, (uint32_t)s >> 1 & 1u);
        if (thread == 0) ptx_arrivals_expect(barrier, 64 * 16);
        if (mistake == EXCHANGE_TWICE && thread == 1) ptx_arrivals_expect(barrier, 64 * 16);
        /* Of another thread: it must have arrived, too. */
        memcpy(v, shared + (buffer * 64 + (thread + 1) % 64) * 16, sizeof v);
        v[2] = v[2] * 3 + v[1];
    }
    if (mistake == EXCHANGE_UNWAITED) ptx_send16(ptx_map(self + thread * 16, next), v, ptx_map(barriers, next));
    (*result)[blockIdx.x * 64 + thread] = v[2] ^ v[0] << 24;
}
static std::string check_exchange(exchange_mistake mistake, uint64_t seed) {
    enum { BLOCKS = 8, STEPS = 9 };
    std::vector<uint32_t> result(BLOCKS * 64, 0);
    launch_config config = config_of(BLOCKS, 64, 2, 2 * 64 * 16 + 16, seed);
    config.resident = seed & 1 ? 1 : 0;
    const std::string failure = launch(config, [&] { exchange(mistake, STEPS, &result); }).failure;
    if (!failure.empty()) return failure;
    for (uint32_t block = 0; block < BLOCKS; block++)
        for (uint32_t thread = 0; thread < 64; thread++) {
            const uint32_t first = block ^ (STEPS & 1), from = (thread + STEPS) % 64;
            uint32_t x = 1;
            for (int s = 0; s < STEPS; s++) x = x * 3 + from;
            if (result[block * 64 + thread] != (x ^ first << 24))
                return emulate_say("block %u thread %u", block, thread);
        }
    return "";
}
EMULATE_CASE("emulate: exchange through a cluster") {
    for (uint64_t i = 0; i < 10; i++) {
        const std::string wrong = check_exchange(EXCHANGE_RIGHT, seed ? seed * 100 + i : 0);
        if (!wrong.empty()) return wrong;
    }
    return "";
}
/* A mistake must be found under one of a few seeds. */
static std::string must_find(exchange_mistake mistake, const char *text) {
    std::string found;
    for (uint64_t i = 1; i < 30 && found.empty(); i++) found = check_exchange(mistake, i);
    if (found.empty()) return "the mistake was not found";
    return found.find(text) == std::string::npos ? "found as: " + found : "";
}
EMULATE_CASE("emulate: finds a missing wait for arrivals") {
    return must_find(EXCHANGE_NO_WAIT, "");
}
EMULATE_CASE("emulate: finds a block that ends too early") {
    return must_find(EXCHANGE_UNWAITED, "ended");
}
EMULATE_CASE("emulate: finds bytes that are never sent") {
    return must_find(EXCHANGE_FEW_BYTES, "wait for ever");
}
EMULATE_CASE("emulate: finds a barrier that was not initialised") {
    return must_find(EXCHANGE_NO_INIT, "no barrier was initialised");
}
EMULATE_CASE("emulate: finds two arrivals in a phase") {
    return must_find(EXCHANGE_TWICE, "an arrival too many");
}

/* Blocks hand a number around through global memory and a counter. */
EMULATE_CASE("emulate: counters over a grid") {
    enum { BLOCKS = 6, STEPS = 5 };
    uint32_t counter = 0, values[2][BLOCKS] = {{0}}, sums[BLOCKS] = {0};
    const std::string failure = launch(config_of(BLOCKS, 32, 1, 0, seed), [&] {
                                    uint32_t own = blockIdx.x + 1;
                                    for (int s = 0; s < STEPS; s++) {
                                        if (threadIdx.x == 0) {
                                            values[s & 1][blockIdx.x] = own;
                                            ptx_count_release(&counter);
                                            while (ptx_count_acquire(&counter) < (uint32_t)(BLOCKS * (s + 1)))
                                                ptx_pause(20);
                                        }
                                        __syncthreads();
                                        own = 0;
                                        for (int b = 0; b < BLOCKS; b++) own += values[s & 1][b] * (uint32_t)(b + 1);
                                        own += blockIdx.x;
                                    }
                                    if (threadIdx.x == 31) sums[blockIdx.x] = own;
                                }).failure;
    if (!failure.empty()) return failure;
    uint32_t v[BLOCKS];
    for (uint32_t b = 0; b < BLOCKS; b++) v[b] = b + 1;
    for (int s = 0; s < STEPS; s++) {
        uint32_t sum = 0;
        for (uint32_t b = 0; b < BLOCKS; b++) sum += v[b] * (b + 1);
        for (uint32_t b = 0; b < BLOCKS; b++) v[b] = sum + b;
    }
    for (uint32_t b = 0; b < BLOCKS; b++)
        if (sums[b] != v[b]) return emulate_say("block %u: %u, not %u", b, sums[b], v[b]);
    return "";
}
EMULATE_CASE("emulate: finds a counter that stays too low") {
    uint32_t counter = 0;
    return expect_failure(config_of(3, 32, 1, 0, seed), "wait for ever", [&] {
        if (threadIdx.x == 0) {
            ptx_count_release(&counter);
            while (ptx_count_acquire(&counter) < 4) ptx_pause(20);
        }
        __syncthreads();
    });
}

/* Blocks hand a number around by words that tell: 0 is none yet, and what is cleared is so from the fence on. */
static std::string words_that_tell(bool fence, uint64_t seed) {
    enum { BLOCKS = 5, STEPS = 9, BUFFERS = 4 };
    alignas(16) static uint32_t words[BUFFERS][BLOCKS][4];
    static uint32_t sums[BLOCKS];
    memset(words, 0, sizeof words);
    const std::string failure = launch(config_of(BLOCKS, 1, 1, 0, seed), [&] {
                                    uint32_t own = blockIdx.x + 1;
                                    for (int s = 0; s < STEPS; s++) {
                                        const uint32_t given[4] = {own, own, own, own}, none[4] = {0, 0, 0, 0};
                                        ptx_give(words[s % BUFFERS][blockIdx.x], given);
                                        ptx_give(words[(s + 2) % BUFFERS][blockIdx.x], none);
                                        if (fence) ptx_fence_given();
                                        own = 1;
                                        for (int b = 0; b < BLOCKS; b++) {
                                            uint32_t taken[4] = {0, 0, 0, 0};
                                            while (taken[3] == 0) ptx_take16(taken, words[s % BUFFERS][b]);
                                            own += taken[b % 4] * (uint32_t)(b + 1) % 1000;
                                        }
                                        own += blockIdx.x;
                                    }
                                    sums[blockIdx.x] = own;
                                    ptx_fence_given();
                                }).failure;
    if (!failure.empty()) return failure;
    uint32_t v[BLOCKS];
    for (uint32_t b = 0; b < BLOCKS; b++) v[b] = b + 1;
    for (int s = 0; s < STEPS; s++) {
        uint32_t sum = 1;
        for (uint32_t b = 0; b < BLOCKS; b++) sum += v[b] * (b + 1) % 1000;
        for (uint32_t b = 0; b < BLOCKS; b++) v[b] = sum + b;
    }
    for (uint32_t b = 0; b < BLOCKS; b++)
        if (sums[b] != v[b]) return emulate_say("block %u: %u, not %u", b, sums[b], v[b]);
    return "";
}
EMULATE_CASE("emulate: words that tell over a grid") {
    return words_that_tell(true, seed);
}
EMULATE_CASE("emulate: finds words that are cleared without a fence") {
    return words_that_tell(false, seed).empty() ? "words that were not cleared gave the right numbers" : "";
}
EMULATE_CASE("emulate: finds a word that is never given") {
    alignas(16) static uint32_t words[4] = {1, 1, 0, 1};
    return expect_failure(config_of(2, 32, 1, 0, seed), "wait for ever", [&] {
        uint32_t taken[4] = {0, 0, 0, 0};
        while (taken[2] == 0) ptx_take16(taken, words);
    });
}

EMULATE_CASE("emulate: copies from global memory") {
    alignas(16) float from[256];
    float got[256];
    for (int i = 0; i < 256; i++) from[i] = (float)i;
    const std::string failure = launch(config_of(1, 32, 1, 1024 + 512 + 8, seed), [&] {
                                    unsigned char *shared = emulated_shared();
                                    const uint32_t self = ptx_shared(shared), barrier = self + 1536, i = threadIdx.x;
                                    if (i == 0) {
                                        ptx_arrivals_init(barrier, 1);
                                        ptx_arrivals_expect(barrier, 512);
                                        ptx_bring(self + 1024, from + 128, 512, barrier);
                                    }
                                    ptx_copy16(self + i * 16, from + i * 4);
                                    ptx_copies_wait();
                                    __syncthreads();
                                    ptx_arrivals_wait(barrier, 0);
                                    const float *there = (const float *)shared;
                                    for (uint32_t j = i; j < 128; j += 32) {
                                        got[j] = there[j];
                                        got[128 + j] = there[256 + j];
                                    }
                                }).failure;
    if (!failure.empty()) return failure;
    for (int i = 0; i < 256; i++)
        if (got[i] != from[i]) return emulate_say("value %d is %g", i, got[i]);
    return "";
}
EMULATE_CASE("emulate: finds copies that nobody waits for") {
    alignas(16) static const float from[4] = {1, 2, 3, 4};
    for (uint64_t i = 1; i < 20; i++)
        if (expect_failure(config_of(1, 32, 1, 512, i), "without ptx_copies_wait", [&] {
                ptx_copy16(ptx_shared(emulated_shared()) + threadIdx.x * 16, from);
            }).empty())
            return "";
    return "not found";
}
EMULATE_CASE("emulate: finds misaligned and far addresses") {
    std::string wrong = expect_failure(config_of(1, 32, 1, 512, seed), "not aligned", [] {
        uint32_t v[4];
        ptx_load_shared(v, ptx_shared(emulated_shared()) + 8);
    });
    if (!wrong.empty()) return wrong;
    wrong = expect_failure(config_of(1, 32, 1, 512, seed), "which has 512", [] {
        uint32_t v[4];
        ptx_load_shared(v, ptx_shared(emulated_shared()) + 512);
    });
    if (!wrong.empty()) return wrong;
    wrong = expect_failure(config_of(2, 32, 2, 512, seed), "its own block", [] {
        uint32_t v[4];
        ptx_load_shared(v, ptx_map(ptx_shared(emulated_shared()), 1 - ptx_cluster_rank()));
    });
    if (!wrong.empty()) return wrong;
    return expect_failure(config_of(2, 32, 2, 100, seed), "past the end", [] { emulated_shared()[101] = 1; });
}
EMULATE_CASE("emulate: finds lanes that disagree") {
    std::string wrong = expect_failure(config_of(1, 32, 1, 0, seed), "disagree", [] {
        if (threadIdx.x < 7)
            __syncwarp();
        else
            __shfl_xor_sync(0xffffffffu, 1, 1);
    });
    if (!wrong.empty()) return wrong;
    return expect_failure(config_of(1, 64, 1, 0, seed), "wait for ever", [] {
        if (threadIdx.x != 40) __syncwarp();
    });
}
EMULATE_CASE("emulate: finds barriers that differ in their threads") {
    std::string wrong = expect_failure(config_of(1, 96, 1, 0, seed), "waits at it for",
                                       [] { ptx_barrier(1, threadIdx.x < 32 ? 64 : 96); });
    if (!wrong.empty()) return wrong;
    return expect_failure(config_of(1, 64, 1, 0, seed), "wait for ever", [] {
        if (threadIdx.x < 63) __syncthreads();
    });
}
EMULATE_CASE("emulate: shared memory begins as NaN") {
    bool all = true;
    const std::string failure = launch(config_of(1, 32, 1, 256, seed), [&] {
                                    const float *there = (const float *)emulated_shared();
                                    if (there[threadIdx.x] == there[threadIdx.x]) all = false;
                                }).failure;
    return !failure.empty() ? failure : all ? "" : "a number was there";
}
EMULATE_CASE("emulate: finds reads before a barrier of the block") {
    for (uint64_t i = 1; i < 30; i++) {
        bool wrong = false;
        launch(config_of(1, 64, 1, 256, i), [&] {
            float *there = (float *)emulated_shared();
            there[threadIdx.x] = 1.0f;
            if (!(there[63 - threadIdx.x] == 1.0f)) wrong = true; /* __syncthreads is missing */
        });
        if (wrong) return "";
    }
    return "not found";
}
