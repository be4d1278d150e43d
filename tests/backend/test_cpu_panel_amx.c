/* Products of a step in bf16 and f32x3: on vectors of floats, and on AMX, emulated where there is none. */
#include "backend/amx_emulated.h"
#include "backend/cpu/cpu.h"
#include "backend/panels.h"

static void check_panels(const sli_panel_ops *ops, sl_dtype dtype, int rows, int count, int vectors, int k, int valid,
                         bool across) {
    panels t = panels_new(ops, rows, count, vectors, k, valid, across);
    if (ops->begin) ops->begin();
    check_product(&t, dtype);
    check_bits(&t);
    /* Rows that are not evenly spaced, some twice: products find them by their addresses. */
    const size_t width = (size_t)(vectors * ops->lanes);
    float *before = floats_new((size_t)(rows * t.columns), NULL);
    const void *straight[PANEL_ROWS];
    memcpy(before, t.tile, (size_t)(rows * t.columns) * sizeof *before);
    memcpy(straight, t.row, sizeof straight);
    for (int r = 0; r < rows; r++) t.row[r] = straight[(r * r + 1) % rows];
    panels_multiply(&t, 0, rows, 0, count, t.tile);
    for (int p = 0; p < count; p++)
        for (int r = 0; r < rows; r++)
            if (memcmp(t.tile + (size_t)(p * rows + r) * width,
                       before + (size_t)(p * rows + (r * r + 1) % rows) * width, width * sizeof *before) != 0)
                test_fail(__FILE__, __LINE__, "row %d of %d scattered, panel %d of %d, %d vectors, k %d: other bits", r,
                          rows, p, count, vectors, k);
    free(before);
    if (ops->end) ops->end();
    panels_free(&t);
}

static void check_ops(const sli_panel_ops *ops, sl_dtype dtype) {
    static const int depths[] = {1, 7, 32, 129, 515, 1057};
    const size_t count_depths = ops == &emulated_panel_f32x3 ? 4 : sizeof depths / sizeof depths[0]; /* slow */
    for (size_t d = 0; d < count_depths; d++)
        for (int vectors = 1; vectors <= 4; vectors++)
            for (int rows = 1; rows <= 13; rows += 1 + rows / 4)
                for (int count = 1; count <= (d < 4 ? 5 : 1); count += 2)
                    check_panels(ops, dtype, rows, count, vectors, depths[d], rows % (ops->lanes + 1), rows & 1);
}

/* Weights of bf16 in pairs and as floats: the same bits. */
static void check_forms(const sli_panel_ops *pairs, const sli_panel_ops *floats) {
    static const int depths[] = {1, 7, 258};
    CHECK(pairs->lanes == floats->lanes && floats->least_rows > 0);
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++)
        for (int vectors = 1; vectors <= 4; vectors++)
            for (int rows = 1; rows <= 19; rows += 1 + rows / 2) {
                panels t[2];
                for (int i = 0; i < 2; i++) {
                    t[i] = panels_new(i ? floats : pairs, rows, 3, vectors, depths[d], rows % (pairs->lanes + 1),
                                      rows & 1);
                    check_product(&t[i], SL_BF16);
                }
                if (memcmp(t[0].tile, t[1].tile, (size_t)(rows * t[0].columns) * sizeof *t[0].tile) != 0)
                    test_fail(__FILE__, __LINE__, "%d rows, %d vectors, k %d: other bits as floats", rows, vectors,
                              depths[d]);
                panels_free(&t[0]);
                panels_free(&t[1]);
            }
}

static void check_isa(sli_isa isa) {
    sli_cpu cpu;
    sli_cpu_engine(isa, false, &cpu);
    check_ops(cpu.ops->panel_bf16, SL_BF16);
    if (cpu.ops->panel_bf16_floats) check_forms(cpu.ops->panel_bf16, cpu.ops->panel_bf16_floats);
    check_ops(cpu.ops->panel_f32x3, SL_F32X3);
}

TEST(cpu_panel_amx_types_base) {
    check_isa(SLI_ISA_BASE);
}
TEST(cpu_panel_amx_types_best) {
    check_isa(sli_cpu_isa());
}
static void check_isa_if_there(sli_isa isa) {
    char why[SLI_ISA_WHY];
    if (!sli_cpu_has(isa, why)) test_skip("%s", why);
    check_isa(isa);
}
TEST(cpu_panel_amx_types_avx512) {
    check_isa_if_there(SLI_ISA_AVX512);
}
TEST(cpu_panel_amx_types_avx512bf16) {
    check_isa_if_there(SLI_ISA_AVX512BF16);
}
static void check_emulated(const sli_panel_ops *ops, sl_dtype dtype) {
    static const int rows[] = {15, 16, 17, 19, 31, 32, 33, 35, 48};
    check_ops(ops, dtype);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (int vectors = 3; vectors <= 4; vectors++)
            check_panels(ops, dtype, rows[r], 3, vectors, 65, 16 - (int)r, r & 1);
    check_panels(ops, dtype, 35, 1, 3, 1030, 16, true);
}
TEST(cpu_panel_bf16_amx_emulated) {
    check_emulated(&emulated_panel_bf16, SL_BF16);
}
TEST(cpu_panel_f32x3_amx_emulated) {
    check_emulated(&emulated_panel_f32x3, SL_F32X3);
}

