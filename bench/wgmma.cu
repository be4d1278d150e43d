/* Cycles of a wgmma on this GPU (sm_90), as the persistent kernels use it (kernels/persist_product.cuh): two groups of four warps
 * a multiprocessor on all of them, 64 rows of bf16 weights in registers or shared memory, 16, 32 or 64 rows of the batch.
 *     build/bench/wgmma
 * What it gave: results/turns_h200_*.txt. No call may stand in a kernel that multiplies so, printf neither: nvcc would let each
 * wgmma wait for the one before. */
#include <stdint.h>
#include <stdio.h>

#include "backend/cuda/kernels/ptx.cuh"

enum { BATCH = 32, ROUNDS = 200, THREADS = 256, SHARED = 200 * 1024, TILES = 16, WORDS = 65536 };
static __device__ long long cycles;

/* N: tiles of 8 rows of the batch. Each group of warps reads rows of its own, [N][BATCH][2][8][16] bytes. */
template <int N, bool REGISTERS> __global__ void __launch_bounds__(THREADS, 1) multiply(float *out, const uint32_t *in) {
    extern __shared__ __align__(128) unsigned char shared[];
    for (int i = (int)threadIdx.x; i < SHARED / 4; i += THREADS) ((uint32_t *)shared)[i] = in[i % 40000];
    float sums[N][4] = {};
    uint32_t tile[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES * 4; i++) tile[i / 4][i % 4] = in[i * THREADS + (int)threadIdx.x];
    ptx_fence_shared();
    __syncthreads();
    const uint32_t group = ptx_uniform(threadIdx.x / 128), at = ptx_shared(shared);
    const uint64_t kept = ptx_operand_of(ptx_uniform(at + 131072 + group * 32768), 1024, 128);
    long long total = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t rows = ptx_operand_of(ptx_uniform(at + round % 2 * 65536 + group * 32768), 128, BATCH * 256);
        const long long before = clock64();
        ptx_together_begin();
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if constexpr (REGISTERS)
                ptx_multiply_together<2>(sums, tile[k % TILES], rows + (uint32_t)(k * 16));
            else
                ptx_multiply_together<2>(sums, kept + (uint32_t)(k % TILES * 128), rows + (uint32_t)(k * 16));
        ptx_together_commit();
        ptx_together_wait<0>();
        ptx_together_sums(sums);
        total += clock64() - before;
        ptx_barrier(1, THREADS);
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) cycles = total;
    float sum = 0.0f;
    for (int n = 0; n < N; n++) sum += sums[n][0] + sums[n][3];
    if (sum == 123.0f) *out = sum; /* so that it is computed */
}

template <int N, bool REGISTERS> static bool measure(const uint32_t *in, int blocks) {
    long long taken = 0;
    cudaError_t error =
        cudaFuncSetAttribute(multiply<N, REGISTERS>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    for (int i = 0; i < 3 && error == cudaSuccess; i++) {
        multiply<N, REGISTERS><<<blocks, THREADS, SHARED>>>(nullptr, in);
        error = cudaDeviceSynchronize();
    }
    if (error == cudaSuccess) error = cudaMemcpyFromSymbol(&taken, cycles, sizeof taken);
    if (error != cudaSuccess) {
        fprintf(stderr, "wgmma: %s\n", cudaGetErrorString(error));
        return false;
    }
    printf("%2d rows, weights in %s: %.1f cycles\n", 8 * N, REGISTERS ? "registers    " : "shared memory",
           (double)taken / (ROUNDS * BATCH * 2));
    return true;
}

int main(void) {
    static uint32_t host[WORDS];
    cudaDeviceProp properties;
    uint32_t *in = nullptr;
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
        fprintf(stderr, "wgmma: needs a GPU of sm_90, and there is none\n");
        return 1;
    }
    for (uint32_t i = 0, x = 1; i < WORDS; i++) { /* two bf16 of 0.008 to 2 each, of both signs */
        x = x * 1664525u + 1013904223u;
        host[i] = (0x3C003C00u + (x >> 9 & 0x03FF03FFu)) | (x & 0x80008000u);
    }
    if (cudaMalloc(&in, sizeof host) != cudaSuccess ||
        cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice) != cudaSuccess)
        return 1;
    const int blocks = properties.multiProcessorCount;
    const bool well = measure<2, true>(in, blocks) && measure<4, true>(in, blocks) && measure<2, false>(in, blocks) &&
                      measure<4, false>(in, blocks);
    cudaFree(in);
    return well ? 0 : 1;
}
