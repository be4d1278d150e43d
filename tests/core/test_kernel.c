/* What kernel rows share: refusals, names of instruction sets, optimizer slots. */
#include "core/kernel.h"
#include "test.h"

static bool wide_enough(int width, sli_why *why) {
    NEED(width >= 16, "width is %d, at least 16 is needed", width);
    return true;
}

TEST(kernel_refusal_keeps_its_reason_with_numbers) {
    sli_why why = {"kept"};
    CHECK(wide_enough(16, &why) && strcmp(why.text, "kept") == 0);
    CHECK(!wide_enough(3, &why) && strcmp(why.text, "width is 3, at least 16 is needed") == 0);
}

TEST(kernel_refusal_is_cut_to_its_place) {
    sli_why why;
    CHECK(!sli_refuse(&why, "%0400d", 1));
    CHECK(strlen(why.text) == sizeof why.text - 1);
}

TEST(kernel_names_of_instruction_sets) {
    CHECK(strcmp(sli_isa_name(SLI_ISA_BASE), "base") == 0 && strcmp(sli_isa_name(SLI_ISA_AVX2), "avx2") == 0);
    CHECK(strcmp(sli_isa_name(SLI_ISA_NEON), "neon") == 0);
    CHECK(strcmp(sli_isa_name(SLI_ISA_AVX512), "avx512") == 0 && strcmp(sli_isa_name(SLI_ISA_AMX), "amx") == 0 &&
          strcmp(sli_isa_name(SLI_ISA_AVX512BF16), "avx512bf16") == 0);
}

TEST(kernel_optimizer_slots_and_their_names) {
    sl_optimizer sgd = {.kind = SL_SGD}, heavy = {.kind = SL_SGD, .momentum = 0.9}, adam = {.kind = SL_ADAM};
    sl_optimizer adamw = {.kind = SL_ADAMW}, rms = {.kind = SL_RMSPROP};
    CHECK(sli_optimizer_slots(&sgd) == 0 && !sli_optimizer_slot_name(&sgd, 0));
    CHECK(sli_optimizer_slots(&heavy) == 1 && strcmp(sli_optimizer_slot_name(&heavy, 0), "momentum") == 0);
    CHECK(sli_optimizer_slots(&adam) == 2 && sli_optimizer_slots(&adamw) == 2);
    CHECK(strcmp(sli_optimizer_slot_name(&adam, 0), "m") == 0 && strcmp(sli_optimizer_slot_name(&adamw, 1), "v") == 0);
    CHECK(sli_optimizer_slots(&rms) == 1 && strcmp(sli_optimizer_slot_name(&rms, 0), "v") == 0);
    CHECK(!sli_optimizer_slot_name(&adam, 2) && !sli_optimizer_slot_name(&adam, -1));
}
