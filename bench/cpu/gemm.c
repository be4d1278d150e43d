/* Matrix products of recurrent layers by several libraries and by our own kernels, alternating: which of them Sluice should use.
 *     gemm LIBOPENBLAS LIBBLIS [THREADS [SECONDS [min]]]
 * A line a shape, GFLOP/s by the median of all calls (min: by the fastest, where others use the machine): each library with its own threads; oneDNN's matmul with weights as they are
 * and reordered beforehand; and what Sluice does with OpenBLAS, one thread a slice, and with its own kernels (sli_cpu_jobs). */
#include <dlfcn.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/gemm.h"
#include "core/threads.h"
#include "oneapi/dnnl/dnnl.h"

typedef void (*sgemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                         int);

/* c[m][n] = op(a) op(b); t: a is stored [k][m]; b is stored [n][k] ("NT": activations and weights), else [k][n]. */
typedef struct shape {
    int m, n, k;
    const char *kind; /* NT: a product with W; NN: with W transposed; TN: a weight gradient */
} shape;
static const shape shapes[] = {
    {1280, 2600, 650, "NT"},  {700, 2600, 650, "NT"},  {700, 650, 2600, "NN"},  {2600, 650, 700, "TN"},
    {700, 6000, 1500, "NT"},  {700, 1500, 6000, "NN"}, {6000, 1500, 700, "TN"}, {19200, 1024, 256, "NT"},
    {1024, 256, 19200, "TN"}, {4096, 1024, 256, "NT"}, {2500, 512, 128, "NT"},  {512, 128, 2500, "TN"},
    {1600, 256, 16, "NT"},    {1600, 256, 64, "NT"},   {256, 64, 1600, "TN"},   {100, 2048, 512, "NT"},
    {100, 512, 2048, "NN"},   {2048, 512, 100, "TN"},  {20, 512, 100, "NT"},    {20, 100, 512, "NN"},
    {512, 100, 20, "TN"},     {20, 2600, 650, "NT"},   {64, 2048, 512, "NT"},   {8, 2048, 512, "NT"},
    {1, 2048, 512, "NT"}};

enum { METHODS = 7, CALLS_MOST = 512, ROUNDS = 3 };
static const char *const titles[METHODS] = {"OpenBLAS",        "BLIS", "oneDNN sgemm", "oneDNN matmul", "oneDNN packed",
                                            "OpenBLAS slices", "own"};

static sgemm_fn openblas, blis;
static void (*openblas_threads)(int);
static void (*blis_threads)(int64_t);
static int threads, fastest;
static sli_threads *pool;
static float *a, *b, *c, *wanted;
static void *scratch;
static size_t scratch_bytes;
static shape s;
static dnnl_engine_t engine;
static dnnl_stream_t stream;
static dnnl_primitive_t matmul[2];
static dnnl_memory_t src, dst, weights[2];

static void need(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "gemm: %s failed\n", what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int a_down(void) {
    return s.kind[0] == 'T';
}
static int b_down(void) {
    return s.kind[1] == 'T';
}

/* ------------------------------------------------------------------------------------------------------- methods -- */
static void by_cblas(sgemm_fn sgemm) {
    sgemm(SLI_CBLAS_ROW_MAJOR, a_down() ? SLI_CBLAS_TRANS : SLI_CBLAS_NO_TRANS,
          b_down() ? SLI_CBLAS_TRANS : SLI_CBLAS_NO_TRANS, s.m, s.n, s.k, 1, a, a_down() ? s.m : s.k, b,
          b_down() ? s.k : s.n, 0, c, s.n);
}

static sli_problem problem(void) {
    return (sli_problem){
        .op = SLI_OP_DENSE, .batch = s.m, .inputs = s.k, .units = s.n, .steps = 1, .train = true, .dtype = SL_F32};
}

static void by_jobs(bool blas) {
    sli_cpu cpu;
    sli_cpu_engine(sli_cpu_isa(), blas, &cpu);
    sli_job job = {.parts = 1,
                   .part = {{.m = s.m,
                             .n = s.n,
                             .k = s.k,
                             .a = a,
                             .am = a_down() ? 1 : s.k,
                             .ak = a_down() ? s.m : 1,
                             .b = b,
                             .bk = b_down() ? 1 : s.n,
                             .bn = b_down() ? s.k : 1,
                             .c = c,
                             .ldc = s.n}}};
    const sli_call call = {.problem = problem(),
                           .chunk = 1,
                           .cpu = &cpu,
                           .threads = pool,
                           .scratch = scratch,
                           .scratch_bytes = scratch_bytes};
    sli_cpu_jobs(&call, &job, 1);
}

static void by_matmul(int packed) {
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights[packed]}, {DNNL_ARG_DST, dst}};
    dnnl_primitive_execute(matmul[packed], stream, 3, args);
    dnnl_stream_wait(stream);
}

