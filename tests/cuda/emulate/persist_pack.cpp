/* The kernel that packs the recurrent weights, as it is. */
#include "backend/cuda/kernels/persist_pack.cu"
