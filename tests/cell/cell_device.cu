/* The cells, the activations and the generator as device code. `make check` compiles this file; run on a GPU it compares
 * every result with the same text on the host:
 *     nvcc -std=c++17 -arch=sm_90 -Iinclude -Isrc tests/cell/cell_device.cu -o cell_device && ./cell_device
 * The two may differ by how products and sums are fused, so by a few ulp of the largest term: 1e-5 absolute and relative;
 * the generator must agree to the bit. */
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"
#include "core/rng.h"

enum { INPUTS = 8, RESULTS = 24, COUNT = 1 << 16 };

/* All results of one element j, from in[INPUTS][COUNT] to out[RESULTS][COUNT]. */
template <int options, int act, int gate_act>
__host__ __device__ static void cells(const float *in, float *out, int j) {
    float x[INPUTS];
    for (int k = 0; k < INPUTS; k++) x[k] = in[k * COUNT + j];
    cell_lstm_args lstm = {x[4], x[5], x[6], 1.0f, 0.7f, (float)(x[7] > 0), (float)(x[6] > 0), (float)(x[5] > 0)};
    cell_lstm_gates z = {x[0], x[1], x[2], x[3]};
    cell_lstm_forward_result l = cell_lstm_forward(options, act, gate_act, z, x[4], x[5], lstm);
    cell_lstm_backward_result lb = cell_lstm_backward(options, act, gate_act, l.gates, l.v, x[4], x[6], x[7], lstm);
    cell_gru_args gru = {(float)(x[7] > 0), (float)(x[5] > 0)};
    cell_gru_pre pre = {options & CELL_RESET_BEFORE ? cell_gru_reset(gate_act, x[0]) : x[0], x[1], x[2], x[3]};
    cell_gru_forward_result g = cell_gru_forward(options, act, gate_act, pre, x[4], gru);
    cell_gru_backward_result gb = cell_gru_backward(options, act, gate_act, g.gates, x[3], x[4], x[6], gru);
    cell_gru_reset_backward_result gr = cell_gru_reset_backward(gate_act, g.gates.r, gb.ds_n, x[4]);
    cell_rnn_args rnn = {(float)(x[7] > 0), (float)(x[5] > 0)};
    cell_rnn_forward_result r = cell_rnn_forward(options, act, x[0], x[4], rnn);
    cell_rnn_backward_result rb = cell_rnn_backward(options, act, r.q, x[6], rnn);
    float all[RESULTS] = {l.c,
                          l.h,
                          l.v,
                          lb.dz.i,
                          lb.dz.f,
                          lb.dz.g,
                          lb.dz.o,
                          lb.dc_prev,
                          lb.dh_prev,
                          g.h,
                          gb.dz.z,
                          gb.dz.n,
                          gb.dz.r,
                          gb.ds_n,
                          gb.dh_prev,
                          gr.dz_r,
                          gr.d_dropped,
                          r.h,
                          r.q,
                          rb.dz,
                          rb.dh_prev,
                          cell_tanh(x[0] * 8),
                          cell_sigmoid(x[1] * 20),
                          cell_act(CELL_ACT_SOFTSIGN, x[2])};
    for (int k = 0; k < RESULTS; k++) out[k * COUNT + j] = all[k];
}

template <int options, int act, int gate_act> __global__ void cells_kernel(const float *in, float *out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < COUNT) cells<options, act, gate_act>(in, out, j);
}

__global__ void philox_kernel(uint32_t *out) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    sli_rng rng = {0x0123456789abcdefull, 7, 3, 5u << 8 | SLI_PURPOSE_ZONEOUT_H};
    if (j < COUNT) out[j] = sli_rng_word(&rng, (uint64_t)j * 40503u);
}

static int passed, failed;
static void report(const char *what, double worst, bool fine) {
    printf("%-52s largest difference %.2e  %s\n", what, worst, fine ? "ok" : "FAIL");
    fine ? passed++ : failed++;
}

static void check_cuda(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    printf("%s: %s\n", what, cudaGetErrorString(error));
    exit(7);
}

template <int options, int act, int gate_act>
static void compare(const char *what, const float *in, float *device_in, float *device_out) {
    static float host[RESULTS * COUNT], device[RESULTS * COUNT];
    cells_kernel<options, act, gate_act><<<(COUNT + 255) / 256, 256>>>(device_in, device_out);
    check_cuda(cudaMemcpy(device, device_out, sizeof device, cudaMemcpyDeviceToHost), what);
    double worst = 0;
    for (int j = 0; j < COUNT; j++) cells<options, act, gate_act>(in, host, j);
    for (int k = 0; k < RESULTS * COUNT; k++) {
        double difference = fabs((double)host[k] - device[k]) / (1 + fabs((double)host[k]));
        worst = difference > worst || std::isnan(difference) ? difference : worst;
    }
    report(what, worst, worst <= 1e-5);
}

int main(void) {
    static float in[INPUTS * COUNT];
    static uint32_t words[COUNT];
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped  cell_device: no GPU\n0 passed, 0 failed, 1 skipped\n");
        return 0;
    }
    for (int k = 0; k < INPUTS * COUNT; k++) in[k] = (float)(4.0 * rand() / RAND_MAX - 2.0);
    float *device_in, *device_out;
    check_cuda(cudaMalloc((void **)&device_in, sizeof in), "cudaMalloc");
    check_cuda(cudaMalloc((void **)&device_out, sizeof(float) * RESULTS * COUNT), "cudaMalloc");
    check_cuda(cudaMemcpy(device_in, in, sizeof in, cudaMemcpyHostToDevice), "cudaMemcpy");
    enum { EVERY = 2 * CELL_RESET_BEFORE - 1 };
    compare<0, CELL_ACT_TANH, CELL_ACT_SIGMOID>("no options, tanh, sigmoid", in, device_in, device_out);
    compare<EVERY, CELL_ACT_TANH, CELL_ACT_SIGMOID>("every option, tanh, sigmoid", in, device_in, device_out);
    compare<EVERY & ~CELL_PROJECTION, CELL_ACT_SOFTSIGN, CELL_ACT_HARD_SIGMOID>(
        "all but projection, softsign, hard sigmoid", in, device_in, device_out);
    compare<EVERY & ~CELL_RESET_BEFORE, CELL_ACT_RELU, CELL_ACT_HARD_SIGMOID_K2>(
        "all but reset before, relu, hard sigmoid (Keras 2)", in, device_in, device_out);
    compare<CELL_MASK, CELL_ACT_LINEAR, CELL_ACT_SIGMOID>("mask, linear, sigmoid", in, device_in, device_out);
    philox_kernel<<<(COUNT + 255) / 256, 256>>>((uint32_t *)device_out);
    check_cuda(cudaMemcpy(words, device_out, sizeof words, cudaMemcpyDeviceToHost), "philox");
    int different = 0;
    sli_rng rng = {0x0123456789abcdefull, 7, 3, 5u << 8 | SLI_PURPOSE_ZONEOUT_H};
    for (int j = 0; j < COUNT; j++) different += words[j] != sli_rng_word(&rng, (uint64_t)j * 40503u);
    report("Philox words (number that differ)", different, different == 0);
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    printf("device %s, CUDA run time %d\n%d passed, %d failed, 0 skipped\n", properties.name, CUDART_VERSION, passed,
           failed);
    return failed ? 1 : 0;
}