static void call(int method) {
    openblas_threads(method == 0 ? threads : 1);
    switch (method) {
    case 0:
        by_cblas(openblas);
        break;
    case 1:
        by_cblas(blis);
        break;
    case 2:
        dnnl_sgemm(a_down() ? 'T' : 'N', b_down() ? 'T' : 'N', s.m, s.n, s.k, 1, a, a_down() ? s.m : s.k, b,
                   b_down() ? s.k : s.n, 0, c, s.n);
        break;
    case 3:
        by_matmul(0);
        break;
    case 4:
        by_matmul(1);
        break;
    case 5:
        by_jobs(true);
        break;
    default:
        by_jobs(false);
        break;
    }
}

/* ------------------------------------------------------------------------------------------------------- oneDNN -- */
static dnnl_memory_desc_t matrix(int rows, int columns, int down, int open) {
    const dnnl_dims_t dims = {rows, columns};
    dnnl_memory_desc_t d;
    need(dnnl_memory_desc_create_with_tag(&d, 2, dims, dnnl_f32,
                                          open   ? dnnl_format_tag_any
                                          : down ? dnnl_ba
                                                 : dnnl_ab) == 0,
         "dnnl_memory_desc_create_with_tag");
    return d;
}

static void open_matmul(void) {
    dnnl_memory_desc_t ad = matrix(s.m, s.k, a_down(), 0), bd = matrix(s.k, s.n, b_down(), 0),
                       cd = matrix(s.m, s.n, 0, 0);
    need(dnnl_memory_create(&src, ad, engine, a) == 0 && dnnl_memory_create(&dst, cd, engine, c) == 0 &&
             dnnl_memory_create(&weights[0], bd, engine, b) == 0,
         "dnnl_memory_create");
    for (int packed = 0; packed < 2; packed++) {
        dnnl_memory_desc_t wd = packed ? matrix(s.k, s.n, 0, 1) : bd;
        dnnl_primitive_desc_t pd;
        need(dnnl_matmul_primitive_desc_create(&pd, engine, ad, wd, NULL, cd, NULL) == 0,
             "dnnl_matmul_primitive_desc_create");
        need(dnnl_primitive_create(&matmul[packed], pd) == 0, "dnnl_primitive_create");
        if (packed) {
            dnnl_primitive_desc_t rd;
            dnnl_primitive_t reorder;
            const_dnnl_memory_desc_t wanted_desc = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
            need(dnnl_memory_create(&weights[1], wanted_desc, engine, DNNL_MEMORY_ALLOCATE) == 0, "dnnl_memory_create");
            need(dnnl_reorder_primitive_desc_create(&rd, bd, engine, wanted_desc, engine, NULL) == 0 &&
                     dnnl_primitive_create(&reorder, rd) == 0,
                 "dnnl_reorder_primitive_desc_create");
            const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, weights[0]}, {DNNL_ARG_TO, weights[1]}};
            dnnl_primitive_execute(reorder, stream, 2, args);
            dnnl_stream_wait(stream);
            dnnl_primitive_destroy(reorder);
            dnnl_primitive_desc_destroy(rd);
            dnnl_memory_desc_destroy(wd);
        }
        dnnl_primitive_desc_destroy(pd);
    }
    dnnl_memory_desc_destroy(ad);
    dnnl_memory_desc_destroy(bd);
    dnnl_memory_desc_destroy(cd);
}

static void close_matmul(void) {
    for (int packed = 0; packed < 2; packed++) {
        dnnl_primitive_destroy(matmul[packed]);
        dnnl_memory_destroy(weights[packed]);
    }
    dnnl_memory_destroy(src);
    dnnl_memory_destroy(dst);
}

