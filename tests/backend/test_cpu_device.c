/* The CPU as a device: names, invented instruction sets, memory, BLAS. */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/isa.h"
#include "test.h"

TEST(cpu_device_names) {
    sli_caps caps;
    REQUIRE_OK(sli_cpu_device.caps("cpu", 0, &caps));
    CHECK(caps.threads == sli_threads_default() && !caps.invented && caps.isa == sli_cpu_isa());
    REQUIRE_OK(sli_cpu_device.caps("cpu:base", 3, &caps));
    CHECK(caps.threads == 3 && !caps.invented && caps.isa == SLI_ISA_BASE && strcmp(caps.name, "cpu:base") == 0);
    REQUIRE_OK(sli_cpu_device.caps("cpu:amx", 1, &caps));
    CHECK(caps.invented == (sli_cpu_isa() < SLI_ISA_AMX));
    CHECK(strstr(caps.isa_why, "name") != NULL);
    CHECK_FAILS(sli_cpu_device.caps("cpu:sse9", 1, &caps), SL_ERR_UNKNOWN, "cpu:sse9");
    CHECK_FAILS(sli_cpu_device.caps("cpu:", 1, &caps), SL_ERR_UNKNOWN, "cpu:");
    CHECK_FAILS(sli_cpu_device.caps("cpux", 1, &caps), SL_ERR_UNKNOWN, "cpux");
    CHECK_FAILS(sli_cpu_device.caps("gpu", 1, &caps), SL_ERR_UNKNOWN, "gpu");
    char name[16], text[200];
    bool usable = false;
    CHECK(sli_cpu_device.describe(0, name, sizeof name, text, sizeof text, &usable) && usable);
    CHECK(strcmp(name, "cpu") == 0 && strstr(text, "thread") != NULL);
    CHECK(!sli_cpu_device.describe(1, name, sizeof name, text, sizeof text, &usable));
}

/* ------------------------------------------------------------------------------------------- instruction sets -- */
static void expect_lacking(sli_cpu_facts facts, sli_isa isa, const char *part) {
    char why[SLI_ISA_WHY] = "";
    CHECK(!sli_cpu_facts_allow(&facts, isa, why));
    if (!strstr(why, part)) test_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", why, part);
}

/* Flags of the processor, registers that the system saves, permission: each alone is not enough. */
TEST(cpu_isa_needs_the_system_too) {
    const uint64_t avx = 0x7, avx512 = 0xe7, amx = 0x600e7;
    const sli_cpu_facts all = {.avx2 = true, .avx512 = true, .avx512bf16 = true, .amx = true, .saved = amx};
    char why[SLI_ISA_WHY];
    for (sli_isa isa = SLI_ISA_AVX2; isa <= SLI_ISA_AMX; isa++) CHECK(sli_cpu_facts_allow(&all, isa, why));
    sli_cpu_facts f = all;
    f.amx_permission = EPERM;
    expect_lacking(f, SLI_ISA_AMX, "Linux refuses AMX");
    CHECK(sli_cpu_facts_allow(&f, SLI_ISA_AVX512, why));
    f = all;
    f.saved = amx & ~(uint64_t)(1 << 18);
    expect_lacking(f, SLI_ISA_AMX, "does not save AMX");
    f.saved = avx512;
    CHECK(sli_cpu_facts_allow(&f, SLI_ISA_AVX512, why));
    f.saved = avx512 & ~(uint64_t)(1 << 5);
    expect_lacking(f, SLI_ISA_AVX512, "does not save AVX-512");
    expect_lacking(f, SLI_ISA_AMX, "does not save AVX-512");
    CHECK(sli_cpu_facts_allow(&f, SLI_ISA_AVX2, why));
    f.saved = avx & ~(uint64_t)4;
    expect_lacking(f, SLI_ISA_AVX2, "does not save AVX registers");
    f = all;
    f.avx512bf16 = false;
    expect_lacking(f, SLI_ISA_AVX512BF16, "has no AVX512_BF16");
    expect_lacking(f, SLI_ISA_AMX, "cannot round to bf16");
    CHECK(sli_cpu_facts_allow(&f, SLI_ISA_AVX512, why));
    f = all;
    f.amx = false;
    expect_lacking(f, SLI_ISA_AMX, "has no AMX");
    CHECK(sli_cpu_facts_allow(&f, SLI_ISA_AVX512BF16, why));
    f.avx512 = false;
    expect_lacking(f, SLI_ISA_AMX, "has no AVX-512");
    expect_lacking(f, SLI_ISA_AVX512BF16, "has no AVX-512");
    f.avx2 = false;
    expect_lacking(f, SLI_ISA_AVX512, "has no AVX2");
    CHECK(sli_cpu_facts_allow(&f, SLI_ISA_BASE, why));
    expect_lacking(f, SLI_ISA_NEON, "arm64");
    f.neon = true;
    CHECK(sli_cpu_facts_allow(&f, SLI_ISA_NEON, why));
}

