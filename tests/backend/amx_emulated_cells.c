/* Cells on tiles of 16 lanes, as AMX's are, in vectors of C: the portable header with longer ones. Compiled only where they are
 * run, since compilers take long to cut such vectors into shorter ones. */
#define SLI_ISA_SUFFIX emulated
#include "backend/amx_emulated.h"
#ifdef AMX_EMULATED_CELLS
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "backend/cpu/isa/bf16.h"
#include "core/rounding.h"
#undef __AVX2__ /* nor e^x by its instructions */
#undef __AVX512F__
#define SLI_VECTOR_H
#define VF_INLINE static inline /* not always: gcc took seven times as long over it */
#define INDEPENDENT
#define VF_REGISTERS 16
enum { VL = 16 };
typedef float vf __attribute__((vector_size(64)));
VF_INLINE vf vf_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
VF_INLINE void vf_store(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}
VF_INLINE vf vf_load_part(const float *p, int n) {
    vf v = {0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}
VF_INLINE void vf_store_part(float *p, vf v, int n) {
    memcpy(p, &v, (size_t)n * sizeof *p);
}
#define STREAMS VL
VF_INLINE void vf_stream(float *p, vf v) {
    vf_store(p, v);
}
VF_INLINE void vf_streamed(void) {}
#define LANES_16 VL
VF_INLINE void vf_store_bf16(uint16_t *p, vf v, int n) {
    for (int i = 0; i < n; i++) p[i] = bf16_of(v[i]);
}
/* What is no number stays none; infinity does not occur. */
VF_INLINE vf vf_load_f16(const uint16_t *p) {
    vf v;
    for (int i = 0; i < VL; i++) {
        const int exponent = p[i] >> 10 & 31, digits = p[i] & 1023;
        const double size = exponent == 31 ? (double)NAN
                            : exponent     ? ldexp(1024 + digits, exponent - 25)
                                           : ldexp(digits, -24);
        v[i] = (float)(p[i] >> 15 ? -size : size);
    }
    return v;
}
VF_INLINE void vf_store_f16(uint16_t *p, vf v, bool stream) {
    (void)stream;
    for (int i = 0; i < VL; i++) {
        int exponent = 0;
        if (isnan(v[i])) {
            p[i] = 0x7e00;
            continue;
        }
        const double size = fabs(sli_round_to(SL_F16, (double)v[i]));
        if (size > 0) frexp(size, &exponent);
        const bool normal = size >= ldexp(1, -14);
        const int digits = (int)ldexp(size, normal ? 11 - exponent : 24); /* with the leading one of a normal number */
        p[i] = (uint16_t)((v[i] < 0) << 15 | (normal ? (exponent + 14) << 10 | (digits & 1023) : digits));
    }
}
VF_INLINE vf vf_set(float x) {
    vf v = {0};
    return v + x;
}
VF_INLINE vf vf_fma(vf a, vf b, vf c) {
    return a * b + c;
}
VF_INLINE vf vf_clamp(vf x, vf low, vf high) {
    for (int l = 0; l < VL; l++) x[l] = x[l] < low[l] ? low[l] : x[l] > high[l] ? high[l] : x[l];
    return x;
}
#include "backend/cpu/isa/fused_cells.c"
#else
const sli_fused_ops sli_isa_fused_emulated = {0};
#endif
