/* Products of jobs on our own kernels (isa/product.h): operands that are not packed yet, nor read as they are, are packed into the end
 * of the call's scratch, by all threads, a piece of k, rows and columns at a time; then all threads multiply. Pieces and tasks are cut by shape
 * alone, and k goes up from piece to piece, so the number of threads changes no bit. */
#include <string.h>
#include "backend/cpu/gemm.h"

/* Most rows, columns and k of a piece: what is packed at a time. On AMX two blocks of 16 columns of 384 k, in bf16, are 24 KB, and one
 * of 192 k of floats, in three parts, 18 KB: they stay in L1; by AVX512_BF16 three blocks are 36 KB, of the 48 KB of a Zen 5. Of floats, a block of rows of 512 k is 192 KB, in L2, and a panel of
 * AVX2's 16 columns 32 KB: c, which is read and written once a piece of k, is 2 to 5% of the time. 256 to 700 k differ by 2%. */
enum {
    PIECE_LINES = 21 * SLI_PRODUCT_LINES,
    PIECE_K_BF16 = 384,
    PIECE_K_F32 = 512,
    PIECE_K_F32X3 = 192, /* of three bf16 */
    PADDED = 32,         /* lines and k of packed operands */
    LEAST_TASKS = 32
};

int sli_cpu_piece_k(sl_dtype dtype) {
    return dtype == SL_BF16 ? PIECE_K_BF16 : dtype == SL_F32X3 ? PIECE_K_F32X3 : PIECE_K_F32;
}

/* Bytes of a packed number. */
static size_t packed_number(sl_dtype dtype) {
    return dtype == SL_F32X3 ? 3 * sizeof(uint16_t) : sizeof(float);
}

/* Against batches of 1 to 8, say, packing b would take most of the time: 8 GFLOP/s instead of 30 (Zen 3, one row, b in L3). */
int sli_cpu_few_rows(sl_dtype dtype) {
    enum { FEW_ROWS = 8 };
    return dtype == SL_F32 || dtype == SL_F32X3 ? FEW_ROWS : 0;
}

/* Even pieces of at most `most`, in multiples of `unit`: the size of one. */
static int even_piece(int size, int most, int unit) {
    const int count = sli_divide_up(size, most);
    return count < 2 ? size : sli_divide_up(sli_divide_up(size, count), unit) * unit;
}

/* Bytes of an operand's piece. */
static size_t piece_bytes(sl_dtype dtype, int lines, int k) {
    const size_t padded = (size_t)sli_divide_up(sli_least(lines, PIECE_LINES), PADDED) * PADDED;
    return padded * (size_t)sli_divide_up(sli_least(k, sli_cpu_piece_k(dtype)), PADDED) * PADDED * packed_number(dtype);
}

static size_t product_bytes(size_t most, sl_dtype dtype, int m, int n, int k) {
    const size_t bytes = piece_bytes(dtype, m, k) + piece_bytes(dtype, n, k);
    return bytes > most ? bytes : most;
}

/* Inference in the other types multiplies weights that were packed once. */
size_t sli_cpu_products_bytes(const sli_problem *p, int chunk) {
    if (sli_cpu_few_rows(p->dtype) == 0 && !p->train) return 0;
    const int rows = p->batch * sli_least(chunk > 0 ? chunk : 1, sli_cpu_steps(p));
    const int inputs = p->inputs, outputs = p->units * (sli_op_is_recurrent(p->op) ? sli_op_gates(p->op) : 1);
    size_t bytes = product_bytes(0, p->dtype, rows, outputs, inputs);
    if (p->train) {
        bytes = product_bytes(bytes, p->dtype, rows, inputs, outputs);
        bytes = product_bytes(bytes, p->dtype, outputs, inputs > p->units ? inputs : p->units, rows);
        if (p->projection > 0) bytes = product_bytes(bytes, p->dtype, outputs, p->projection, rows);
        if (p->projection > 0) bytes = product_bytes(bytes, p->dtype, p->projection, p->units, rows);
    }
    return bytes + SLI_ALIGN;
}