/* What is chosen on machines of several kinds, and what is said of it. */
TEST(cpu_isa_best_of_a_machine) {
#if defined(__x86_64__)
    const struct {
        sli_cpu_facts facts;
        sli_isa best;
        const char *why;
    } machines[] = {
        {{.avx2 = true, .avx512 = true, .avx512bf16 = true, .amx = true, .slow_bf16 = true}, SLI_ISA_AMX, "best"},
        {{.avx2 = true, .avx512 = true, .avx512bf16 = true, .amx = true, .slow_bf16 = true, .amx_permission = EPERM},
         SLI_ISA_AVX512,
         "Linux refuses AMX"},
        {{.avx2 = true, .avx512 = true, .avx512bf16 = true, .slow_bf16 = true}, SLI_ISA_AVX512, "no AMX"},
        {{.avx2 = true, .avx512 = true, .avx512bf16 = true}, SLI_ISA_AVX512BF16, "no AMX"},
        {{.avx2 = true, .avx512 = true}, SLI_ISA_AVX512, "no AMX"},
        {{.avx2 = true}, SLI_ISA_AVX2, "no AVX-512"},
        {{.avx2 = false}, SLI_ISA_BASE, "no AVX2"},
    };
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        char why[SLI_ISA_WHY];
        sli_cpu_facts facts = machines[i].facts;
        facts.saved = 0x600e7;
        const sli_isa isa = sli_cpu_best(&facts, why);
        if (isa != machines[i].best || !strstr(why, machines[i].why))
            test_fail(__FILE__, __LINE__, "machine %d: %s (%s), expected %s (%s)", (int)i, sli_isa_name(isa), why,
                      sli_isa_name(machines[i].best), machines[i].why);
    }
#else
    char why[SLI_ISA_WHY];
    CHECK(sli_cpu_best(&(sli_cpu_facts){.neon = true}, why) == SLI_ISA_NEON);
    CHECK(sli_cpu_best(&(sli_cpu_facts){0}, why) == SLI_ISA_BASE);
#endif
}

/* Whose vectors of 512 bits pass in two halves: AMD's of family 0x19 that have AVX-512. */
TEST(cpu_half_width_is_a_zen_4s) {
    const sli_cpu_facts genoa = {.amd = true, .signature = 0x00a10f11, .avx512 = true};
    CHECK(sli_cpu_facts_half_width(&genoa, SLI_ISA_AVX512) && sli_cpu_facts_half_width(&genoa, SLI_ISA_AVX512BF16));
    CHECK(!sli_cpu_facts_half_width(&genoa, SLI_ISA_AVX2));
    const sli_cpu_facts others[] = {{.amd = true, .signature = 0x00a00f11},                 /* Zen 3 */
                                    {.amd = true, .signature = 0x00b00f21, .avx512 = true}, /* Zen 5 */
                                    {.signature = 0x00a10f11, .avx512 = true},              /* not AMD's */
                                    {.signature = 0x000806f8, .avx512 = true}};             /* Sapphire Rapids */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(!sli_cpu_facts_half_width(&others[i], SLI_ISA_AVX512));
}

