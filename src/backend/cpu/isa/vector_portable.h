/* Any processor: vectors of 16 bytes in C, which compilers split where there are none; a * b + c rounds twice. Included by
 * vector.h. */
#ifndef SLI_VECTOR_PORTABLE_H
#define SLI_VECTOR_PORTABLE_H

#include <string.h>

#define VF_REGISTERS 16
enum { VL = 4 };
typedef float vf __attribute__((vector_size(16)));
static inline vf vf_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_store(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}
static inline vf vf_set(float x) {
    return (vf){x, x, x, x};
}
static inline vf vf_fma(vf a, vf b, vf c) {
    return a * b + c;
}
static inline void vf_zip(vf a, vf b, vf *low, vf *high) {
    *low = (vf){a[0], b[0], a[1], b[1]};
    *high = (vf){a[2], b[2], a[3], b[3]};
}

#endif
