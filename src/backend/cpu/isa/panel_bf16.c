/* Products of a step on panels of bf16, where there are no tiles for them: operands rounded to bf16, their products and sums in
 * float, as on GPUs. Half the bytes: what counts where weights come from beyond L2 and few rows share them.
 *
 * panel [k / 2][vectors * VL] of pairs (k, k + 1). Where registers hold floats alone, one load and one shift or mask each give two vectors
 * of floats, and operands stay floats; of many rows weights are better left as floats (panel_f32.c), to the same bits. With AVX512_BF16 (Zen 4 and later, Cooper Lake) pairs meet pairs, in an instruction that
 * adds both products: on a Zen 5 two a cycle, so twice the products of floats (525 GFLOP/s a core, 266; measured). */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/vector.h"

typedef uint32_t weight;
#ifdef __AVX512BF16__
#include "backend/cpu/isa/amx.h"
#define PANEL_PAIRS
enum { WEIGHT_K = 1 }; /* term, of two k */
VF_INLINE vf weight_load(const weight *w, int t) {
    (void)t;
    return (vf)_mm512_loadu_si512(w);
}
#else
enum { WEIGHT_K = 2 };
typedef uint32_t weights __attribute__((vector_size(VL * 4)));
VF_INLINE vf weight_load(const weight *w, int t) {
    weights pair;
    memcpy(&pair, w, sizeof pair);
    return (vf)(t == 0 ? pair << 16 : pair & 0xffff0000u);
}
#endif
#include "backend/cpu/isa/panel_rows.h"

#ifdef __AVX512BF16__
static size_t operand_bytes(int k) {
    return amx_operand_bytes(k, AMX_HALF);
}

static void convert(void *operand, const float *from, int k) {
    amx_convert(operand, from, k, AMX_HALF);
}

/* A tile of 16 columns and 32 k at a time. */
static void pack(void *panel, const sli_panel_source *s) {
    uint32_t tile[AMX_K / 2][AMX_LANES];
    const int width = s->vectors * VL, depth = terms_of(s->k);
    for (int v = 0; v < s->vectors; v++)
        for (int k = 0; k < s->k; k += AMX_K) {
            uint32_t *to = (uint32_t *)panel + (size_t)(k / 2) * (size_t)width + (size_t)(v * VL);
            amx_pack_panel((char *)tile, s, v, k, AMX_HALF);
            for (int i = 0; i < AMX_K / 2 && k / 2 + i < depth; i++, to += width) memcpy(to, tile[i], sizeof tile[i]);
        }
}
#else
static size_t operand_bytes(int k) {
    return ((size_t)k * sizeof(float) + 63 + sizeof(float)) / 64 * 64; /* one more where k is odd */
}

static void pack(void *panel, const sli_panel_source *s) {
    static const float zeros[VL];
    const int width = s->vectors * VL;
    for (int k0 = 0; k0 < s->k; k0 += VL)
        for (int v = 0; v < s->vectors; v++) {
            float square[VL][VL];
            panel_square(s, v, k0, square[0], VL);
            for (int k = k0; k < k0 + VL && k < s->k; k += 2) {
                const float *const low = square[k - k0], *const high = k + 1 < s->k ? square[k - k0 + 1] : zeros;
                uint32_t *const to = (uint32_t *)panel + (size_t)(k / 2) * (size_t)width + (size_t)(v * VL);
                uint32_t pairs[VL];
                for (int l = 0; l < VL; l++) pairs[l] = bf16_pair(low[l], high[l]);
                memcpy(to, pairs, sizeof pairs);
            }
        }
}

static void convert(void *operand, const float *from, int k) {
    bf16_round_all(operand, from, (size_t)k);
    if (k % 2) ((float *)operand)[k] = 0;
}
#endif

static void line(const void *panel, int vectors, int k, float *to) {
    const int width = vectors * VL, shift = k % 2 ? 0 : 16; /* the pair's second number is its upper half */
    const uint32_t *from = (const uint32_t *)panel + (size_t)(k / 2) * (size_t)width;
    for (int c = 0; c < width; c++) {
        const uint32_t bits = (from[c] << shift) & 0xffff0000u;
        memcpy(to + c, &bits, sizeof bits);
    }
}

const sli_panel_ops ISA(panel_bf16) = {
#ifdef __AVX512BF16__
    .name = "bf16 (AVX512_BF16)",
    .halves = true,
    .speed = 1.9,
#else
    .name = "bf16 (f32 arithmetic)",
#endif
    .lanes = VL,
    .panels = 12,
    .panel_bytes = panel_bytes,
    .operand_bytes = operand_bytes,
    .pack = pack,
    .convert = convert,
    .product = product,
    .line = line};
