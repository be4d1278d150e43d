/* Products of a step on panels of floats: at awkward sizes, and their bits whatever goes together. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"
#include "backend/panels.h"

static void check_isa(sli_isa isa) {
    enum { DEEP = 1669 }; /* more than a block of one vector of any instruction set (isa/panel_rows.h) */
    static const int depths[] = {1, 7, 128, 257, DEEP};
    sli_cpu cpu;
    sli_cpu_engine(isa, false, &cpu);
    const sli_panel_ops *ops = cpu.ops->panel_f32;
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++)
        for (int vectors = 1; vectors <= 4; vectors++)
            for (int rows = 1; rows <= 13; rows++)
                for (int count = 1; count <= 5; count += 2) {
                    if (depths[d] == DEEP && (count > 1 || rows % 4 != 1)) continue;
                    panels t = panels_new(ops, rows, count, vectors, depths[d], rows % (ops->lanes + 1), rows & 1);
                    check_product(&t, SL_F32);
                    check_bits(&t);
                    panels_free(&t);
                }
}

TEST(cpu_panel_f32_base) {
    check_isa(SLI_ISA_BASE);
}
TEST(cpu_panel_f32_best) {
    check_isa(sli_cpu_isa());
}
