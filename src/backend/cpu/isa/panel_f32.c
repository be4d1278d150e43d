/* Products of a step on panels of floats. Operands are the floats themselves. */
#include <string.h>
#include "backend/cpu/isa/vector.h"

enum { WEIGHT_K = 1 };
typedef float weight;
VF_INLINE vf weight_load(const weight *w, int t) {
    (void)t;
    return vf_load(w);
}
#include "backend/cpu/isa/panel_rows.h"

static size_t operand_bytes(int k) {
    return ((size_t)k * sizeof(float) + 63) / 64 * 64;
}

static void pack(void *panel, const sli_panel_source *s) {
    const int width = s->vectors * VL;
    for (int k0 = 0; k0 < s->k; k0 += VL)
        for (int v = 0; v < s->vectors; v++)
            panel_square(s, v, k0, (float *)panel + (size_t)k0 * (size_t)width + v * VL, width);
}

static void line(const void *panel, int vectors, int k, float *to) {
    const size_t width = (size_t)(vectors * VL);
    memcpy(to, (const float *)panel + (size_t)k * width, width * sizeof *to);
}

const sli_panel_ops ISA(panel_f32) = {.name = "f32",
                                      .lanes = VL,
                                      .panels = 12,
                                      .panel_bytes = panel_bytes,
                                      .operand_bytes = operand_bytes,
                                      .pack = pack,
                                      .convert = NULL,
                                      .product = product,
                                      .line = line};
