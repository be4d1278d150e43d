/* Products of a step with weights of 8 bits: every implementation that this machine can run against the whole numbers themselves,
 * to the bit. So they are equal to each other, too. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"
#include "backend/panel_source.h"
#include "test.h"

extern const sli_panel_ops sli_isa_panel_i8_vnni_emulated; /* vnni_emulated.c */

/* ------------------------------------------------------------------------------------------------------ oracle --
 * q[count] = the nearest whole numbers of x / scale; returns scale = max |x| / 127. */
static float quantise(int count, const float *x, ptrdiff_t stride, int *q) {
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < count; i++) {
        largest = fmaxf(largest, fabsf(x[i * stride]));
        finite = finite && isfinite(x[i * stride]);
    }
    for (int i = 0; i < count; i++)
        q[i] = finite && largest >= 0x1p-100f ? (int)nearbyintf(x[i * stride] * (127 / largest)) : 0;
    return !finite ? NAN : largest >= 0x1p-100f ? largest / 127 : 0;
}

typedef struct panels {
    const sli_panel_ops *ops;
    int k, vectors, panels, rows, columns; /* columns of all panels, padding included */
    float *weights;                        /* [columns][k], 0 where there is padding */
    float *operands;                       /* [rows][k] */
    char *packed, *converted;
    float *tile;
    const void *row[16];
} panels;

static void *bytes_new(size_t bytes) {
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    REQUIRE(data != NULL);
    memset(data, 0xff, bytes);
    return data;
}

static panels panels_new(const sli_panel_ops *ops, int rows, int count, int vectors, int k) {
    panels t = {.ops = ops, .k = k, .vectors = vectors, .panels = count, .rows = rows};
    t.columns = count * vectors * ops->lanes;
    t.weights = bytes_new((size_t)(k * t.columns) * sizeof(float));
    t.operands = bytes_new((size_t)(rows * k) * sizeof(float));
    CHECK(ops->panel_bytes(k, vectors) % 64 == 0 && ops->operand_bytes(k) % 64 == 0);
    t.packed = bytes_new((size_t)count * ops->panel_bytes(k, vectors));
    t.converted = bytes_new((size_t)rows * ops->operand_bytes(k));
    t.tile = bytes_new((size_t)(rows * t.columns) * sizeof(float));
    return t;
}

static void panels_free(panels *t) {
    free(t->weights);
    free(t->operands);
    free(t->packed);
    free(t->converted);
    free(t->tile);
}

/* The source is read across (k_stride 1) or down (lane_stride 1). */
static panel_shape shape_of(const panels *t, int valid, bool across) {
    return panel_shape_of(t->ops, t->k, t->vectors, t->panels, valid, t->rows, across);
}

/* Random numbers, each column and row of another size, but for padding. */
static void fill(panels *t, const panel_shape *shape) {
    uint64_t seed = test_seed;
    for (int c = 0; c < t->columns; c++)
        for (int i = 0; i < t->k; i++) {
            const float w = (float)test_random(&seed) * (float)(1 + c % 5);
            t->weights[c * t->k + i] = panel_pads(shape, c) ? 0 : w;
        }
    for (int r = 0; r < t->rows; r++)
        for (int i = 0; i < t->k; i++) t->operands[r * t->k + i] = (float)test_random(&seed) / (float)(1 + r);
}

static void convert(panels *t, const panel_shape *shape, bool across) {
    float *down = bytes_new((size_t)(t->k * t->columns) * sizeof(float)); /* [k][columns] */
    for (int c = 0; c < t->columns; c++)
        for (int i = 0; i < t->k; i++) down[i * t->columns + c] = t->weights[c * t->k + i];
    for (int p = 0; p < t->panels; p++) {
        const sli_panel_source source = panel_source(shape, across ? t->weights : NULL, down, p);
        t->ops->pack(t->packed + (size_t)p * t->ops->panel_bytes(t->k, t->vectors), &source);
    }
    for (int r = 0; r < t->rows; r++) {
        void *to = t->converted + (size_t)r * t->ops->operand_bytes(t->k);
        t->ops->convert(to, t->operands + r * t->k, t->k);
        t->row[r] = to;
    }
    free(down);
}

static void multiply(const panels *t, int first_row, int rows, int first_panel, int count, float *tile) {
    const sli_panel_product p = {.rows = rows,
                                 .panels = count,
                                 .vectors = t->vectors,
                                 .k = t->k,
                                 .a = t->row + first_row,
                                 .w = t->packed + (size_t)first_panel * t->ops->panel_bytes(t->k, t->vectors),
                                 .tile = tile};
    if (t->ops->begin) t->ops->begin();
    t->ops->product(&p);
    if (t->ops->end) t->ops->end();
}

static bool same(float a, float b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)) || (a == 0 && b == 0);
}

