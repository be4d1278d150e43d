/* Which products of a step there are: by the type of the operands and the instruction set. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

/* Whole sums of products of 8 bits: a feature beside the instruction sets, at either length of vectors. */
enum { KNOWN = 1, AVX512_VNNI = 2, AVX_VNNI = 4 };

static int vnni(void) {
    static atomic_int found;
    unsigned a, b, c, d;
    int bits = atomic_load_explicit(&found, memory_order_relaxed);
    if (bits) return bits;
    bits = KNOWN;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        if (c >> 11 & 1) bits |= AVX512_VNNI;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1)) bits |= AVX_VNNI;
    }
    atomic_store_explicit(&found, bits, memory_order_relaxed);
    return bits;
}

static const sli_panel_ops *panels_i8(const sli_cpu *cpu) {
    const bool avx512 = cpu->isa >= SLI_ISA_AVX512;
    if (avx512 && (vnni() & AVX512_VNNI)) return &sli_isa_panel_i8_avx512vnni;
    if (cpu->isa == SLI_ISA_AVX2 && (vnni() & AVX_VNNI)) return &sli_isa_panel_i8_avxvnni;
    return cpu->ops->panel_i8;
}
#else
static const sli_panel_ops *panels_i8(const sli_cpu *cpu) {
    return cpu->ops->panel_i8;
}
#endif

const sli_panel_ops *sli_cpu_panels(const sli_cpu *cpu, sl_dtype dtype) {
    switch (dtype) {
    case SL_F32:
        return cpu->ops->panel_f32;
    case SL_F32X3:
        return cpu->ops->panel_f32x3;
    case SL_BF16:
        return cpu->ops->panel_bf16;
    case SL_I8:
        return panels_i8(cpu);
    default:
        return NULL;
    }
}