/* The compiler's own look at this machine. */
TEST(cpu_isa_of_this_machine) {
    char why[SLI_ISA_WHY];
#if defined(__x86_64__)
    __builtin_cpu_init();
    CHECK(sli_cpu_has(SLI_ISA_AVX2, why) == (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")));
    CHECK(sli_cpu_has(SLI_ISA_AVX512, why) ==
          (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")));
    CHECK(sli_cpu_has(SLI_ISA_AVX512BF16, why) ==
          (sli_cpu_has(SLI_ISA_AVX512, why) && __builtin_cpu_supports("avx512bf16")));
    CHECK(!sli_cpu_has(SLI_ISA_NEON, why));
#elif defined(__aarch64__)
    CHECK(sli_cpu_isa() == SLI_ISA_NEON && !sli_cpu_has(SLI_ISA_AVX2, why));
#endif
    CHECK(sli_cpu_has(SLI_ISA_BASE, why) && sli_cpu_has(sli_cpu_isa(), why));
    if (sli_cpu_isa() == SLI_ISA_AVX2) {
        sli_caps caps;
        REQUIRE_OK(sli_cpu_device.caps("cpu", 1, &caps));
        CHECK(!sli_cpu_has(SLI_ISA_AVX512, why) && strcmp(why, caps.isa_why) == 0);
    }
}

TEST(cpu_isa_forced_by_the_environment) {
    const char *before = getenv("SLUICE_CPU_ISA");
    char kept[64], name[16], text[300];
    sli_caps caps;
    bool usable = true;
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    setenv("SLUICE_CPU_ISA", "base", 1);
    sl_status status = sli_cpu_device.caps("cpu", 1, &caps);
    CHECK(status == SL_OK && caps.isa == SLI_ISA_BASE && strstr(caps.isa_why, "SLUICE_CPU_ISA") && !caps.invented);
    CHECK(sli_cpu_device.describe(0, name, sizeof name, text, sizeof text, &usable) && usable);
    CHECK(strstr(text, "base instructions (forced by SLUICE_CPU_ISA)") != NULL);
    status = sli_cpu_device.caps("cpu:avx512", 1, &caps);
    CHECK(status == SL_OK && caps.isa == SLI_ISA_AVX512);
    setenv("SLUICE_CPU_ISA", "sse9", 1);
    CHECK_FAILS(sli_cpu_device.caps("cpu", 1, &caps), SL_ERR_UNKNOWN, "SLUICE_CPU_ISA is \"sse9\"");
    CHECK_FAILS(sli_cpu_device.caps("cpu:base", 1, &caps), SL_ERR_UNKNOWN, "SLUICE_CPU_ISA is \"sse9\"");
    CHECK(sli_cpu_device.describe(0, name, sizeof name, text, sizeof text, &usable) && !usable && strstr(text, "sse9"));
    setenv("SLUICE_CPU_ISA", sli_cpu_isa() == SLI_ISA_NEON ? "avx2" : "neon", 1);
    CHECK_FAILS(sli_cpu_device.caps("cpu", 1, &caps), SL_ERR_DEVICE, "use another one");
    setenv("SLUICE_CPU_ISA", "", 1);
    status = sli_cpu_device.caps("cpu", 1, &caps);
    CHECK(status == SL_OK && caps.isa == sli_cpu_isa());
    if (before)
        setenv("SLUICE_CPU_ISA", kept, 1);
    else
        unsetenv("SLUICE_CPU_ISA");
}

static void check_table(const sli_call *call) {
    float *y = call->out[0];
    y[0] = call->cpu->isa == SLI_ISA_BASE && strcmp(call->cpu->ops->name, "base") == 0 ? 1 : -1;
}

/* What a device was asked for is what its calls compute with. */
TEST(cpu_isa_of_the_name_is_what_runs) {
    sli_caps caps;
    sli_device *device;
    sli_queue *queue;
    float y = 0;
    REQUIRE_OK(sli_cpu_device.caps("cpu:base", 1, &caps));
    REQUIRE_OK(sli_cpu_device.open(&caps, NULL, &device));
    REQUIRE_OK(sli_cpu_device.queue_new(device, &queue));
    sli_call call = {0};
    call.out[0] = &y;
    REQUIRE_OK(sli_cpu_device.submit(queue, check_table, &call));
    CHECK(y == 1);
    sli_cpu_device.queue_free(queue);
    sli_cpu_device.close(device);
}

TEST(cpu_device_invented_cannot_be_opened) {
    sli_caps caps;
    sli_device *device;
    REQUIRE_OK(sli_cpu_device.caps("cpu", 1, &caps));
    caps.invented = true;
    CHECK_FAILS(sli_cpu_device.open(&caps, NULL, &device), SL_ERR_DEVICE, "invented");
    CHECK(device == NULL);
}

static void add_one(const sli_call *call) {
    float *y = call->out[0];
    const float *x = call->in[0];
    for (int i = 0; i < call->problem.units; i++) y[i] = x[i] + 1;
    if (call->cpu == NULL || sli_threads_count(call->threads) != 2) y[0] = -1000;
}

TEST(cpu_device_queue_runs_in_order) {
    sli_caps caps;
    sli_device *device;
    sli_queue *queue;
    void *block;
    REQUIRE_OK(sli_cpu_device.caps("cpu", 2, &caps));
    REQUIRE_OK(sli_cpu_device.open(&caps, NULL, &device));
    REQUIRE_OK(sli_cpu_device.alloc(device, 64 * sizeof(float), &block));
    CHECK((uintptr_t)block % SLI_ALIGN == 0);
    float *at = block, x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[24];
    for (int i = 0; i < 64; i++) CHECK(at[i] == 0);
    REQUIRE_OK(sli_cpu_device.queue_new(device, &queue));
    REQUIRE_OK(sli_cpu_device.upload(queue, at, x, sizeof x));
    sli_call call = {.problem.units = 8};
    call.in[0] = at;
    call.out[0] = at + 8;
    REQUIRE_OK(sli_cpu_device.submit(queue, add_one, &call));
    REQUIRE_OK(sli_cpu_device.copy(queue, at + 16, at + 8, sizeof x));
    REQUIRE_OK(sli_cpu_device.zero(queue, at, sizeof x));
    REQUIRE_OK(sli_cpu_device.download(queue, y, at, sizeof y));
    REQUIRE_OK(sli_cpu_device.wait(queue));
    for (int i = 0; i < 8; i++) CHECK(y[i] == 0 && y[8 + i] == (float)i + 1 && y[16 + i] == (float)i + 1);
    sli_cpu_device.queue_free(queue);
    sli_cpu_device.free(device, block, 64 * sizeof(float));
    REQUIRE_OK(sli_cpu_device.alloc(device, 0, &block));
    CHECK(block == NULL);
    sli_cpu_device.close(device);
}

/* The environment is as it was after the library was loaded, and the library has one thread. */
TEST(cpu_blas_leaves_the_environment_alone) {
    const char *why, *before = getenv("OPENBLAS_NUM_THREADS");
    char set[32] = "";
    if (before) snprintf(set, sizeof set, "%s", before);
    const sli_blas *blas = sli_blas_get(&why);
    const char *after = getenv("OPENBLAS_NUM_THREADS");
    CHECK((after == NULL) == (before == NULL) && strcmp(after ? after : "", set) == 0);
    if (!blas) {
        CHECK(why != NULL && why[0]);
        test_skip("no BLAS: %s", why);
    }
    CHECK(strstr(blas->name, "OpenBLAS") != NULL);
    const float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    float c[4] = {1, 1, 1, 1};
    blas->sgemm(SLI_CBLAS_ROW_MAJOR, SLI_CBLAS_NO_TRANS, SLI_CBLAS_TRANS, 2, 2, 2, 1, a, 2, b, 2, 1, c, 2);
    CHECK(c[0] == 18 && c[1] == 24 && c[2] == 40 && c[3] == 54);
}
