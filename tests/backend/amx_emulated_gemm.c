/* Large products on emulated AMX. */
#include "backend/amx_emulated.h"
#include "backend/amx_tiles.h"

int amx_emulated_products_most_held(void) {
    return amx_most_held();
}

#define sli_product_bf16_amx emulated_bf16
#define sli_product_f32x3_amx emulated_f32x3
#include "backend/cpu/isa/gemm_amx.c"
