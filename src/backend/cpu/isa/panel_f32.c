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

/* Backward: the lanes of a vector lie side by side (lane_stride 1). */
static void pack_across(float *to, const sli_panel_source *s) {
    for (int k = 0; k < s->k; k++)
        for (int v = 0; v < s->vectors; v++, to += VL) {
            const float *from = s->valid[v] > 0 ? s->from[v] + k * s->k_stride : NULL;
            for (int l = 0; l < VL && s->valid[v] < VL; l++) to[l] = l < s->valid[v] ? from[l] : 0;
            if (s->valid[v] == VL) vf_store(to, vf_load(from));
        }
}

/* Forward: a lane is a row of R. In pieces of k whose lines of all lanes stay in L1. */
static void pack_lanes(float *to, const sli_panel_source *s) {
    enum { PIECE = 16 };
    const int width = s->vectors * VL;
    const float *column[4 * VL];
    for (int c = 0; c < width; c++) column[c] = sli_panel_column(s, c);
    for (int k0 = 0; k0 < s->k; k0 += PIECE) {
        const int count = s->k - k0 < PIECE ? s->k - k0 : PIECE;
        float *piece = to + (size_t)k0 * (size_t)width;
        for (int c = 0; c < width; c++) {
            if (column[c]) {
                const float *from = column[c] + k0 * s->k_stride;
                for (int k = 0; k < count; k++) piece[k * width + c] = from[k * s->k_stride];
            } else {
                for (int k = 0; k < count; k++) piece[k * width + c] = 0;
            }
        }
    }
}

static void pack(void *panel, const sli_panel_source *s) {
    if (s->lane_stride == 1 && s->gap == VL)
        pack_across(panel, s);
    else
        pack_lanes(panel, s);
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
