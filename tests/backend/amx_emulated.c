/* Panels on emulated AMX. */
#include "backend/amx_emulated.h"
#include "backend/amx_tiles.h"

int amx_emulated_configurations(void) {
    return amx.configurations;
}

int amx_emulated_rows(int tile) {
    return amx.config.rows[tile];
}

int amx_emulated_most_held(void) {
    return amx_most_held();
}

void amx_emulated_ops(sli_isa_ops *ops) {
    *ops = sli_isa_ops_base;
    ops->name = "emulated amx";
    ops->panel_bf16 = &emulated_panel_bf16;
    ops->panel_bf16_floats = NULL;
    ops->product_bf16 = &emulated_bf16;
    ops->panel_f32x3 = &emulated_panel_f32x3;
    ops->product_f32x3 = &emulated_f32x3;
    ops->fused = &sli_isa_fused_emulated;
}

#define sli_panel_bf16_amx emulated_panel_bf16
#define sli_panel_f32x3_amx emulated_panel_f32x3
#include "backend/cpu/isa/panel_amx.c"
