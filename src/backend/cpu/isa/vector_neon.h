/* Advanced SIMD of arm64, which every such processor has. Included by vector.h. */
#ifndef SLI_VECTOR_NEON_H
#define SLI_VECTOR_NEON_H

#include <arm_neon.h>

#define VF_REGISTERS 32
enum { VL = 4 };
typedef float32x4_t vf;
static inline vf vf_load(const float *p) {
    return vld1q_f32(p);
}
static inline void vf_store(float *p, vf v) {
    vst1q_f32(p, v);
}
static inline vf vf_set(float x) {
    return vdupq_n_f32(x);
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return vfmaq_f32(c, a, b);
}
static inline void vf_zip(vf a, vf b, vf *low, vf *high) {
    *low = vzip1q_f32(a, b);
    *high = vzip2q_f32(a, b);
}

#endif
