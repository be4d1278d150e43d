/* What this machine's cores can do at most, for the limits beside compare.py's times, as one JSON object: multiply-adds per second,
 * bytes read per second out of each level of the memory, and the time of a barrier, with each number of threads.
 *     limits [1,2]
 * Every number is the best of many short repeats; bandwidths are a thread's share while all of them read. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <immintrin.h>

enum { THREADS_MOST = 64, REPEATS = 25, PAD = 128 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------------- threads -- */
typedef struct flag {
    _Alignas(PAD) atomic_uint value;
} flag;
static flag arrived[THREADS_MOST], released;
static int thread_count;
static double rate[THREADS_MOST];
static double (*measured)(int thread, size_t bytes);
static size_t measured_bytes;

/* Everybody tells the first, which tells everybody. */
static void barrier(int thread, unsigned *phase) {
    const unsigned p = ++*phase;
    if (thread != 0) {
        atomic_store_explicit(&arrived[thread].value, p, memory_order_release);
        while (atomic_load_explicit(&released.value, memory_order_acquire) != p) _mm_pause();
        return;
    }
    for (int k = 1; k < thread_count; k++)
        while (atomic_load_explicit(&arrived[k].value, memory_order_acquire) != p) _mm_pause();
    atomic_store_explicit(&released.value, p, memory_order_release);
}

static unsigned phases[THREADS_MOST];
static void *work(void *argument) {
    const int thread = (int)(intptr_t)argument;
    barrier(thread, &phases[thread]);
    rate[thread] = measured(thread, measured_bytes);
    return NULL;
}

/* Mean over the threads of what `function` measures on each at the same time. */
static double with_threads(int count, double (*function)(int, size_t), size_t bytes) {
    pthread_t threads[THREADS_MOST];
    double sum = 0;
    thread_count = count;
    measured = function;
    measured_bytes = bytes;
    memset(arrived, 0, sizeof arrived);
    memset(phases, 0, sizeof phases);
    atomic_store(&released.value, 0);
    for (intptr_t k = 1; k < count; k++) pthread_create(&threads[k], NULL, work, (void *)k);
    work(NULL);
    for (int k = 1; k < count; k++) pthread_join(threads[k], NULL);
    for (int k = 0; k < count; k++) sum += rate[k];
    return sum / count;
}

static double barrier_ns(int thread, size_t unused) {
    enum { COUNT = 20000 };
    double best = 1e30;
    (void)unused;
    for (int r = 0; r < REPEATS; r++) {
        const double begin = now();
        for (int k = 0; k < COUNT; k++) barrier(thread, &phases[thread]);
        const double each = (now() - begin) / COUNT * 1e9;
        if (each < best) best = each;
    }
    return best;
}

/* -------------------------------------------------------------------------------------------------- multiply-adds -- */
#define KEEP12(a, c)                                                                                             \
    __asm__ volatile(""                                                                                          \
                     : "+" c((a)[0]), "+" c((a)[1]), "+" c((a)[2]), "+" c((a)[3]), "+" c((a)[4]), "+" c((a)[5]), \
                       "+" c((a)[6]), "+" c((a)[7]), "+" c((a)[8]), "+" c((a)[9]), "+" c((a)[10]), "+" c((a)[11]))

/* Twelve independent sums: more than the latency of a multiply-add hides. */
#define FMA_RATE(isa, attribute, vector, lanes, set, fma, constraint)                         \
    attribute static double fma_##isa(int thread, size_t unused) {                            \
        enum { COUNT = 500000 };                                                              \
        vector a[12], x = set(0.999f), y = set(1e-6f);                                        \
        double best = 0;                                                                      \
        (void)thread, (void)unused;                                                           \
        _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) a[i] = set(1.0f);               \
        for (int r = 0; r < REPEATS; r++) {                                                   \
            const double begin = now();                                                       \
            for (int k = 0; k < COUNT; k++) {                                                 \
                _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) a[i] = fma(a[i], x, y); \
                KEEP12(a, constraint);                                                        \
            }                                                                                 \
            const double g = COUNT * 12.0 * 2 * (lanes) / (now() - begin) * 1e-9;             \
            if (g > best) best = g;                                                           \
        }                                                                                     \
        return best;                                                                          \
    }
