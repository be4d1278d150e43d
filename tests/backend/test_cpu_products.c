/* Products of f32, bf16 and f32x3 problems, the latter two on emulated AMX, too: against a loop in double of the operands, rounded where they
 * are, at shapes around tiles, tasks and pieces, transposed and not, and their bits on several threads. */
#include <time.h>
#include "backend/amx_emulated.h"
#include "backend/cpu/gemm.h"
#include "core/rounding.h"
#include "test.h"

typedef struct shape {
    int m, n, k;
    bool a_down, b_down; /* k runs down the columns of the stored matrix */
    bool add, bias, copy;
    int k2; /* of a second part, 0: none */
} shape;

typedef struct product {
    sli_job job;
    float *a[2], *b[2], *c, *bias, *copy, *before;
    char *scratch;
    size_t bytes;
} product;

static float *random_floats(size_t count, uint64_t *seed) {
    float *data = malloc((count + 1) * sizeof *data);
    REQUIRE(data != NULL);
    for (size_t i = 0; i < count; i++) data[i] = (float)test_random(seed);
    return data;
}

static sli_call call_of(const shape *s, sl_dtype dtype, const sli_cpu *cpu, product *p) {
    sli_call call = {.chunk = 1, .cpu = cpu};
    call.problem = (sli_problem){.op = SLI_OP_DENSE,
                                 .batch = s->m,
                                 .inputs = s->k > s->k2 ? s->k : s->k2,
                                 .units = s->n,
                                 .train = true,
                                 .dtype = dtype,
                                 .steps = 1};
    call.scratch_bytes = p->bytes = sli_cpu_products_bytes(&call.problem, 1);
    call.scratch = p->scratch = malloc(p->bytes);
    REQUIRE(p->scratch != NULL);
    memset(p->scratch, 0xff, p->bytes);
    return call;
}

static product product_new(const shape *s) {
    uint64_t seed = test_seed;
    product p = {.job = {.parts = s->k2 ? 2 : 1}};
    const size_t ldc = (size_t)s->n + 5;
    p.c = random_floats((size_t)s->m * ldc, &seed);
    p.before = malloc((size_t)s->m * ldc * sizeof *p.c);
    memcpy(p.before, p.c, (size_t)s->m * ldc * sizeof *p.c);
    p.bias = random_floats((size_t)s->n, &seed);
    p.copy = random_floats((size_t)s->m * ldc, &seed);
    for (int i = 0; i < p.job.parts; i++) {
        const int k = i ? s->k2 : s->k;
        p.a[i] = random_floats((size_t)s->m * (size_t)k, &seed);
        p.b[i] = random_floats((size_t)s->n * (size_t)k, &seed);
        p.job.part[i] = (sli_gemm){.m = s->m,
                                   .n = s->n,
                                   .k = k,
                                   .a = p.a[i],
                                   .b = p.b[i],
                                   .c = p.c,
                                   .am = s->a_down ? 1 : k,
                                   .ak = s->a_down ? s->m : 1,
                                   .bn = s->b_down ? 1 : k,
                                   .bk = s->b_down ? s->n : 1,
                                   .ldc = (ptrdiff_t)ldc,
                                   .add = s->add || i > 0};
    }
    if (s->bias) p.job.bias = p.bias;
    if (s->copy) p.job.copy = p.copy;
    return p;
}

static void product_free(product *p) {
    for (int i = 0; i < 2; i++) {
        free(p->a[i]);
        free(p->b[i]);
    }
    free(p->c);
    free(p->bias);
    free(p->copy);
    free(p->before);
    free(p->scratch);
}

static double operand(sl_dtype dtype, float x) {
    return dtype == SL_BF16 ? sli_round_to(dtype, (double)x) : (double)x;
}