/* The whole tile against the oracle. */
static void check_product(const panels *t) {
    const int width = t->vectors * t->ops->lanes;
    int *w = bytes_new((size_t)t->k * sizeof *w), *a = bytes_new((size_t)(t->k * t->rows) * sizeof *a);
    float scale_a[16];
    int wrong = 0;
    multiply(t, 0, t->rows, 0, t->panels, t->tile);
    for (int r = 0; r < t->rows; r++) scale_a[r] = quantise(t->k, t->operands + r * t->k, 1, a + r * t->k);
    for (int c = 0; c < t->columns; c++) {
        const float scale_w = quantise(t->k, t->weights + c * t->k, 1, w);
        for (int r = 0; r < t->rows; r++) {
            int64_t sum = 0;
            for (int i = 0; i < t->k; i++) sum += (int64_t)a[r * t->k + i] * w[i];
            const float got = t->tile[(c / width * t->rows + r) * width + c % width];
            if (!same(got, (float)sum * (scale_w * scale_a[r]))) wrong++;
        }
    }
    if (wrong)
        test_fail(__FILE__, __LINE__, "%s, %d rows, %d panels of %d vectors, k %d: %d of %d numbers are wrong",
                  t->ops->name, t->rows, t->panels, t->vectors, t->k, wrong, t->rows * t->columns);
    free(w);
    free(a);
}

/* ------------------------------------------------------------------------------------------------------- checks -- */
static void check_shapes(const sli_panel_ops *ops) {
    static const int depths[] = {1, 7, 64, 129};
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++)
        for (int vectors = 1; vectors <= 4; vectors++)
            for (int rows = 1; rows <= 11; rows++) {
                panels t = panels_new(ops, rows, 1 + rows % 3, vectors, depths[d]);
                const panel_shape shape = shape_of(&t, rows % (ops->lanes + 1), rows & 1);
                fill(&t, &shape);
                convert(&t, &shape, rows & 1);
                check_product(&t);
                panels_free(&t);
            }
}

/* The largest sums there are, of either sign: nothing saturates, in pairs, in fours, or in all. */
static void check_extremes(const sli_panel_ops *ops, int vectors, int k) {
    panels t = panels_new(ops, 4, 1, vectors, k);
    const panel_shape shape = shape_of(&t, ops->lanes, false);
    fill(&t, &shape);
    for (int c = 0; c < t.columns; c++)
        for (int i = 0; i < k; i++) t.weights[c * k + i] = c % 3 == 0 ? 1 : c % 3 == 1 ? -1 : i % 2 ? 1 : -1;
    for (int i = 0; i < k; i++) {
        t.operands[i] = 3;
        t.operands[k + i] = -3;
        t.operands[2 * k + i] = i % 2 ? 3 : -3;
    }
    convert(&t, &shape, true);
    check_product(&t);
    panels_free(&t);
}

/* A number that is not finite spoils its row or column and no other; zeros and tiny numbers are 0. */
static void check_special(const sli_panel_ops *ops) {
    const int k = 37;
    panels t = panels_new(ops, 7, 1, 3, k);
    const panel_shape shape = shape_of(&t, ops->lanes, false);
    fill(&t, &shape);
    t.operands[3] = NAN;
    t.operands[k + 36] = INFINITY;
    for (int i = 0; i < k; i++) {
        t.operands[2 * k + i] = 0;
        t.operands[3 * k + i] = 0x1p-120f;
        t.operands[4 * k + i] *= 0x1p-90f;
        t.operands[5 * k + i] *= 0x1p90f;
        t.weights[i] = 0;
        t.weights[k + i] = -0x1p-130f;
    }
    t.weights[2 * k + 5] = -INFINITY;
    convert(&t, &shape, true);
    check_product(&t);
    CHECK(isnan(t.tile[1]) && isnan(t.tile[2 * 3 * ops->lanes + 2]) && t.tile[2 * 3 * ops->lanes + 3] == 0);
    panels_free(&t);
}

static void check_ops(const sli_panel_ops *ops) {
    check_shapes(ops);
    check_special(ops);
    check_extremes(ops, 4, 2);
    check_extremes(ops, 3, 1000);
    check_extremes(ops, 1, SLI_PANEL_I8_MOST);
}

static void check_isa(sli_isa isa) {
    char why[SLI_ISA_WHY];
    sli_cpu cpu;
    if (!sli_cpu_has(isa, why)) test_skip("%s", why);
    sli_cpu_engine(isa, false, &cpu);
    check_ops(cpu.ops->panel_i8);
    /* VNNI, where there is VNNI. */
    const sli_panel_ops *own = sli_cpu_panels(&cpu, &(sli_problem){.dtype = SL_I8});
    if (own != cpu.ops->panel_i8) check_ops(own);
}

TEST(cpu_panel_i8_base) {
    check_isa(SLI_ISA_BASE);
}
TEST(cpu_panel_i8_avx2) {
    check_isa(SLI_ISA_AVX2);
}
TEST(cpu_panel_i8_avx512) {
    check_isa(SLI_ISA_AVX512);
}
TEST(cpu_panel_i8_neon) {
    check_isa(SLI_ISA_NEON);
}
TEST(cpu_panel_i8_emulated_vnni) {
    check_ops(&sli_isa_panel_i8_vnni_emulated);
}