#define SSE_FMA(a, x, y) _mm_add_ps(_mm_mul_ps(a, x), y)
FMA_RATE(base, , __m128, 4, _mm_set1_ps, SSE_FMA, "x")
FMA_RATE(avx2, __attribute__((target("avx2,fma"))), __m256, 8, _mm256_set1_ps, _mm256_fmadd_ps, "x")
FMA_RATE(avx512, __attribute__((target("avx512f"))), __m512, 16, _mm512_set1_ps, _mm512_fmadd_ps, "v")

/* Pairs of bf16, in vectors: two products for one. */
__attribute__((target("avx512f,avx512bf16"))) static double dot_bf16(int thread, size_t unused) {
    enum { COUNT = 500000 };
    __m512 a[12];
    __m512bh x = (__m512bh)_mm512_set1_epi32(0x3f803f80), y = (__m512bh)_mm512_set1_epi32(0x35803580);
    double best = 0;
    (void)thread, (void)unused;
    _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) a[i] = _mm512_set1_ps(1.0f);
    for (int r = 0; r < REPEATS; r++) {
        const double begin = now();
        for (int k = 0; k < COUNT; k++) {
            _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) a[i] = _mm512_dpbf16_ps(a[i], x, y);
            KEEP12(a, "v");
        }
        const double g = COUNT * 12.0 * 2 * 32 / (now() - begin) * 1e-9;
        if (g > best) best = g;
    }
    return best;
}

/* AMX, operands in registers. */
__attribute__((target("amx-tile,amx-bf16"))) static double amx_bf16(int thread, size_t unused) {
    enum { COUNT = 50000 };
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    static _Alignas(64) char zeros[1024];
    double best = 0;
    (void)thread, (void)unused;
    for (int k = 0; k < 8; k++) config.bytes[k] = 64, config.rows[k] = 16;
    _tile_loadconfig(&config);
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
    _tile_loadd(6, zeros, 64);
    _tile_loadd(7, zeros, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int r = 0; r < REPEATS; r++) {
        const double begin = now();
        for (int k = 0; k < COUNT; k++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        const double g = COUNT * 4 * 16384.0 / (now() - begin) * 1e-9;
        if (g > best) best = g;
    }
    _tile_release();
    return best;
}

static int amx_permitted(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return __builtin_cpu_supports("avx512f") && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* ------------------------------------------------------------------------------------------------------- reading -- */
static char *memory[THREADS_MOST];
static volatile float sink;

#define READ_RATE(isa, attribute, vector, zero, load, add)                                      \
    attribute static double read_##isa(int thread, size_t bytes) {                              \
        const int passes = bytes < (4u << 20) ? (int)((4u << 20) / bytes) : 1;                  \
        double best = 0;                                                                        \
        for (int r = 0; r < REPEATS; r++) {                                                     \
            vector sum[8];                                                                      \
            _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) sum[i] = zero();                \
            const double begin = now();                                                         \
            for (int p = 0; p < passes; p++)                                                    \
                for (size_t at = 0; at + 8 * sizeof(vector) <= bytes; at += 8 * sizeof(vector)) \
                    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) sum[i] =                \
                        add(sum[i], load((const float *)(const void *)(memory[thread] + at) +   \
                                         (size_t)i * sizeof(vector) / 4));                      \
            const double g = passes * (double)bytes / (now() - begin) * 1e-9;                   \
            _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) sink += *(float *)&sum[i];      \
            if (g > best) best = g;                                                             \
        }                                                                                       \
        return best;                                                                            \
    }
