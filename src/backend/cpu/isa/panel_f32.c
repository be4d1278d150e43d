/* Products of a step on panels of floats. Operands are the floats themselves; of bf16, rounded. */
#include <string.h>
#include "backend/cpu/isa/bf16.h"
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

/* bf16 where registers hold floats alone (panel_bf16.c), of many rows: twice the bytes, which these share, but nothing to unpack. The sums are of the same
 * terms in the same order. On a Xeon without AMX pairs take 1.09 to 1.18 times as long from 16 rows on, by AVX2 from 8 on, and where weights are near from 4
 * (bf16_floats_xeon_cpu_2026-11-26.txt). */
static void pack_rounded(void *panel, const sli_panel_source *s) {
    float *const of = panel;
    const size_t count = (size_t)s->k * (size_t)(s->vectors * VL);
    pack(panel, s);
    for (size_t i = 0; i < count; i++) of[i] = bf16_round(of[i]);
}

static void round_operand(void *operand, const float *from, int k) {
    bf16_round_all(operand, from, (size_t)k);
}

const sli_panel_ops ISA(panel_bf16_floats) = {.name = "bf16 (as floats)",
                                              .lanes = VL,
                                              .panels = 12,
                                              .least_rows = VL == 16 ? 16 : 8,
                                              .panel_bytes = panel_bytes,
                                              .operand_bytes = operand_bytes,
                                              .pack = pack_rounded,
                                              .convert = round_operand,
                                              .product = product,
                                              .line = line};
