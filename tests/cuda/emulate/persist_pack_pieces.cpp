/* The same with the blocks of large layers, and so few columns that each warp's tiles are several blocks'. */
#include "backend/cuda/kernels/persist_host.cuh"
#define PACK_SMALL 0
#define PACK_COLUMNS 64
#define sli_persist_pack persist_pack_in_pieces
void sli_persist_pack(const step_way *way, const sli_persist_pair *pair, const sli_persist_packed *at, const void *recurrent,
                      int64_t row);
#include "backend/cuda/kernels/persist_pack.cu"