static void check_numbers(const shape *s, sl_dtype dtype, const product *p, const char *isa) {
    double worst = 0;
    for (int m = 0; m < s->m; m++)
        for (int n = 0; n < s->n; n++) {
            const ptrdiff_t at = m * p->job.part[0].ldc + n;
            double sum = (s->add ? (double)p->before[at] : 0) + (s->bias ? (double)p->bias[n] : 0), size = 1;
            for (int i = 0; i < p->job.parts; i++) {
                const sli_gemm *g = &p->job.part[i];
                for (int k = 0; k < g->k; k++) {
                    const double term =
                        operand(dtype, g->a[m * g->am + k * g->ak]) * operand(dtype, g->b[n * g->bn + k * g->bk]);
                    sum += term;
                    size += fabs(term);
                }
            }
            const double error = fabs((double)p->c[at] - sum) / size;
            if (!(error <= worst)) worst = error;
            if (s->copy) CHECK(p->copy[at] == p->c[at]);
        }
    /* Nothing is written between the rows of c. */
    for (int m = 0; m + 1 < s->m; m++)
        for (int n = s->n; n < p->job.part[0].ldc; n++) {
            const ptrdiff_t at = m * p->job.part[0].ldc + n;
            if (memcmp(&p->c[at], &p->before[at], sizeof(float)) != 0) worst = INFINITY;
        }
    if (!(worst < 2e-6))
        test_fail(__FILE__, __LINE__, "%s: %d x %d x %d+%d: error %g", isa, s->m, s->n, s->k, s->k2, worst);
}

/* The same bits with b packed before. */
static void check_packed_b(const shape *s, sl_dtype dtype, const sli_cpu *cpu, const product *expected) {
    product p = product_new(s);
    sli_call call = call_of(s, dtype, cpu, &p);
    void *packed[2] = {NULL, NULL};
    for (int i = 0; i < p.job.parts && sli_cpu_packs_b(&call, s->m); i++) {
        sli_gemm *g = &p.job.part[i];
        packed[i] = malloc(sli_cpu_packed_b_bytes(dtype, g->n, g->k));
        REQUIRE(packed[i] != NULL);
        sli_cpu_pack_b(&call, g, packed[i]);
        g->b_packed = packed[i];
    }
    sli_cpu_jobs(&call, &p.job, 1);
    CHECK(memcmp(p.c, expected->c, (size_t)s->m * (size_t)p.job.part[0].ldc * sizeof(float)) == 0);
    free(packed[0]);
    free(packed[1]);
    product_free(&p);
}

static void check_shape(const shape *s, sl_dtype dtype, const sli_cpu *cpu) {
    product one = product_new(s), three = product_new(s);
    sli_call call = call_of(s, dtype, cpu, &one);
    sli_cpu_jobs(&call, &one.job, 1);
    check_numbers(s, dtype, &one, cpu->ops->name);
    sli_call spread = call_of(s, dtype, cpu, &three);
    REQUIRE_OK(sli_threads_new(NULL, 3, &spread.threads));
    sli_cpu_jobs(&spread, &three.job, 1);
    CHECK(memcmp(one.c, three.c, (size_t)s->m * (size_t)one.job.part[0].ldc * sizeof(float)) == 0);
    sli_threads_free(spread.threads);
    check_packed_b(s, dtype, cpu, &one);
    product_free(&one);
    product_free(&three);
}

static void check_cpu(sl_dtype dtype, const sli_cpu *cpu) {
    static const int sizes[] = {1, 15, 16, 17, 31, 33, 47, 64, 70, 97};
    uint64_t seed = test_seed;
    for (int i = 0; i < 60 / TEST_ONE_IN(3); i++) {
        int pick[3];
        for (int j = 0; j < 3; j++) pick[j] = sizes[(int)(5 + 5 * test_random(&seed))];
        const shape s = {.m = pick[0],
                         .n = pick[1],
                         .k = pick[2],
                         .a_down = i & 1,
                         .b_down = i & 2,
                         .add = i & 4,
                         .bias = i % 3 == 0,
                         .copy = i % 5 == 0,
                         .k2 = i % 7 == 0 ? 5 : 0};
        check_shape(&s, dtype, cpu);
    }
    /* Several pieces of k, of rows, of columns; several tasks. */
    check_shape(&(shape){.m = 300, .n = 270, .k = 66, .b_down = true}, dtype, cpu);
    check_shape(&(shape){.m = 33, .n = 20, .k = 1601, .a_down = true, .b_down = true, .add = true, .bias = true}, dtype,
                cpu);
    check_shape(&(shape){.m = 256, .n = 70, .k = 1100, .a_down = true, .b_down = true, .add = true}, dtype, cpu);
    check_shape(&(shape){.m = 2100, .n = 3, .k = 5, .bias = true, .copy = true}, dtype, cpu);
    check_shape(&(shape){.m = 2, .n = 4200, .k = 3, .add = true}, dtype, cpu);
    for (int m = 1; m <= 9; m += TEST_ONE_IN(3)) /* few rows: of b along k, and down, cut into tasks */
        for (int way = 0; way < 4; way++)
            check_shape(
                &(shape){.m = m, .n = 333, .k = way & 2 ? 600 : 19, .b_down = way & 1, .add = m & 1, .bias = true},
                dtype, cpu);
}