/* -------------------------------------------------------------------------------------------------------- timing -- */
static int by_size(const void *left, const void *right) {
    const double x = *(const double *)left, y = *(const double *)right;
    return (x > y) - (x < y);
}

static double difference(void) {
    double most = 0, norm = 0;
    for (size_t i = 0; i < (size_t)s.m * (size_t)s.n; i++) {
        most = fmax(most, fabs((double)c[i] - (double)wanted[i]));
        norm = fmax(norm, fabs((double)wanted[i]));
    }
    return most / norm;
}

static float *floats(size_t count) {
    float *data = aligned_alloc(64, (count * sizeof *data + 63) / 64 * 64);
    need(data != NULL, "aligned_alloc");
    for (size_t i = 0; i < count; i++) data[i] = (float)((i * 2654435761u >> 8) % 2001) * 1e-3f - 1;
    return data;
}

static void time_shape(double seconds) {
    static double times[METHODS][CALLS_MOST];
    int count[METHODS] = {0};
    const size_t cells = (size_t)s.m * (size_t)s.n;
    a = floats((size_t)s.m * (size_t)s.k);
    b = floats((size_t)s.n * (size_t)s.k);
    c = floats(cells);
    wanted = floats(cells);
    const sli_problem p = problem();
    scratch_bytes = sli_cpu_products_bytes(&p, 1);
    scratch = floats(scratch_bytes / sizeof(float));
    open_matmul();
    call(0);
    memcpy(wanted, c, cells * sizeof *c);
    for (int method = 0; method < METHODS; method++) {
        memset(c, 0xff, cells * sizeof *c);
        call(method);
        need(difference() < 1e-4, titles[method]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int k = 0; k < METHODS; k++) {
            const int method = (k + round) % METHODS;
            if (round == 0 || times[method][0] < 0.02) call(method); /* caches are another method's */
            double begin = now(), last = begin;
            do {
                call(method);
                const double end = now();
                times[method][count[method]++] = end - last;
                last = end;
            } while (last - begin < seconds / ROUNDS && count[method] < CALLS_MOST * (round + 1) / ROUNDS);
        }
    printf("%6d x%5d x%6d %s", s.m, s.n, s.k, s.kind);
    for (int method = 0; method < METHODS; method++) {
        qsort(times[method], (size_t)count[method], sizeof(double), by_size);
        printf(" %15.1f", 2.0 * s.m * s.n * (double)s.k / times[method][fastest ? 0 : count[method] / 2] * 1e-9);
    }
    printf("\n");
    fflush(stdout);
    close_matmul();
    free(a), free(b), free(c), free(wanted), free(scratch);
}

static void *library(const char *path, const char *set_threads, sgemm_fn *sgemm) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fprintf(stderr, "gemm: %s\n", dlerror());
    need(handle != NULL, path);
    void *function = dlsym(handle, "cblas_sgemm"), *set = dlsym(handle, set_threads);
    need(function && set, path);
    memcpy(sgemm, &function, sizeof function);
    return set;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: gemm LIBOPENBLAS LIBBLIS [THREADS [SECONDS [min]]]\n"), 2;
    threads = argc > 3 ? atoi(argv[3]) : 1;
    const double seconds = argc > 4 ? atof(argv[4]) : 0.3;
    fastest = argc > 5;
    need(sli_blas_get(NULL) != NULL, "loading OpenBLAS as Sluice does");
    void *set[] = {library(argv[1], "openblas_set_num_threads", &openblas),
                   library(argv[2], "bli_thread_set_num_threads", &blis)};
    memcpy(&openblas_threads, &set[0], sizeof set[0]);
    memcpy(&blis_threads, &set[1], sizeof set[1]);
    blis_threads(threads);
    omp_set_num_threads(threads);
    need(sli_threads_new(NULL, threads, &pool) == SL_OK, "sli_threads_new");
    need(dnnl_engine_create(&engine, dnnl_cpu, 0) == 0 &&
             dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == 0,
         "dnnl_engine_create");
    printf("GFLOP/s, %d thread%s\n%-24s", threads, threads == 1 ? "" : "s", "m x n x k");
    for (int method = 0; method < METHODS; method++) printf(" %15s", titles[method]);
    printf("\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        s = shapes[i];
        time_shape(seconds);
    }
    sli_threads_free(pool);
    return 0;
}