READ_RATE(base, , __m128, _mm_setzero_ps, _mm_load_ps, _mm_add_ps)
READ_RATE(avx2, __attribute__((target("avx2"))), __m256, _mm256_setzero_ps, _mm256_load_ps, _mm256_add_ps)
READ_RATE(avx512, __attribute__((target("avx512f"))), __m512, _mm512_setzero_ps, _mm512_load_ps, _mm512_add_ps)

/* The data cache of a level, as Linux knows it. */
static size_t cache_bytes(int level, size_t otherwise) {
    for (int index = 0; index < 8; index++) {
        char path[128], type[32];
        int found = 0;
        size_t kilobytes = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
        FILE *file = fopen(path, "r");
        if (!file) break;
        if (fscanf(file, "%d", &found) != 1) found = 0;
        fclose(file);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", index);
        file = fopen(path, "r");
        if (!file || fscanf(file, "%31s", type) != 1) type[0] = 0;
        if (file) fclose(file);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        file = fopen(path, "r");
        if (!file || fscanf(file, "%zuK", &kilobytes) != 1) kilobytes = 0;
        if (file) fclose(file);
        if (found == level && kilobytes > 0 && strcmp(type, "Instruction") != 0) return kilobytes << 10;
    }
    return otherwise;
}

int main(int argc, char **argv) {
    char list[64];
    const int avx512 = __builtin_cpu_supports("avx512f"), avx2 = __builtin_cpu_supports("avx2"), amx = amx_permitted();
    double (*const read)(int, size_t) = avx512 ? read_avx512 : avx2 ? read_avx2 : read_base;
    const size_t caches[] = {cache_bytes(1, 32 << 10), cache_bytes(2, 1 << 20), cache_bytes(3, 32 << 20)};
    static const char *const levels[] = {"l1", "l2", "l3"};
    const size_t dram = (size_t)256 << 20;
    snprintf(list, sizeof list, "%s", argc > 1 ? argv[1] : "1,2");
    printf("{\"l1_bytes\": %zu, \"l2_bytes\": %zu, \"l3_bytes\": %zu", caches[0], caches[1], caches[2]);
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
        const int count = atoi(word);
        if (count < 1 || count > THREADS_MOST) return fprintf(stderr, "limits: 1 to %d threads\n", THREADS_MOST), 2;
        for (int k = 0; k < count; k++) {
            if (memory[k]) continue;
            memory[k] = mmap(NULL, dram, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory[k] == MAP_FAILED) return fprintf(stderr, "limits: out of memory\n"), 5;
            madvise(memory[k], dram, MADV_HUGEPAGE);
            memset(memory[k], 0, dram);
        }
        printf(", \"%d\": {\"fma_base\": %.1f", count, with_threads(count, fma_base, 0));
        if (avx2) printf(", \"fma_avx2\": %.1f", with_threads(count, fma_avx2, 0));
        if (avx512) printf(", \"fma_avx512\": %.1f", with_threads(count, fma_avx512, 0));
        if (__builtin_cpu_supports("avx512bf16")) printf(", \"dot_bf16\": %.1f", with_threads(count, dot_bf16, 0));
        if (amx) printf(", \"amx_bf16\": %.0f", with_threads(count, amx_bf16, 0));
        for (int level = 0; level < 3; level++) {
            const size_t share = level == 2 ? caches[2] / 2 / (size_t)count : caches[level] / 4 * 3;
            printf(", \"%s_gbs\": %.1f", levels[level],
                   with_threads(count, read, share / 4096 * 4096 < dram ? share / 4096 * 4096 : dram));
        }
        printf(", \"dram_gbs\": %.1f", with_threads(count, read, dram));
        printf(", \"barrier_ns\": %.0f}", count > 1 ? with_threads(count, barrier_ns, 0) : 0.0);
        fflush(stdout);
    }
    printf("}\n");
    return 0;
}
