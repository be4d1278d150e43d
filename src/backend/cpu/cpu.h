/* The CPU backend: its device, its kernel rows, and the engine (instruction set + BLAS) that the rows compute with. */
#ifndef SLI_CPU_H
#define SLI_CPU_H

#include "core/device.h"

extern const sli_device_ops sli_cpu_device;
extern const sli_kernel *const sli_cpu_kernels[]; /* in order of preference, NULL-terminated */

/* ------------------------------------------------------------------------------------------------------- BLAS -- */
enum { SLI_CBLAS_ROW_MAJOR = 101, SLI_CBLAS_NO_TRANS = 111, SLI_CBLAS_TRANS = 112 };
typedef struct sli_blas {
    /* cblas_sgemm, single-threaded. */
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);
    char name[96]; /* "OpenBLAS 0.3.21 (Zen kernels)" */
} sli_blas;
/* Loaded once per process; NULL if this build or this machine has none, with the reason in *why (may be NULL). */
const sli_blas *sli_blas_get(const char **why);
/* The same for products on this instruction set; NULL where our own are faster, with that as the reason. */
const sli_blas *sli_blas_for(sli_isa isa, const char **why);
/* SL_ERR_OUT_OF_MEMORY if the address space that the library maps for `threads` callers is not to be had. */
sl_status sli_blas_reserve(int threads);

/* ----------------------------------------------------------------------------------------------------- engine -- */
/* The vectorised loops compiled once per instruction set: see isa/isa.h. */
struct sli_isa_ops;

/* What a call computes with: sli_call.cpu, set by the queue. */
typedef struct sli_cpu {
    sli_isa isa;
    const struct sli_isa_ops *ops;
    const sli_blas *blas;                /* NULL: own GEMM */
    size_t l2_bytes, l3_bytes;           /* of a core, of those that share it; 0: not known */
    bool half_width;                     /* sli_cpu_half_width */
    const struct sli_fused_split *split; /* how threads share a step of cpu:fused; NULL: as predicted */
    int pieces;                          /* of a chunk in cpu:stack, at most; 0: as predicted */
} sli_cpu;

/* The products of a layer's steps (isa/panel.h), by its dtype and, in bf16, by the rows that share its weights, as planned: a call of fewer has what was packed
 * for those. NULL where the instruction set has none. */
const struct sli_panel_ops *sli_cpu_panels(const sli_cpu *cpu, const sli_problem *planned);
const struct sli_panel_ops *sli_cpu_panels_of(const sli_call *call);

/* What decides which instruction sets can be used; read from the machine, or invented by tests. */
typedef struct sli_cpu_facts {
    bool neon, avx2, avx512, avx512bf16, amx; /* flags of the processor */
    bool slow_bf16;                           /* products of AVX512_BF16 take longer than those of floats: Intel's */
    bool amd;
    unsigned signature; /* of processors with CPUID: leaf 1's first word, family and model */
    uint64_t saved;     /* XCR0: registers that the system saves */
    int amx_permission; /* 0, or the errno with which Linux refused tiles */
} sli_cpu_facts;
/* false: *why says what is missing. */
bool sli_cpu_facts_allow(const sli_cpu_facts *facts, sli_isa isa, char why[SLI_ISA_WHY]);
/* This machine. For SLI_ISA_AMX the permission is asked for, once in a process, where nothing else is missing. */
bool sli_cpu_has(sli_isa isa, char why[SLI_ISA_WHY]);
/* Whether vectors of that instruction set pass in two halves: a Zen 4's of 512 bits; of this machine. */
bool sli_cpu_facts_half_width(const sli_cpu_facts *facts, sli_isa isa);
bool sli_cpu_half_width(sli_isa isa);
/* The best instruction set of such a machine; *why: what the next better one lacks. */
sli_isa sli_cpu_best(const sli_cpu_facts *facts, char why[SLI_ISA_WHY]);
/* The best instruction set of this machine. */
sli_isa sli_cpu_isa(void);
/* The one a device uses, and why: the one named ("avx2" of "cpu:avx2", which this machine need not have), else
 * the one in SLUICE_CPU_ISA, else the best. An error where SLUICE_CPU_ISA cannot be obeyed, whatever is named. */
sl_status sli_cpu_choose(const char *named, sli_isa *isa, char why[SLI_ISA_WHY]);
/* Fills *cpu for an instruction set that the machine has. */
void sli_cpu_engine(sli_isa isa, bool use_blas, sli_cpu *cpu);
/* caps of "cpu", "cpu:avx2"...; also the far device's. */
sl_status sli_cpu_caps(const char *device_name, int threads, sli_caps *caps);
size_t sli_cpu_blas_buffers(const sli_caps *caps);

#endif
