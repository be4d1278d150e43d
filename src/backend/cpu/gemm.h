/* Products for the rows: one on the calling thread, or a list of jobs spread over the call's threads. */
#ifndef SLI_CPU_GEMM_H
#define SLI_CPU_GEMM_H

#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"

/* call->cpu, or the engine of a call made without a queue: base instruction set, own loops. */
const sli_cpu *sli_cpu_of(const sli_call *call);

/* On the calling thread: BLAS, or the own GEMM. */
void sli_cpu_gemm(const sli_cpu *cpu, const sli_gemm *gemm);

/* A product, or two in a row into the same c, or sums of columns. */
typedef struct sli_job {
    sli_gemm part[2];
    int parts; /* 0: column sums */
    /* to[k][columns] += sum over rows of from[rows][ld], in the order of rows; to[1] may be NULL */
    const float *from;
    ptrdiff_t ld;
    int rows, columns;
    float *to[2];
    int cut_m, cut_n, first; /* filled in by sli_cpu_jobs */
} sli_job;

enum { SLI_JOBS_MAX = 8 };
/* All jobs, in no order: they must not write the same memory. Slices of c are cut by shape alone. */
void sli_cpu_jobs(const sli_call *call, sli_job *jobs, int count);

#endif
