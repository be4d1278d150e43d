/* The table of the persistent kernels that are built in. Compiled into libsluice, which chooses among them where there is no
 * NVRTC, and into the plug-in, which has them. */
#include "backend/cuda/persist_builtin.h"
#include "backend/cuda/persist_geometry.h"

#define BUILTIN(GATES, BACKWARD, CLUSTER, UNITS, WARPS_M, WARPS_K, TILES_M, TILES_K, IN_REGISTERS, IN_SHARED) \
    {.gates = GATES,                                                                                          \
     .backward = BACKWARD,                                                                                    \
     .gather = BACKWARD ? SLI_PERSIST_LOCAL : SLI_PERSIST_CLUSTER,                                            \
     .units = UNITS,                                                                                          \
     .reduce = BACKWARD ? CLUSTER : 1,                                                                        \
     .spread = BACKWARD ? 1 : CLUSTER,                                                                        \
     .tiles_n = 1,                                                                                            \
     .halves = 1,                                                                                             \
     .share = 1,                                                                                              \
     .chunks = 1,                                                                                             \
     .warps_m = WARPS_M,                                                                                      \
     .warps_k = WARPS_K,                                                                                      \
     .tiles_m = TILES_M,                                                                                      \
     .tiles_k = TILES_K,                                                                                      \
     .in_registers = IN_REGISTERS,                                                                            \
     .in_shared = IN_SHARED,                                                                                  \
     .groups = 1,                                                                                             \
     .directions = 1},
static const sli_persist_geometry f32[] = {SLI_PERSIST_BUILTIN_F32(BUILTIN)};
static const sli_persist_geometry tf32[] = {SLI_PERSIST_BUILTIN_TF32(BUILTIN)};
static const sli_persist_geometry narrow[] = {SLI_PERSIST_BUILTIN_NARROW(BUILTIN)};
static const sli_persist_geometry f32x3[] = {SLI_PERSIST_BUILTIN_F32X3(BUILTIN)};

enum { EACH = sizeof f32 / sizeof *f32 };
_Static_assert(sizeof f32 == sizeof tf32 && sizeof f32 == sizeof narrow && sizeof f32 == sizeof f32x3,
               "every type has as many built-in kernels");

static const sli_persist_geometry *table_of(sl_dtype math) {
    return math == SL_F32                      ? f32
           : math == SL_TF32                   ? tf32
           : math == SL_BF16 || math == SL_F16 ? narrow
           : math == SL_F32X3                  ? f32x3
                                               : NULL;
}

bool sli_persist_builtin_get(sl_dtype math, int index, sli_persist_geometry *geometry) {
    const sli_persist_geometry *table = table_of(math);
    if (!table || index < 0 || index >= EACH) return false;
    *geometry = table[index];
    geometry->math = math;
    return true;
}

static bool same(const sli_persist_geometry *a, const sli_persist_geometry *b) { /* of what a kernel has as constants */
    return a->gates == b->gates && a->before == b->before && a->wave == b->wave && a->math == b->math &&
           a->tight == b->tight && a->scaled == b->scaled && a->backward == b->backward && a->gather == b->gather &&
           a->units == b->units && a->reduce == b->reduce && a->spread == b->spread && a->tiles_n == b->tiles_n &&
           a->halves == b->halves && a->few == b->few && a->couriers == b->couriers && a->apart == b->apart &&
           a->share == b->share && a->chunks == b->chunks && a->slots == b->slots && a->warps_m == b->warps_m &&
           a->warps_k == b->warps_k && a->tiles_m == b->tiles_m && a->tiles_k == b->tiles_k &&
           a->in_registers == b->in_registers && a->in_shared == b->in_shared && a->ring == b->ring;
}

int sli_persist_builtin_index(const sli_persist_geometry *geometry) {
    sli_persist_geometry g;
    for (int i = 0; sli_persist_builtin_get(geometry->math, i, &g); i++)
        if (same(geometry, &g)) return i;
    return -1;
}
