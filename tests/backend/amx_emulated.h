/* What is written for AMX, with its tile instructions in plain C (amx_tiles.h): its logic runs on any machine. */
#ifndef AMX_EMULATED_H
#define AMX_EMULATED_H

#include "backend/cpu/isa/isa.h"

/* Memory is laid out for AMX on x86-64 alone. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define AMX_EMULATED_CELLS
#endif

extern const sli_panel_ops emulated_panel_bf16, emulated_panel_f32x3;
extern const sli_product_ops emulated_bf16, emulated_f32x3;
extern const sli_fused_ops sli_isa_fused_emulated; /* cells on tiles of AMX's 16 lanes */
/* The portable table with these in it. */
void amx_emulated_ops(sli_isa_ops *ops);

/* Panels, of the calling thread: how often tiles were configured, and the rows of a tile, 0 where they were given
 * back. */
int amx_emulated_configurations(void);
int amx_emulated_rows(int tile);
/* Most tiles that held something at a time since this was asked last: of panels, of large products. */
int amx_emulated_most_held(void);
int amx_emulated_products_most_held(void);

#endif
