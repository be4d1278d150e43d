/* Jobs: products, on our own kernels (products.c) or, where a BLAS is used, cut into slices of the result, each one single-threaded
 * GEMM; and sums of columns. How a job is cut depends on the shape alone, so the number of threads changes no bit. The sum
 * over k is never cut. */
#include <string.h>
#include "backend/cpu/gemm.h"

const sli_cpu *sli_cpu_of(const sli_call *call) {
    static const sli_cpu plain = {.isa = SLI_ISA_BASE, .ops = &sli_isa_ops_base};
    return call->cpu ? call->cpu : &plain;
}

static int leading(ptrdiff_t stride, int row) {
    return stride < row ? row : (int)stride;
}

static void blas_gemm(const sli_blas *blas, const sli_gemm *g) {
    if (g->m <= 0 || g->n <= 0) return;
    /* A matrix of one row or column has two readings; a leading dimension shorter than a row is refused, so it grows. */
    const bool a_rows = g->ak == 1 && (g->am >= g->k || g->m == 1), b_rows = g->bn == 1 && (g->bk >= g->n || g->k == 1);
    const int lda = leading(a_rows ? g->am : g->ak, a_rows ? g->k : g->m);
    const int ldb = leading(b_rows ? g->bk : g->bn, b_rows ? g->n : g->k);
    blas->sgemm(SLI_CBLAS_ROW_MAJOR, a_rows ? SLI_CBLAS_NO_TRANS : SLI_CBLAS_TRANS,
                b_rows ? SLI_CBLAS_NO_TRANS : SLI_CBLAS_TRANS, g->m, g->n, g->k, 1.0f, g->a, lda, g->b, ldb,
                g->add ? 1.0f : 0.0f, g->c, (int)g->ldc);
}

enum { SUM_COLUMNS = 256 };

static double flops_of(const sli_job *job) {
    double flops = 0;
    for (int i = 0; i < job->parts; i++) flops += 2.0 * job->part[i].m * job->part[i].n * (double)job->part[i].k;
    return flops;
}

/* Slices worth a call: about 24 MFLOP, where packing is a few percent, and an even number, for two threads. */
static void cut_job(sli_job *job) {
    job->cut_m = job->cut_n = 1;
    if (job->parts == 0) {
        job->cut_n = sli_divide_up(job->columns, SUM_COLUMNS);
        return;
    }
    const sli_gemm *g = &job->part[0];
    const double flops = flops_of(job);
    int want = flops / 24e6 > 128 ? 128 : 2 * sli_divide_up((int)(flops / 24e6) + 1, 2);
    const int most_m = sli_divide_up(g->m, 48), most_n = sli_divide_up(g->n, 128);
    int *long_cut = g->m >= g->n ? &job->cut_m : &job->cut_n, *short_cut = g->m >= g->n ? &job->cut_n : &job->cut_m;
    const int most_long = g->m >= g->n ? most_m : most_n, most_short = g->m >= g->n ? most_n : most_m;
    *long_cut = want < most_long ? want : most_long;
    want = sli_divide_up(want, *long_cut);
    *short_cut = want < most_short ? want : most_short;
}

/* Slice `i` of `count` of `n`, in multiples of 16. */
static void slice(int n, int count, int i, int *first, int *size) {
    const int blocks = sli_divide_up(n, 16);
    const int from = (int)((long)blocks * i / count) * 16, to = (int)((long)blocks * (i + 1) / count) * 16;
    *first = from;
    *size = (to < n ? to : n) - from;
}

static void sum_columns(const sli_cpu *cpu, const sli_job *job, int index) {
    const int first = index * SUM_COLUMNS, left = job->columns - first;
    const size_t count = (size_t)(left < SUM_COLUMNS ? left : SUM_COLUMNS);
    float sum[SUM_COLUMNS] = {0};
    for (int r = 0; r < job->rows; r++)
        if (job->from_half)
            cpu->ops->add_half(count, sum, job->from_half + r * job->ld + first);
        else
            cpu->ops->add(count, sum, job->from + r * job->ld + first);
    for (int k = 0; k < 2; k++)
        if (job->to[k]) cpu->ops->add(count, job->to[k] + first, sum);
}

typedef struct job_list {
    const sli_cpu *cpu;
    const sli_job *jobs;
    int count;
} job_list;

void sli_cpu_finish(const sli_cpu *cpu, const sli_job *job, int m, int n, int rows, int columns) {
    const ptrdiff_t ldc = job->part[0].ldc, at = m * ldc + n;
    for (int r = 0; r < rows && (job->bias || job->act || job->copy); r++) {
        float *row = job->part[0].c + at + r * ldc;
        if (job->bias) cpu->ops->add((size_t)columns, row, job->bias + n);
        if (job->act) cpu->ops->act(job->act, (size_t)columns, row);
        if (job->copy) memcpy(job->copy + at + r * ldc, row, (size_t)columns * sizeof *row);
    }
}

static void run_slice(void *context, int index) {
    const job_list *list = context;
    const sli_job *job = list->jobs + list->count - 1;
    while (index < job->first) job--;
    index -= job->first;
    if (job->parts == 0) {
        sum_columns(list->cpu, job, index);
        return;
    }
    for (int i = 0; i < job->parts; i++) {
        sli_gemm g = job->part[i];
        int m, n;
        slice(g.m, job->cut_m, index / job->cut_n, &m, &g.m);
        slice(g.n, job->cut_n, index % job->cut_n, &n, &g.n);
        g.a += m * g.am;
        g.b += n * g.bn;
        g.c += m * g.ldc + n;
        blas_gemm(list->cpu->blas, &g);
        if (i == job->parts - 1) sli_cpu_finish(list->cpu, job, m, n, g.m, g.n);
    }
}

static bool for_blas(const sli_cpu *cpu, const sli_call *call, const sli_job *job) {
    enum { ROWS = 32 };
    const sli_gemm *g = job->part;
    return cpu->blas && call->problem.dtype == SL_F32 && g->m >= ROWS && g->n >= ROWS && flops_of(job) >= 4e6;
}

/* Who shares the products of a list, whose threads are woken up once for all of it: decided product by product, threads that had once
 * parked before small ones parked before all. */
static sli_threads *threads_of(const sli_call *call, const sli_job *jobs, int count) {
    double flops = 0;
    for (int i = 0; i < count; i++) flops += flops_of(&jobs[i]);
    return sli_cpu_threads(call, flops);
}

void sli_cpu_jobs(const sli_call *call, sli_job *jobs, int count) {
    const job_list list = {sli_cpu_of(call), jobs, count};
    sli_threads *const threads = threads_of(call, jobs, count);
    double flops = 0;
    int tasks = 0;
    for (int i = 0; i < count; i++) {
        const bool done = i > 0 && jobs[i - 1].same_a && jobs[i - 1].cut_n == 0; /* with the job before */
        if (done || (jobs[i].parts > 0 && !for_blas(list.cpu, call, &jobs[i]))) {
            if (!done) sli_cpu_products(call, threads, &jobs[i]);
            jobs[i].cut_m = jobs[i].cut_n = 0; /* nothing is left of it */
        } else {
            cut_job(&jobs[i]);
            flops += jobs[i].parts > 0 ? flops_of(&jobs[i]) : (double)SLI_MOVED * jobs[i].rows * jobs[i].columns;
        }
        jobs[i].first = tasks;
        tasks += jobs[i].cut_m * jobs[i].cut_n;
    }
    sli_threads_for(sli_cpu_threads(call, flops), tasks, run_slice, (void *)&list);
}
