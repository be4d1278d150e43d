/* Which instruction sets this machine can run, which of them a device uses, and why. A processor's flags are not enough: the
 * system must save the registers when it switches threads (XCR0), and Linux gives AMX's tiles only to processes that ask. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ------------------------------------------------------------------------------------------------------- facts -- */
/* XCR0: what the system saves. */
enum { SAVES_AVX = 3 << 1, SAVES_AVX512 = SAVES_AVX | 7 << 5, SAVES_AMX = 3 << 17 };

static bool refused(char why[SLI_ISA_WHY], const char *text) {
    snprintf(why, SLI_ISA_WHY, "%s", text);
    return false;
}

bool sli_cpu_facts_allow(const sli_cpu_facts *f, sli_isa isa, char why[SLI_ISA_WHY]) {
    switch (isa) {
    case SLI_ISA_BASE:
        return true;
    case SLI_ISA_NEON:
        return f->neon || refused(why, "this CPU is no arm64");
    case SLI_ISA_AVX2:
        if (!f->avx2) return refused(why, "this CPU has no AVX2 with FMA");
        return (f->saved & SAVES_AVX) == SAVES_AVX || refused(why, "the system does not save AVX registers (XCR0)");
    case SLI_ISA_AVX512:
        if (!sli_cpu_facts_allow(f, SLI_ISA_AVX2, why)) return false;
        if (!f->avx512) return refused(why, "this CPU has no AVX-512");
        return (f->saved & SAVES_AVX512) == SAVES_AVX512 ||
               refused(why, "the system does not save AVX-512 registers (XCR0)");
    case SLI_ISA_AVX512BF16:
        if (!sli_cpu_facts_allow(f, SLI_ISA_AVX512, why)) return false;
        return f->avx512bf16 || refused(why, "this CPU has no AVX512_BF16");
    case SLI_ISA_AMX:
        if (!sli_cpu_facts_allow(f, SLI_ISA_AVX512, why)) return false;
        if (!f->amx) return refused(why, "this CPU has no AMX with bf16");
        if (!f->avx512bf16) return refused(why, "this CPU has AMX, but cannot round to bf16 (AVX512_BF16)");
        if ((f->saved & SAVES_AMX) != SAVES_AMX) return refused(why, "the system does not save AMX tiles (XCR0)");
        if (!f->amx_permission) return true;
        snprintf(why, SLI_ISA_WHY, "Linux refuses AMX to this process (arch_prctl: %s)", strerror(f->amx_permission));
        return false;
    }
    return refused(why, "it is unknown");
}

#if defined(__x86_64__)
static void read_facts(sli_cpu_facts *f) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    const bool xgetbv = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1;
    if (xgetbv) {
        unsigned low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        f->saved = low;
    }
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    f->avx2 = avx && fma && (b >> 5 & 1);
    f->avx512 = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1); /* F, DQ, BW, VL */
    f->amx = (d >> 22 & 1) && (d >> 24 & 1);                                      /* BF16, TILE */
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) a = 0;
    f->avx512bf16 = a >> 5 & 1;
    f->slow_bf16 = __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx;
    f->amd = b == signature_AMD_ebx;
    f->signature = __get_cpuid(1, &a, &b, &c, &d) ? a : 0;
}

/* Once asked for, tiles are every thread's of this process, for ever. Signal stacks must have room for them: what the program
 * set up before may be too small, and then Linux refuses. */
static int ask_for_amx(void) {
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 ? 0 : errno;
#else
    return ENOSYS;
#endif
}
#else
static void read_facts(sli_cpu_facts *f) {
#if defined(__aarch64__)
    f->neon = true;
#else
    (void)f;
#endif
}

static int ask_for_amx(void) {
    return ENOSYS;
}
#endif

static sli_cpu_facts machine; /* amx_permission: in amx_refusal, once it was asked for */
static int amx_refusal;
static pthread_once_t facts_read = PTHREAD_ONCE_INIT, amx_asked = PTHREAD_ONCE_INIT;

static void read_machine(void) {
    read_facts(&machine);
}

static void ask_machine(void) {
    amx_refusal = ask_for_amx();
}

bool sli_cpu_has(sli_isa isa, char why[SLI_ISA_WHY]) {
    pthread_once(&facts_read, read_machine);
    if (isa != SLI_ISA_AMX || !sli_cpu_facts_allow(&machine, isa, why)) return sli_cpu_facts_allow(&machine, isa, why);
    pthread_once(&amx_asked, ask_machine);
    sli_cpu_facts asked = machine;
    asked.amx_permission = amx_refusal;
    return sli_cpu_facts_allow(&asked, isa, why);
}

/* Families: 0x19 Zen 3, which has no AVX-512, and Zen 4, 0x1a Zen 5 (of whose small cores this was not measured). */
bool sli_cpu_facts_half_width(const sli_cpu_facts *facts, sli_isa isa) {
    const unsigned base = facts->signature >> 8 & 15;
    const unsigned family = base == 15 ? base + (facts->signature >> 20 & 255) : base;
    return isa >= SLI_ISA_AVX512 && facts->avx512 && facts->amd && family == 0x19;
}

