/* Products of a step in bf16: on vectors of floats, and on AMX, emulated where there is none. */
#include "backend/amx_emulated.h"
#include "backend/cpu/cpu.h"
#include "backend/panels.h"

static void check_panels(const sli_panel_ops *ops, int rows, int count, int vectors, int k, int valid, bool across) {
    panels t = panels_new(ops, rows, count, vectors, k, valid, across);
    if (ops->begin) ops->begin();
    check_product(&t, SL_BF16);
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

static void check_ops(const sli_panel_ops *ops) {
    static const int depths[] = {1, 7, 32, 129, 515, 1057};
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++)
        for (int vectors = 1; vectors <= 4; vectors++)
            for (int rows = 1; rows <= 13; rows += 1 + rows / 4)
                for (int count = 1; count <= (d < 4 ? 5 : 1); count += 2)
                    check_panels(ops, rows, count, vectors, depths[d], rows % (ops->lanes + 1), rows & 1);
}

static void check_isa(sli_isa isa) {
    sli_cpu cpu;
    sli_cpu_engine(isa, false, &cpu);
    check_ops(sli_cpu_panels(&cpu, SL_BF16));
}

TEST(cpu_panel_bf16_base) {
    check_isa(SLI_ISA_BASE);
}
TEST(cpu_panel_bf16_best) {
    check_isa(sli_cpu_isa());
}
TEST(cpu_panel_bf16_amx_emulated) {
    static const int rows[] = {15, 16, 17, 19, 31, 32, 33, 35, 48};
    check_ops(&emulated_panel_bf16);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
        for (int vectors = 3; vectors <= 4; vectors++)
            check_panels(&emulated_panel_bf16, rows[r], 3, vectors, 65, 16 - (int)r, r & 1);
    check_panels(&emulated_panel_bf16, 35, 1, 3, 1030, 16, true);
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