static void wait_until_parked(const sli_threads *threads) {
    const struct timespec time = {0, 2000000};
    for (int i = 0; i < 2000 && sli_threads_awake(threads); i++) nanosleep(&time, NULL);
    REQUIRE(!sli_threads_awake(threads));
}

/* A list whose products are small, but not all of them together, wakes up threads that have parked; a small list leaves them alone. */
TEST(cpu_products_wake_threads_for_a_list) {
    enum { COUNT = 4, TRIES = 3000 }; /* many where other programs have the CPUs */
    const shape s = {.m = 200, .n = 100, .k = SLI_ALONE_ASLEEP / (2 * 200 * 100) / COUNT + 20};
    sli_cpu cpu;
    if (sli_threads_default() < 2) test_skip("one CPU: threads park at once");
    sli_cpu_engine(sli_cpu_isa(), false, &cpu);
    product p = product_new(&s);
    sli_call call = call_of(&s, SL_F32, &cpu, &p);
    REQUIRE_OK(sli_threads_new(NULL, 2, &call.threads));
    sli_job jobs[COUNT];
    bool woken = false, left_alone = false;
    for (int i = 0; i < TRIES && !(woken && left_alone); i++) { /* they may have parked again, or wake up for nothing */
        wait_until_parked(call.threads);
        for (int k = 0; k < COUNT; k++) jobs[k] = p.job;
        sli_cpu_jobs(&call, jobs, COUNT - 1);
        left_alone |= !sli_threads_awake(call.threads);
        for (int k = 0; k < COUNT; k++) jobs[k] = p.job;
        sli_cpu_jobs(&call, jobs, COUNT);
        woken |= sli_threads_awake(call.threads);
    }
    CHECK(woken && left_alone);
    sli_threads_free(call.threads);
    product_free(&p);
}

TEST(cpu_products_of_every_isa) {
    char why[SLI_ISA_WHY];
    for (int isa = SLI_ISA_BASE; isa <= SLI_ISA_AVX512; isa++)
        for (int type = 0; sli_cpu_has((sli_isa)isa, why) && type < 2; type++) {
            sli_cpu cpu;
            sli_cpu_engine((sli_isa)isa, false, &cpu);
            check_cpu(type == 0 ? SL_F32 : SL_BF16, &cpu);
        }
}
TEST(cpu_products_bf16_amx_emulated) {
    sli_isa_ops ops;
    amx_emulated_ops(&ops);
    check_cpu(SL_BF16, &(sli_cpu){.isa = SLI_ISA_AMX, .ops = &ops});
}
TEST(cpu_products_f32x3_amx_emulated) {
    sli_isa_ops ops;
    amx_emulated_ops(&ops);
    check_cpu(SL_F32X3, &(sli_cpu){.isa = SLI_ISA_AMX, .ops = &ops});
}
/* Tiles that hold something cost, where another program has the core's other thread (isa/amx.h). */
static int most_held(sl_dtype dtype) {
    sli_isa_ops ops;
    amx_emulated_ops(&ops);
    amx_emulated_products_most_held();
    check_shape(&(shape){.m = 70, .n = 70, .k = 70}, dtype, &(sli_cpu){.isa = SLI_ISA_AMX, .ops = &ops});
    return amx_emulated_products_most_held();
}
TEST(cpu_products_amx_hold_few_tiles) {
    CHECK(most_held(SL_BF16) == 4);
    CHECK(most_held(SL_F32X3) == 5);
}
TEST(cpu_products_f32x3_best) {
    sli_cpu cpu;
    sli_cpu_engine(sli_cpu_isa(), false, &cpu);
    check_cpu(SL_F32X3, &cpu);
}
/* sums[m], to which a's lines were added twice, of floats rounded to bf16 or not. */
static void check_sums(const shape *s, const char *name, const float *a, const float *sums, bool rounded) {
    for (int m = 0; m < s->m; m++) {
        double sum = 0, size = 1e-3;
        for (int k = 0; k < s->k; k++) {
            const double x = (double)a[k * s->m + m];
            sum += 2 * (rounded ? sli_round_to(SL_BF16, x) : x);
            size += fabs(2 * x);
        }
        if (!(fabs((double)sums[m] - sum) <= 1e-6 * size))
            test_fail(__FILE__, __LINE__, "%s: %d x %d x %d: sum %d is %g, not %g (of %g)", name, s->m, s->n, s->k, m,
                      (double)sums[m], sum, size);
    }
}