/* A product of 16 rows of x and 16 columns of w, k = 1: c[row][column]. */
static void multiply_outer(const sli_panel_ops *ops, const float *x, const float *w, float c[16][16]) {
    _Alignas(64) char panel[3 * 1024], operands[16][3 * 64];
    const void *a[16];
    const sli_panel_source source = {
        .k = 1, .vectors = 1, .from = {w}, .valid = {16}, .gap = 16, .lane_stride = 1, .k_stride = 16};
    REQUIRE(ops->lanes == 16 && ops->panel_bytes(1, 1) <= sizeof panel && ops->operand_bytes(1) <= sizeof operands[0]);
    ops->pack(panel, &source);
    for (int r = 0; r < 16; r++) {
        ops->convert(operands[0] + (size_t)r * ops->operand_bytes(1), x + r, 1);
        a[r] = operands[0] + (size_t)r * ops->operand_bytes(1);
    }
    const sli_panel_product product = {.rows = 16, .panels = 1, .vectors = 1, .k = 1, .a = a, .w = panel, .tile = c[0]};
    if (ops->begin) ops->begin();
    ops->product(&product);
    if (ops->end) ops->end();
}

/* One product of floats, whatever their sizes: the stated 2^-23, and what rounds it to a float, twice. */
static void check_exact(const sli_panel_ops *ops) {
    uint64_t seed = test_seed;
    double worst = 0;
    float x[16], w[16], c[16][16];
    for (int trial = 0; trial < 400; trial++) {
        for (int i = 0; i < 16; i++) {
            x[i] = (float)ldexp(test_random(&seed), (int)(30 * test_random(&seed)));
            w[i] = (float)ldexp(test_random(&seed), (int)(30 * test_random(&seed)));
        }
        multiply_outer(ops, x, w, c);
        for (int r = 0; r < 16; r++)
            for (int n = 0; n < 16; n++) {
                const double exact = (double)x[r] * (double)w[n], error = fabs(((double)c[r][n] - exact) / exact);
                if (!(error <= worst)) worst = error;
            }
    }
    if (!(worst < ldexp(1, -22))) test_fail(__FILE__, __LINE__, "%s: a product is wrong by %g", ops->name, worst);
}

/* What is no number or infinite makes a sum none, the largest numbers do not, and the smallest ones lose what lies below 2^-126. */
static void check_special(const sli_panel_ops *ops) {
    const float x[16] = {1, INFINITY, -INFINITY, NAN, 0, -0.0f, 3.38e38f, 1e-30f, 1e-38f};
    const float w[16] = {1, 0, -0.75f, 1e-30f, 0.5f, -1e-3f};
    float c[16][16];
    multiply_outer(ops, x, w, c);
    for (int r = 0; r < 16; r++)
        for (int n = 0; n < 6; n++) {
            const float expected = x[r] * w[n];
            const bool same =
                isfinite(x[r]) ? fabsf(c[r][n] - expected) <= 0x1p-22f * fabsf(expected) + 0x1p-125f : isnan(c[r][n]);
            if (!same) test_fail(__FILE__, __LINE__, "%s: %g * %g gives %g", ops->name, x[r], w[n], c[r][n]);
        }
}

TEST(cpu_panel_f32x3_exact) {
    sli_cpu cpu;
    check_exact(&emulated_panel_f32x3);
    check_special(&emulated_panel_f32x3);
    sli_cpu_engine(sli_cpu_isa(), false, &cpu);
    if (sli_cpu_isa() != SLI_ISA_AMX) return;
    check_exact(cpu.ops->panel_f32x3);
    check_special(cpu.ops->panel_f32x3);
}
/* Tiles are configured when a thread begins and when the number of rows changes, not with every product, and given
 * back. */
TEST(cpu_panel_bf16_amx_configures_once) {
    panels t = panels_new(&emulated_panel_bf16, 35, 2, 4, 40, 16, true);
    const int before = amx_emulated_configurations();
    emulated_panel_bf16.begin();
    for (int i = 0; i < 3; i++) panels_multiply(&t, 0, 35, 0, 2, t.tile);
    CHECK(amx_emulated_configurations() == before + 1);
    panels_multiply(&t, 0, 4, 0, 2, t.tile);
    CHECK(amx_emulated_configurations() == before + 2);
    CHECK(amx_emulated_rows(0) == 4);
    emulated_panel_bf16.end();
    CHECK(amx_emulated_rows(0) == 0);
    panels_free(&t);
}

/* Tiles that hold something cost, where another program has the core's other thread (isa/amx.h). */
static int most_held(const sli_panel_ops *ops, int rows, int vectors) {
    panels t = panels_new(ops, rows, 1, vectors, 70, 16, true);
    amx_emulated_most_held();
    ops->begin();
    panels_multiply(&t, 0, rows, 0, 1, t.tile);
    ops->end();
    panels_free(&t);
    return amx_emulated_most_held();
}
TEST(cpu_panel_amx_holds_few_tiles) {
    CHECK(most_held(&emulated_panel_bf16, 16, 4) == 4);
    CHECK(most_held(&emulated_panel_bf16, 16, 3) == 5);
    CHECK(most_held(&emulated_panel_bf16, 32, 4) == 4);
    CHECK(most_held(&emulated_panel_f32x3, 16, 4) == 4);
    CHECK(most_held(&emulated_panel_f32x3, 32, 4) == 5);
}