/* A piece of a product. */
typedef struct piece {
    const sli_product_ops *ops;
    sli_threads *threads; /* who may share it */
    sli_operand a, b;     /* of the piece */
    char *packed_a, *packed_b;
    const char *b_lines; /* packed_b, or what was packed before */
    ptrdiff_t a_line;    /* a is multiplied as it is: bytes from row to row; 0: packed */
    int pack_a, pack_b;  /* tasks of packing; 0: it is packed */
    int side_m, side_n;  /* rows and columns of a task */
    int tasks_m, tasks_n;
    float *c; /* the piece's element (0, 0) */
    ptrdiff_t ldc;
    bool add, last; /* last: the sums are complete */
    const sli_cpu *cpu;
    const sli_job *job;
    int m, n; /* first row and column in the job's c */
} piece;

static void pack_task(void *context, int index) {
    const piece *p = context;
    const bool of_a = index < p->pack_a;
    const sli_operand *x = of_a ? &p->a : &p->b;
    const int first = (of_a ? index : index - p->pack_a) * SLI_PRODUCT_LINES;
    (of_a ? p->ops->pack_a : p->ops->pack_b)(of_a ? p->packed_a : p->packed_b, x, first,
                                             sli_least(first + SLI_PRODUCT_LINES, x->lines));
}

static void pack_b_task(void *context, int index) {
    const piece *p = context;
    pack_task(context, p->pack_a + index);
}

/* Of a each thread the rows that it will multiply; where there are too few blocks for that, of both whatever comes. */
static void pack(sli_threads *threads, piece *p) {
    if (p->pack_a < sli_threads_count(threads)) {
        sli_threads_for(threads, p->pack_a + p->pack_b, pack_task, p);
        return;
    }
    sli_threads_near(threads, p->pack_a, 1, pack_task, p);
    sli_threads_near(threads, p->pack_b, 1, pack_b_task, p);
}

/* Neighbouring tasks share columns, and a thread multiplies the rows that it packed. */
static void multiply_task(void *context, int index) {
    const piece *p = context;
    const int m = index % p->tasks_m * p->side_m, n = index / p->tasks_m * p->side_n;
    const sli_product_block block = {.a = p->a_line ? (const void *)p->a.half : p->packed_a,
                                     .b = p->b_lines,
                                     .a_along = p->a.depth == 1,
                                     .a_line = p->a_line,
                                     .k = p->a.k,
                                     .m0 = m,
                                     .m1 = sli_least(m + p->side_m, p->a.lines),
                                     .n0 = n,
                                     .n1 = sli_least(n + p->side_n, p->b.lines),
                                     .c = p->c,
                                     .ldc = p->ldc,
                                     .add = p->add};
    p->ops->multiply(&block);
    if (p->last) sli_cpu_finish(p->cpu, p->job, p->m + m, p->n + n, block.m1 - m, block.n1 - n);
}

/* Few rows and many columns, whose rows stay near while the columns pass; of few blocks, all of which stay near, few columns, since one of
 * two threads would have two of three blocks. */
static void cut_columns(piece *p) {
    enum { FEW_BLOCKS = 4, MANY_COLUMNS = 2 * SLI_PRODUCT_LINES };
    const int unit = p->ops->task_columns, most = p->tasks_m <= FEW_BLOCKS ? unit : MANY_COLUMNS;
    p->tasks_n = sli_least(sli_divide_up(LEAST_TASKS, p->tasks_m), sli_divide_up(p->b.lines, most));
    p->side_n = sli_divide_up(sli_divide_up(p->b.lines, p->tasks_n), unit) * unit;
    p->tasks_n = sli_divide_up(p->b.lines, p->side_n);
}

/* Rows of one block, or squares of five blocks; smaller ones where they would be too few for many threads. */
static void cut_tasks(piece *p) {
    int side = p->ops->task_rows > 0 ? p->ops->task_rows : 5 * SLI_PRODUCT_LINES;
    for (;; side -= SLI_PRODUCT_LINES) {
        p->side_m = p->side_n = side;
        p->tasks_m = sli_divide_up(p->a.lines, side);
        p->tasks_n = sli_divide_up(p->b.lines, side);
        if (side == SLI_PRODUCT_LINES || p->tasks_m * p->tasks_n >= LEAST_TASKS) break;
    }
    if (p->ops->task_rows > 0 || p->tasks_m * p->tasks_n < LEAST_TASKS) cut_columns(p);
}

/* packs_a, packs_b: they are not packed yet. */
static void run_piece(piece *p, bool packs_a, bool packs_b) {
    sli_threads *threads = 2.0 * p->a.lines * p->b.lines * p->a.k < SLI_ALONE ? NULL : p->threads;
    p->pack_a = packs_a ? sli_divide_up(p->a.lines, SLI_PRODUCT_LINES) : 0;
    p->pack_b = packs_b ? sli_divide_up(p->b.lines, SLI_PRODUCT_LINES) : 0;
    pack(threads, p);
    cut_tasks(p);
    sli_threads_near(threads, p->tasks_m, p->tasks_n, multiply_task, p);
}