/* a in bf16 is multiplied as its floats are, to the bit; down its columns the sums of its lines come with it, of floats those before they
 * are rounded. Its memory ends where it may be read to. */
static void check_halves(const shape *s, const sli_cpu *cpu) {
    product floats = product_new(s), halves = product_new(s);
    sli_call call = call_of(s, SL_BF16, cpu, &floats), other = call_of(s, SL_BF16, cpu, &halves);
    sli_gemm *g = &halves.job.part[0];
    const int rows = s->a_down ? s->k : (s->m + 15) / 16 * 16, line = s->a_down ? s->m + 7 : (s->k + 31) / 32 * 32;
    uint16_t *a = calloc((size_t)rows * (size_t)line, sizeof *a);
    float *sums = calloc((size_t)s->m, sizeof *sums), *float_sums = calloc((size_t)s->m, sizeof *float_sums);
    REQUIRE(a && sums && float_sums);
    memset(a, s->a_down ? 0 : 0x11, (size_t)rows * (size_t)line * sizeof *a); /* behind k: any number */
    for (int m = 0; m < s->m; m++)
        for (int k = 0; k < s->k; k++) {
            const float x = (float)sli_round_to(SL_BF16, (double)g->a[m * g->am + k * g->ak]);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            a[s->a_down ? k * line + m : m * line + k] = (uint16_t)(bits >> 16);
        }
    g->a_half = a;
    g->am = s->a_down ? 1 : line;
    g->ak = s->a_down ? line : 1;
    if (s->a_down) { /* both places are the same */
        halves.job.sums[0] = halves.job.sums[1] = sums;
        floats.job.sums[0] = floats.job.sums[1] = float_sums;
    }
    sli_cpu_jobs(&call, &floats.job, 1);
    sli_cpu_jobs(&other, &halves.job, 1);
    CHECK(memcmp(floats.c, halves.c, (size_t)s->m * (size_t)g->ldc * sizeof(float)) == 0);
    if (s->a_down) {
        check_sums(s, cpu->ops->name, floats.a[0], sums, true);
        if (s->m > 1)
            check_sums(s, cpu->ops->name, floats.a[0], float_sums, false); /* a line alone need not be packed */
    }
    free(a);
    free(sums);
    free(float_sums);
    product_free(&floats);
    product_free(&halves);
}

static void check_all_halves(const sli_cpu *cpu) {
    for (int down = 0; down < 2; down++) {
        check_halves(&(shape){.m = 1, .n = 1, .k = 1, .a_down = down}, cpu);
        check_halves(&(shape){.m = 17, .n = 33, .k = 31, .a_down = down, .b_down = true}, cpu);
        check_halves(&(shape){.m = 97, .n = 20, .k = 65, .a_down = down, .add = true}, cpu);
        check_halves(&(shape){.m = 50, .n = 70, .k = 1601, .a_down = down, .b_down = true, .add = true}, cpu);
        check_halves(&(shape){.m = 2100, .n = 3, .k = 40, .a_down = down}, cpu);
        check_halves(&(shape){.m = 33, .n = 2100, .k = 7, .a_down = down}, cpu);
    }
}

TEST(cpu_products_of_bf16_amx_emulated) {
    sli_isa_ops ops;
    amx_emulated_ops(&ops);
    check_all_halves(&(sli_cpu){.isa = SLI_ISA_AMX, .ops = &ops});
}
static void check_isa_of_bf16(sli_isa isa) {
    char why[SLI_ISA_WHY];
    sli_cpu cpu;
    if (!sli_cpu_has(isa, why)) test_skip("%s", why);
    sli_cpu_engine(isa, false, &cpu);
    check_cpu(SL_BF16, &cpu);
    check_all_halves(&cpu);
}
TEST(cpu_products_amx) {
    check_isa_of_bf16(SLI_ISA_AMX);
}
TEST(cpu_products_avx512bf16) {
    check_isa_of_bf16(SLI_ISA_AVX512BF16);
}

/* Slices on a BLAS, where there is one. */
TEST(cpu_products_blas) {
    sli_cpu cpu;
    sli_cpu_engine(sli_cpu_isa(), true, &cpu);
    if (!cpu.blas) test_skip("no BLAS is used");
    check_cpu(SL_F32, &cpu);
}
