/* Products for the rows: one on the calling thread, or a list of jobs spread over the call's threads. */
#ifndef SLI_CPU_GEMM_H
#define SLI_CPU_GEMM_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"

/* call->cpu, or the engine of a call made without a queue: base instruction set, own loops. */
const sli_cpu *sli_cpu_of(const sli_call *call);

/* false where lengths or mask hide step t (of the call) of this row. */
static inline bool sli_cpu_valid(const sli_call *call, int t, int row) {
    if (call->problem.mask == SLI_MASK_NONE) return true;
    if (call->problem.mask == SLI_MASK_LENGTHS) {
        const int32_t *lengths = call->in[SLI_RNN_LENGTHS];
        return !lengths || call->t0 + t < lengths[row];
    }
    const uint8_t *mask = call->in[SLI_RNN_MASK];
    return !mask || mask[(size_t)t * (size_t)call->problem.batch + (size_t)row] != 0;
}
/* Steps of a call; a tensor without time is one step. */
static inline int sli_cpu_steps(const sli_problem *p) {
    return p->steps > 0 ? p->steps : 1;
}
static inline size_t sli_cpu_rows(const sli_problem *p) {
    return (size_t)sli_cpu_steps(p) * (size_t)p->batch;
}

/* A product, or two in a row into the same c, or sums of columns. */
typedef struct sli_job {
    sli_gemm part[2];
    int parts; /* 0: column sums */
    float *sums
        [2]; /* a, of one part, runs along rows and is packed (sli_cpu_packs): [m] += its sums over k; NULL: not wanted */
    bool same_a;       /* the next job in the list multiplies the same a, of one part: it is packed once for both */
    const float *bias; /* [n] or NULL: added to the finished c */
    int act;           /* sl_activation applied after it; 0 = linear */
    float *copy;       /* the finished c once more, ld = ldc; NULL = not wanted */
    /* to[k][columns] += sum over rows of from[rows][ld], in the order of rows; to[1] may be NULL */
    const float *from;
    const uint16_t *from_half; /* instead of from: bf16 */
    ptrdiff_t ld;
    int rows, columns;
    float *to[2];
    int cut_m, cut_n, first; /* filled in by sli_cpu_jobs */
} sli_job;

enum {
    SLI_JOBS_MAX = 8,
    SLI_ALONE = 2000000,         /* FLOPs of products below which one thread does them, */
    SLI_ALONE_ASLEEP = 20000000, /* where others would have to be woken up */
    SLI_MOVED = 20               /* FLOPs that take as long as a number that is copied or added up */
};

/* Who shares so much work of a call; NULL: the caller alone. */
static inline sli_threads *sli_cpu_threads(const sli_call *call, double flops) {
    return flops < (sli_threads_awake(call->threads) ? SLI_ALONE : SLI_ALONE_ASLEEP) ? NULL : call->threads;
}

/* All jobs, in no order: they must not write the same memory. How they are cut depends on shapes alone. Products pack their operands,
 * rounded in problems of bf16, in sli_cpu_products_bytes at the end of the call's scratch, but for what is packed before and for a in
 * bf16 along k. */
void sli_cpu_jobs(const sli_call *call, sli_job *jobs, int count);

/* Whether jobs with a along rows pack it, so that they can sum it up: all do where there is no BLAS. */
bool sli_cpu_packs(const sli_call *call);

/* What a row that has jobs books at the end of its scratch, forward and backward. */
size_t sli_cpu_products_bytes(const sli_problem *problem, int chunk);
/* That scratch: between jobs, whoever has them may use it. */
void *sli_cpu_products_space(const sli_call *call, size_t *bytes);
/* The products of one job; of few rows on all the call's threads, others, piece by piece, on `threads`, which may be NULL. */
void sli_cpu_products(const sli_call *call, sli_threads *threads, const sli_job *job);
/* Products of at most so many rows are of floats, and b is not packed; 0: all pack it. */
int sli_cpu_few_rows(sl_dtype dtype);
/* Most k that is packed and multiplied at a time: c is read and written once for each. */
int sli_cpu_piece_k(sl_dtype dtype);
/* b of products of the same n, k, bk and bn, packed once for all of them: whether products of so many rows read it there; its bytes
 * (4 a number, of which bf16 on AMX and by AVX512_BF16 uses half; of f32x3 6); b_packed = b. */
bool sli_cpu_packs_b(const sli_call *call, int rows);
size_t sli_cpu_packed_b_bytes(sl_dtype dtype, int n, int k);
void sli_cpu_pack_b(const sli_call *call, const sli_gemm *g, void *packed);
/* Rows [m, m + rows), columns [n, n + columns) of a job's c are summed up: bias, activation, copy, while they are in cache. */
void sli_cpu_finish(const sli_cpu *cpu, const sli_job *job, int m, int n, int rows, int columns);

#endif