/* ----------------------------------------------------------------------------------------------------- few rows -- */
enum { FEW_BYTES = 128 * 1024 };

typedef struct few {
    const sli_cpu *cpu;
    const sli_job *job;
    const sli_gemm *g;
    bool last;
    int columns; /* of a task */
} few;

static void few_task(void *context, int index) {
    const few *w = context;
    const int n = index * w->columns;
    sli_gemm g = *w->g;
    g.n = sli_least(w->columns, g.n - n);
    g.b += n * g.bn;
    g.c += n;
    w->cpu->ops->product_few(&g);
    if (w->last) sli_cpu_finish(w->cpu, w->job, 0, n, g.m, g.n);
}

/* Tasks of about FEW_BYTES of b. */
static void run_few(const sli_call *call, const sli_job *job, const sli_gemm *g, bool last) {
    const int lines = FEW_BYTES / (int)sizeof(float) / (g->k > 0 ? g->k : 1) / SLI_PRODUCT_LINES + 1;
    const few w = {sli_cpu_of(call), job, g, last, lines * SLI_PRODUCT_LINES};
    const int tasks = sli_divide_up(g->n, w.columns);
    sli_threads_for(tasks > 2 ? call->threads : NULL, tasks, few_task, (void *)&w);
}

/* How b is cut: [pieces of k][pieces of columns], each of `bytes` where it is packed once. */
typedef struct b_pieces {
    int step_n, step_k, count_n, count_k;
    size_t bytes;
} b_pieces;

static b_pieces b_pieces_of(sl_dtype dtype, int n, int k) {
    b_pieces at = {.step_n = even_piece(n, PIECE_LINES, SLI_PRODUCT_LINES),
                   .step_k = even_piece(k, sli_cpu_piece_k(dtype), PADDED)};
    at.count_n = sli_divide_up(n, at.step_n);
    at.count_k = sli_divide_up(k, at.step_k);
    at.bytes = piece_bytes(dtype, at.step_n, at.step_k);
    return at;
}

static sli_operand b_piece(const sli_gemm *g, const b_pieces *at, int n, int k) {
    return (sli_operand){.x = g->b + n * g->bn + k * g->bk,
                         .line = g->bn,
                         .depth = g->bk,
                         .lines = sli_least(at->step_n, g->n - n),
                         .k = sli_least(at->step_k, g->k - k)};
}

size_t sli_cpu_packed_b_bytes(sl_dtype dtype, int n, int k) {
    const b_pieces at = b_pieces_of(dtype, n, k);
    return (size_t)at.count_n * (size_t)at.count_k * at.bytes;
}

static const sli_product_ops *product_ops(const sli_call *call) {
    const sli_isa_ops *ops = sli_cpu_of(call)->ops;
    const sl_dtype dtype = call->problem.dtype;
    return dtype == SL_BF16 ? ops->product_bf16 : dtype == SL_F32X3 ? ops->product_f32x3 : ops->product_f32;
}

bool sli_cpu_packs(const sli_call *call) {
    return !sli_cpu_of(call)->blas;
}

bool sli_cpu_packs_b(const sli_call *call, int rows) {
    return sli_cpu_packs(call) && rows > sli_cpu_few_rows(call->problem.dtype);
}

typedef struct packing {
    const sli_product_ops *ops;
    const sli_gemm *g;
    b_pieces at;
    char *packed;
} packing;

/* A block of lines of a piece of k. */
static void pack_before_task(void *context, int index) {
    const packing *w = context;
    const int blocks = sli_divide_up(w->g->n, SLI_PRODUCT_LINES), first = index % blocks * SLI_PRODUCT_LINES;
    const int k = index / blocks, n = first / w->at.step_n;
    const sli_operand b = b_piece(w->g, &w->at, n * w->at.step_n, k * w->at.step_k);
    const int line = first - n * w->at.step_n;
    w->ops->pack_b(w->packed + (size_t)(k * w->at.count_n + n) * w->at.bytes, &b, line,
                   sli_least(line + SLI_PRODUCT_LINES, b.lines));
}