bool sli_cpu_half_width(sli_isa isa) {
    pthread_once(&facts_read, read_machine);
    return sli_cpu_facts_half_width(&machine, isa);
}

/* ------------------------------------------------------------------------------------------------------ choice -- */
static const sli_isa best_first[] = {SLI_ISA_AMX,  SLI_ISA_AVX512BF16, SLI_ISA_AVX512,
                                     SLI_ISA_AVX2, SLI_ISA_NEON,       SLI_ISA_BASE};
enum { ISAS = sizeof best_first / sizeof *best_first };

/* A Sapphire Rapids begins a product of pairs every other cycle, where it begins two of floats a cycle (86 and 157 GFLOP/s, measured), so on
 * Intel's AVX512_BF16 is taken by name alone; a Zen 5 has 525 and 266. What it lacks, where it is not taken, is not told: AMX's reason says more. */
sli_isa sli_cpu_best(const sli_cpu_facts *facts, char why[SLI_ISA_WHY]) {
    char untold[SLI_ISA_WHY];
    snprintf(why, SLI_ISA_WHY, "the best there is");
    for (int i = 0; i < ISAS; i++) {
        const sli_isa isa = best_first[i];
        const bool bf16 = isa == SLI_ISA_AVX512BF16;
#if !defined(__x86_64__)
        if (isa != SLI_ISA_NEON && isa != SLI_ISA_BASE) continue;
#endif
        if (bf16 && facts->slow_bf16) continue;
        if (sli_cpu_facts_allow(facts, isa, bf16 || isa == SLI_ISA_NEON ? untold : why)) return isa;
    }
    return SLI_ISA_BASE;
}

static sli_isa best(char why[SLI_ISA_WHY]) {
    char untold[SLI_ISA_WHY];
    sli_cpu_has(SLI_ISA_AMX, untold); /* asks Linux for it */
    sli_cpu_facts facts = machine;
    facts.amx_permission = amx_refusal;
    return sli_cpu_best(&facts, why);
}

sli_isa sli_cpu_isa(void) {
    char why[SLI_ISA_WHY];
    return best(why);
}

static bool find_isa(const char *name, sli_isa *isa) {
    for (int i = 0; i < ISAS; i++)
        if (strcmp(name, sli_isa_name(best_first[i])) == 0) {
            *isa = best_first[i];
            return true;
        }
    return false;
}

sl_status sli_cpu_choose(const char *named, sli_isa *isa, char why[SLI_ISA_WHY]) {
    const char *forced = getenv("SLUICE_CPU_ISA");
    char lacks[SLI_ISA_WHY] = "";
    *isa = SLI_ISA_BASE;
    if (forced && *forced) {
        SLI_FAIL_IF(
            !find_isa(forced, isa), SL_ERR_UNKNOWN,
            "SLUICE_CPU_ISA is \"%s\", which is no instruction set: use base, avx2, avx512, avx512bf16, amx or neon",
            forced);
        SLI_FAIL_IF(!sli_cpu_has(*isa, lacks), SL_ERR_DEVICE,
                    "SLUICE_CPU_ISA is \"%s\", but %s: use another one, or unset it", forced, lacks);
        snprintf(why, SLI_ISA_WHY, "forced by SLUICE_CPU_ISA");
    }
    if (named) {
        SLI_FAIL_IF(!find_isa(named, isa), SL_ERR_UNKNOWN,
                    "device \"cpu:%s\" is unknown: use cpu, cpu:base, cpu:avx2, cpu:avx512, cpu:avx512bf16, cpu:amx or "
                    "cpu:neon",
                    named);
        snprintf(why, SLI_ISA_WHY, "the device's name asks for it");
    } else if (!forced || !*forced) {
        *isa = best(why);
    }
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------------ tables -- */
/* Of an invented instruction set: the table with vectors of the same length, if this build has it; it is never run. */
static const sli_isa_ops *ops_of(sli_isa isa) {
#if defined(__x86_64__)
    if (isa == SLI_ISA_AMX) return &sli_isa_ops_amx;
    if (isa == SLI_ISA_AVX512BF16) return &sli_isa_ops_avx512bf16;
    if (isa == SLI_ISA_AVX512) return &sli_isa_ops_avx512;
    if (isa == SLI_ISA_AVX2) return &sli_isa_ops_avx2;
#elif defined(__aarch64__)
    if (isa == SLI_ISA_NEON) return &sli_isa_ops_neon;
#endif
    (void)isa;
    return &sli_isa_ops_base;
}

void sli_cpu_engine(sli_isa isa, bool use_blas, sli_cpu *cpu) {
    cpu->isa = isa;
    cpu->ops = ops_of(isa);
    cpu->l2_bytes = cpu->l3_bytes = 0;
    cpu->half_width = sli_cpu_half_width(isa);
    cpu->split = NULL;
    cpu->pieces = 0;
    cpu->blas = use_blas ? sli_blas_get(NULL) : NULL;
}
