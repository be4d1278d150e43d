/* Kernels: what every row shares, and the slots of the optimizers. */
#include "core/kernel.h"

#include <stdarg.h>
#include <stdio.h>

bool sli_refuse(sli_why *why, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return false;
}

bool sli_takes_stack(const sli_problem *p, sli_why *why) {
    NEED(p->layers > 1, "runs layers of a stack side by side, there is one");
    NEED(p->layers <= SLI_MAX_PARTS, "%d layers: at most %d go into one call", p->layers, SLI_MAX_PARTS);
    NEED(!p->bidirectional, "runs layers side by side: with two directions a layer needs all of the one before");
    NEED(!(p->dropout > 0 && p->train), "dropout %g between layers is a step of its own, which draws the mask",
         p->dropout);
    NEED(!(p->recurrent_dropout > 0) && !(p->zoneout_h > 0) && !(p->zoneout_c > 0),
         "recurrent dropout and zoneout are drawn layer by layer");
    return true;
}

const char *sli_isa_name(sli_isa isa) {
    static const char *const names[] = {[SLI_ISA_BASE] = "base",
                                        [SLI_ISA_NEON] = "neon",
                                        [SLI_ISA_AVX2] = "avx2",
                                        [SLI_ISA_AVX512] = "avx512",
                                        [SLI_ISA_AVX512BF16] = "avx512bf16",
                                        [SLI_ISA_AMX] = "amx"};
    return (unsigned)isa < sizeof names / sizeof *names ? names[isa] : "?";
}

int sli_optimizer_slots(const sl_optimizer *optimizer) {
    switch (optimizer->kind) {
    case SL_SGD:
        return optimizer->momentum != 0 ? 1 : 0;
    case SL_ADAM:
    case SL_ADAMW:
        return 2;
    case SL_RMSPROP:
        return 1;
    }
    return 0;
}

const char *sli_optimizer_slot_name(const sl_optimizer *optimizer, int slot) {
    if (slot < 0 || slot >= sli_optimizer_slots(optimizer)) return NULL;
    if (optimizer->kind == SL_SGD) return "momentum";
    return slot == 0 && optimizer->kind != SL_RMSPROP ? "m" : "v";
}
