/* Which products of a step there are: by the type of the operands and the instruction set. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/gemm.h"
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

/* bf16: weights as floats where many rows share them, or fewer if they are as near. */
enum { NEAR_ROWS = 4, NEAR_BYTES = 1 << 20 };
static const sli_panel_ops *panels_bf16(const sli_cpu *cpu, const sli_problem *p) {
    const sli_panel_ops *const floats = cpu->ops->panel_bf16_floats;
    const bool dense = p->op == SLI_OP_DENSE;
    const size_t rows = dense ? sli_cpu_rows(p) : (size_t)p->batch,
                 k = (size_t)(dense ? p->inputs : sli_problem_output(p));
    const size_t bytes = (size_t)(dense ? 1 : sli_op_gates(p->op)) * (size_t)p->units * k * sizeof(float);
    if (!floats || rows < NEAR_ROWS) return cpu->ops->panel_bf16;
    return rows >= (size_t)floats->least_rows || bytes <= NEAR_BYTES ? floats : cpu->ops->panel_bf16;
}

const sli_panel_ops *sli_cpu_panels(const sli_cpu *cpu, const sli_problem *planned) {
    switch (planned->dtype) {
    case SL_F32:
        return cpu->ops->panel_f32;
    case SL_F32X3:
        return cpu->ops->panel_f32x3;
    case SL_BF16:
        return panels_bf16(cpu, planned);
    case SL_I8:
        return panels_i8(cpu);
    default:
        return NULL;
    }
}

const sli_panel_ops *sli_cpu_panels_of(const sli_call *call) {
    sli_problem planned = call->problem;
    if (call->planned.batch > 0) {
        planned.batch = call->planned.batch;
        planned.steps = call->planned.steps;
    }
    return sli_cpu_panels(sli_cpu_of(call), &planned);
}