void sli_cpu_pack_b(const sli_call *call, const sli_gemm *g, void *packed) {
    packing w = {product_ops(call), g, b_pieces_of(call->problem.dtype, g->n, g->k), packed};
    sli_threads *threads = (double)g->n * g->k < 1e5 ? NULL : call->threads;
    sli_threads_for(threads, sli_divide_up(g->n, SLI_PRODUCT_LINES) * w.at.count_k, pack_before_task, &w);
}

/* All columns of some rows and of some of k, from `k` on. */
static void run_columns(const sli_call *call, const sli_job *job, const sli_gemm *g, piece p, int k, bool packs) {
    const b_pieces at = b_pieces_of(call->problem.dtype, g->n, g->k);
    p.job = job;
    p.b_lines = g->b_packed ? (const char *)g->b_packed + (size_t)(k / at.step_k * at.count_n) * at.bytes : p.packed_b;
    for (int n = 0; n < g->n; n += at.step_n) {
        p.c = g->c + p.m * g->ldc + n;
        p.ldc = g->ldc;
        p.n = n;
        p.b = b_piece(g, &at, n, k);
        run_piece(&p, packs && n == 0 && !p.a_line, !g->b_packed);
        if (g->b_packed) p.b_lines += at.bytes;
    }
}

/* a from number `at` on. Of bf16 along k nothing is packed. */
static void set_a(piece *p, const sli_gemm *g, ptrdiff_t at) {
    p->a = (sli_operand){.line = g->am, .depth = g->ak};
    if (!g->a_half) {
        p->a.x = g->a + at;
        return;
    }
    p->a.half = g->a_half + at;
    if (g->ak == 1) p->a_line = g->am * (ptrdiff_t)sizeof *p->a.half;
}

/* Product `part` of a job, and, with `same_a`, that of the next one. `last`: what comes after the job's last product is done with it. */
static void run_product(const sli_call *call, sli_threads *threads, const sli_job *job, int part, char *space) {
    const sli_cpu *cpu = sli_cpu_of(call);
    const sl_dtype dtype = call->problem.dtype;
    const sli_gemm *g = &job->part[part];
    const int step_m = even_piece(g->m, PIECE_LINES, SLI_PRODUCT_LINES);
    const int step_k = even_piece(g->k, sli_cpu_piece_k(dtype), PADDED);
    for (int m = 0; m < g->m; m += step_m)
        for (int k = 0; k < g->k || k == 0; k += step_k) {
            piece p = {.ops = product_ops(call),
                       .threads = threads,
                       .packed_a = space,
                       .packed_b = space + piece_bytes(dtype, g->m, g->k),
                       .cpu = cpu,
                       .m = m};
            set_a(&p, g, m * g->am + k * g->ak);
            for (int i = 0; i < 2; i++) p.a.sums[i] = job->sums[i] ? job->sums[i] + m : NULL;
            p.a.lines = sli_least(step_m, g->m - m);
            p.a.k = sli_least(step_k, g->k - k);
            for (int i = 0; i <= job->same_a; i++) {
                const sli_gemm *own = &job[i].part[part];
                p.add = own->add || k > 0;
                p.last = part == job[i].parts - 1 && k + step_k >= g->k;
                run_columns(call, &job[i], own, p, k, i == 0);
            }
        }
}

void *sli_cpu_products_space(const sli_call *call, size_t *bytes) {
    const size_t booked = sli_cpu_products_bytes(&call->problem, call->chunk);
    const uintptr_t end = (uintptr_t)call->scratch + call->scratch_bytes;
    const uintptr_t space = (end - booked + SLI_ALIGN - 1) / SLI_ALIGN * SLI_ALIGN;
    *bytes = booked ? booked - SLI_ALIGN : 0; /* by shape alone, wherever the scratch ends: who asks may decide by it */
    return (void *)space;
}

void sli_cpu_products(const sli_call *call, sli_threads *threads, const sli_job *job) {
    size_t bytes;
    char *space = sli_cpu_products_space(call, &bytes);
    for (int i = 0; i < job->parts; i++) {
        const sli_gemm *g = &job->part[i];
        if (g->m <= 0 || g->n <= 0) continue;
        if (g->m > sli_cpu_few_rows(call->problem.dtype) || g->ak != 1) {
            run_product(call, threads, job, i, space);
            continue;
        }
        for (int j = 0; j <= job->same_a; j++) run_few(call, &job[j], &job[j].part[i], i == job[j].parts - 1);
    }
}
