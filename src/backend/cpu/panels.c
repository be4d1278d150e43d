/* Which products of a step there are: by the type of the operands and the instruction set. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"

const sli_panel_ops *sli_cpu_panels(const sli_cpu *cpu, sl_dtype dtype) {
    switch (dtype) {
    case SL_F32:
        return cpu->ops->panel_f32;
    default:
        return NULL;
    }
}
