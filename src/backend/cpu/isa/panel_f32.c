/* Products of a step on panels of floats. Operands are the floats themselves. */
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

/* k_stride is mostly the length of a row or 1: in squares, so that either way lines are used whole. */
static void pack(void *panel, const sli_panel_source *s) {
    enum { SQUARE = 16 };
    float *to = panel;
    const int width = s->vectors * VL;
    for (int k0 = 0; k0 < s->k; k0 += SQUARE) {
        const int k1 = k0 + SQUARE < s->k ? k0 + SQUARE : s->k;
        for (int c = 0; c < width; c++) {
            const int v = c / VL, l = c % VL;
            const bool there = l < s->valid[v];
            const float *from = there ? s->from[v] + l * s->lane_stride : NULL;
            for (int k = k0; k < k1; k++) to[(size_t)k * (size_t)width + (size_t)c] = there ? from[k * s->k_stride] : 0;
        }
    }
}

const sli_panel_ops ISA(panel_f32) = {.name = "f32",
                                      .lanes = VL,
                                      .panels = 12,
                                      .panel_bytes = panel_bytes,
                                      .operand_bytes = operand_bytes,
                                      .pack = pack,
                                      .convert = NULL,
                                      .product = product};
