/* The table of one instruction set, and beside that of AVX-512 those of AMX and AVX512_BF16. */
#include "backend/cpu/isa/isa.h"
#include "backend/cpu/isa/vector.h"

#define SLI_ISA_TABLE2(suffix) sli_isa_ops_##suffix
#define SLI_ISA_TABLE(suffix) SLI_ISA_TABLE2(suffix)

/* All but products in bf16 and f32x3. */
#define FUNCTIONS                                                                                                    \
    .product_few = ISA(product_few), .product_f32 = &ISA(product_f32), .panel_f32 = &ISA(panel_f32),                 \
    .panel_i8 = &ISA(panel_i8), .fused = &ISA(fused), .act = ISA(act), .act_slope = ISA(act_slope), .add = ISA(add), \
    .add_half = ISA(add_half), .one_hot = ISA(one_hot), .softmax_sum = ISA(softmax_sum),                             \
    .softmax_gradient = ISA(softmax_gradient), .dropout = ISA(dropout), .squares = ISA(squares), .update = ISA(update)

const sli_isa_ops SLI_ISA_TABLE(SLI_ISA_SUFFIX) = {.name = SLI_ISA_STRING(SLI_ISA_SUFFIX),
                                                   .panel_bf16 = &ISA(panel_bf16),
                                                   .panel_bf16_floats = &ISA(panel_bf16_floats),
                                                   .product_bf16 = &ISA(product_bf16),
                                                   .panel_f32x3 = &ISA(panel_f32),
                                                   .product_f32x3 = &ISA(product_f32),
                                                   FUNCTIONS};

#if defined(__AVX512F__)
const sli_isa_ops sli_isa_ops_amx = {.name = "amx",
                                     .panel_bf16 = &sli_panel_bf16_amx,
                                     .product_bf16 = &sli_product_bf16_amx,
                                     .panel_f32x3 = &sli_panel_f32x3_amx,
                                     .product_f32x3 = &sli_product_f32x3_amx,
                                     FUNCTIONS};
const sli_isa_ops sli_isa_ops_avx512bf16 = {.name = "avx512bf16",
                                            .panel_bf16 = &sli_isa_panel_bf16_avx512bf16,
                                            .product_bf16 = &sli_product_bf16_dot,
                                            .panel_f32x3 = &ISA(panel_f32),
                                            .product_f32x3 = &ISA(product_f32),
                                            FUNCTIONS};
#endif
