/* Products of a step on panels of bf16, for instruction sets whose registers hold floats: operands rounded to bf16,
 * their products and sums in float, as on GPUs. Half the bytes: what counts where weights come from beyond L2 and few
 * rows share them.
 *
 * panel [k / 2][vectors * VL] of pairs (k, k + 1), so that one load and one shift or mask each give two vectors of
 * floats; operands stay floats. */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/vector.h"

enum { WEIGHT_K = 2 };
typedef uint32_t weight;
typedef uint32_t weights __attribute__((vector_size(VL * 4)));
VF_INLINE vf weight_load(const weight *w, int t) {
    weights pair;
    memcpy(&pair, w, sizeof pair);
    return (vf)(t == 0 ? pair << 16 : pair & 0xffff0000u);
}
#include "backend/cpu/isa/panel_rows.h"

static size_t operand_bytes(int k) {
    return ((size_t)k * sizeof(float) + 63 + sizeof(float)) / 64 * 64; /* one more where k is odd */
}

static void pack(void *panel, const sli_panel_source *s) {
    enum { SQUARE = 16 };
    uint32_t *to = panel;
    const int width = s->vectors * VL;
    for (int k0 = 0; k0 < s->k; k0 += SQUARE) { /* in squares, so that lines are used whole */
        const int k1 = k0 + SQUARE < s->k ? k0 + SQUARE : s->k;
        for (int c = 0; c < width; c++) {
            const int v = c / VL, l = c % VL;
            const bool there = l < s->valid[v];
            const float *from = there ? s->from[v] + l * s->lane_stride : NULL;
            for (int k = k0; k < k1; k += 2) {
                const float low = there ? from[k * s->k_stride] : 0;
                const float high = there && k + 1 < k1 ? from[(k + 1) * s->k_stride] : 0;
                to[(size_t)(k / 2) * (size_t)width + (size_t)c] = bf16_pair(low, high);
            }
        }
    }
}

static void convert(void *operand, const float *restrict from, int k) {
    float *restrict to = operand;
    for (int i = 0; i < k; i++) to[i] = bf16_round(from[i]);
    if (k % 2) to[k] = 0;
}

const sli_panel_ops ISA(panel_bf16) = {.name = "bf16 (f32 arithmetic)",
                                       .lanes = VL,
                                       .panels = 12,
                                       .panel_bytes = panel_bytes,
                                       .operand_bytes = operand_bytes,
                                       .pack = pack,
                                       .convert = convert,
                                       .product = product};
