/* The kernels that measure and pack the recurrent weights, as they are. */
#include "backend/cuda/kernels/persist_measure.cu"
#include "backend/cuda/kernels/persist_pack.cu"
