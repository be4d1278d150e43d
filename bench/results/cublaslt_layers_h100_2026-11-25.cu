// What made cublaslt_layers_h100_2026-11-25.txt: times every algorithm that cuBLASLt lists for the products of a list, and with a second argument others, beside
// the one that products.cu chooses; says where its numbers differ from those of the first listed. Lines of the list: tf32|bf16 NN|NT|TN|NNp m n k add.
//     gcc -c -Isrc -Iinclude src/backend/cuda/workspace.c -o ws.o
//     nvcc -std=c++17 -arch=sm_90 -cudart static -Isrc -Iinclude -Itests/cuda THIS.cu ws.o -o products -ldl -lpthread
//     CUBLASLT=.../libcublasLt.so.13 ./products LIST [others]
#include "backend/cuda/runtime/products.cu"
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>
#include "products_stubs.h"
static decltype(&cublasLtMatmulAlgoConfigSetAttribute) set_config;
static decltype(&cublasLtMatmulAlgoCheck) check;
static void *open_library(const char *const *names, sli_why *) {
    void *l = dlopen(getenv("CUBLASLT") ? getenv("CUBLASLT") : names[0], RTLD_NOW);
    if (l) {
        set_config = (decltype(set_config))dlsym(l, "cublasLtMatmulAlgoConfigSetAttribute");
        check = (decltype(check))dlsym(l, "cublasLtMatmulAlgoCheck");
    }
    return l;
}
__global__ void fill(uint32_t *to, size_t count, int narrow, uint32_t seed) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t x = (uint32_t)i * 2654435761u + seed;
        x ^= x >> 15; x *= 2246822519u; x ^= x >> 13;
        if (narrow) to[i] = (0x3f003f00u ^ (x & 0x807f807fu));
        else to[i] = 0x3f000000u ^ (x & 0x807fffffu);
    }
}
static cudaStream_t stream;
static void *buffers[4];
static const size_t BYTES = (size_t)1400 << 20;
static double time_algo(cublasLtHandle_t handle, const product_key *key, product_description *d, const sli_cuda_product *p, const cublasLtMatmulAlgo_t *algo, double give_up) {
    const float one = 1, beta = key->add;
    const size_t bytes = usable_workspace(key);
    cudaEvent_t e[2]; cudaEventCreate(&e[0]); cudaEventCreate(&e[1]);
    auto once = [&] { return blas.matmul(handle, &d->operation, &one, p->b.data, &d->a, p->a.data, &d->b, &beta, p->d, &d->d, p->d, &d->d, algo, p->workspace, bytes, stream); };
    double best = 1e9;
    if (!well(once())) { cudaGetLastError(); cudaEventDestroy(e[0]); cudaEventDestroy(e[1]); return 1e9; }
    for (int round = 0; round < 3; round++) {
        const int n = round == 0 ? 2 : 8;
        cudaEventRecord(e[0], stream);
        for (int i = 0; i < n; i++) once();
        cudaEventRecord(e[1], stream);
        if (cudaEventSynchronize(e[1]) != cudaSuccess) { fprintf(stderr, "device failed\n"); exit(1); }
        float ms; cudaEventElapsedTime(&ms, e[0], e[1]);
        const double us = ms * 1000.0 / n;
        if (us < best && round > 0) best = us;
        if (round == 0 && us > give_up * 1.5) { best = us; break; }
    }
    cudaEventDestroy(e[0]); cudaEventDestroy(e[1]);
    return best;
}
static std::string name_of(const cublasLtMatmulAlgo_t *algo, float waves, size_t ws) {
    uint32_t v[8] = {}; size_t w;
    const cublasLtMatmulAlgoConfigAttributes_t at[] = {CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_STAGES_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME};
    for (int i = 0; i < 6; i++) blas.configuration(algo, at[i], &v[i], 4, &w);
    uint16_t inner = 0, cluster = 0;
    blas.configuration(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, &inner, 2, &w);
    blas.configuration(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, 2, &w);
    char t[160]; snprintf(t, sizeof t, "%u.t%u.s%u.c%u.z%u k%u r%u w%.2f ws%zuK", v[0], v[1], v[2], cluster, v[4], v[3], v[5], waves, ws >> 10);
    return t;
}
int main(int argc, char **argv) {
    sli_cuda_host.open_library = open_library;
    caps.compute_capability = 90; caps.multiprocessors = 132;
    sli_device device = {};
    sli_why why;
    if (!sli_products_open(&why)) { fprintf(stderr, "%s\n", why.text); return 1; }
    sli_products_prepare(&device);
    cublasLtHandle_t handle = (cublasLtHandle_t)device.blas;
    cudaStreamCreate(&stream);
    for (int i = 0; i < 3; i++) cudaMalloc(&buffers[i], BYTES);
    void *workspace; cudaMalloc(&workspace, 64 << 20);
    FILE *list = fopen(argv[1], "r"); const bool variants = argc > 2;
    char kind[16], math[8]; long m, n, k; int add, last = -1;
    while (fscanf(list, " %7s %15s %ld %ld %ld %d", math, kind, &m, &n, &k, &add) == 6) {
        const bool narrow = !strcmp(math, "bf16");
        if (last != narrow) { fill<<<1024, 256>>>((uint32_t *)buffers[0], BYTES / 4, narrow, 1); fill<<<1024, 256>>>((uint32_t *)buffers[1], BYTES / 4, narrow, 99); cudaDeviceSynchronize(); last = narrow; }
        sli_cuda_product p = {};
        p.math = narrow ? SL_BF16 : SL_TF32; p.m = m; p.n = n; p.k = k;
        const bool at = kind[0] == 'T', bt = kind[1] == 'T'; // letters: A transposed, B transposed as in sli_cuda_matrix
        p.a = {buffers[0], at ? m : k, at}; p.b = {buffers[1], bt ? k : n, bt};
        p.d = (float *)buffers[2]; p.d_row = n; p.beta = add; p.workspace = workspace; p.workspace_bytes = (32 << 20) + 256;
        if (kind[2] == 'p') { p.pieces = sli_cuda_pieces(&caps, p.math, m, n, k); p.d_apart = m * n; if (p.pieces < 2) continue; }
        product_key key; fill_key(&key, &p, &caps);
        product_description d; if (!describe(&d, &key, &p)) continue;
        cublasLtMatmulAlgo_t chosen;
        if (!choose(0, &key, &d, &chosen)) { printf("%s %s %ld %ld %ld: none\n", math, kind, m, n, k); continue; }
        double mine = time_algo(handle, &key, &d, &p, &chosen, 1e9);
        mine = std::min(mine, time_algo(handle, &key, &d, &p, &chosen, 1e9));
        // the list
        cublasLtMatmulPreferenceOpaque_t pref; blas.preference_init(&pref, sizeof pref);
        const uint64_t promised = 32 << 20; const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        blas.preference_set(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &promised, 8);
        blas.preference_set(&pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, 4);
        std::vector<cublasLtMatmulHeuristicResult_t> r(80); int got = 0;
        blas.heuristic(handle, &d.operation, &d.a, &d.b, &d.d, &d.d, &pref, 80, r.data(), &got);
        const double flops = 2.0 * m * n * k;
        printf("P %s %s %ld %ld %ld %d chosen %.2f %s\n", math, kind, m, n, k, add, mine, name_of(&chosen, 0, 0).c_str());
        if (got > 0) { // the numbers of the chosen one beside those of the first
            const float one = 1, zero = 0; std::vector<float> x(1 << 16), y(1 << 16);
            const size_t count = std::min<size_t>(x.size(), (size_t)m * n), off = (size_t)m * n - count;
            for (int w = 0; w < 2; w++) {
                cudaMemset(buffers[2], 0xff, (size_t)m * n * 4);
                blas.matmul(handle, &d.operation, &one, p.b.data, &d.a, p.a.data, &d.b, &zero, p.d, &d.d, p.d, &d.d, w ? &r[0].algo : &chosen, p.workspace, usable_workspace(&key), stream);
                cudaStreamSynchronize(stream);
                cudaMemcpy((w ? y : x).data(), p.d + off, count * 4, cudaMemcpyDeviceToHost);
            }
            double worst = 0, scale = 0; for (size_t i = 0; i < count; i++) { worst = std::max(worst, std::isnan(x[i]) ? 1e9 : (double)fabsf(x[i] - y[i])); scale = std::max(scale, (double)fabsf(y[i])); }
            if (!(worst <= 1e-5 * scale * std::sqrt((double)k) )) printf("differ %g of %g\n", worst, scale);
            cudaMemset(buffers[2], 0, (size_t)m * n * 4);
        }
        for (int i = 0; i < got; i++) {
            double us = time_algo(handle, &key, &d, &p, &r[i].algo, mine);
            if (us < 1.3 * mine) us = std::min(us, time_algo(handle, &key, &d, &p, &r[i].algo, mine));
            printf("L %d %.2f %s\n", i, us, name_of(&r[i].algo, r[i].wavesCount, r[i].workspaceSize).c_str());
        }
        if (variants && got > 0) {
            static const uint32_t tf[] = {24, 23, 20, 21, 18, 17, 15}, bf[] = {24, 23, 20, 29, 28, 400, 18, 17, 15, 209};
            static const uint16_t clusters[] = {2, 3, 5, 6, 4, 8};
            for (int t = 0; t < (narrow ? 10 : 7); t++)
                for (uint16_t c : clusters)
                    for (int32_t cut : {1, -1}) {
                        if (narrow && cut < 0) continue;
                        cublasLtMatmulAlgo_t al = r[0].algo;
                        int id = 0; size_t w; blas.configuration(&al, CUBLASLT_ALGO_CONFIG_ID, &id, 4, &w);
                        if (id != (narrow ? 66 : 43)) continue;
                        const uint32_t tile = narrow ? bf[t] : tf[t], scheme = cut < 0 ? 2 : 0;
                        if (!well(set_config(&al, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, 4)) || !well(set_config(&al, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &c, 2)) ||
                            !well(set_config(&al, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &cut, 4)) || !well(set_config(&al, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, 4))) continue;
                        cublasLtMatmulHeuristicResult_t res;
                        if (!well(check(handle, &d.operation, &d.a, &d.b, &d.d, &d.d, &al, &res)) || res.workspaceSize > (32u << 20)) continue;
                        const double us = time_algo(handle, &key, &d, &p, &al, mine);
                        if (us < 1e8) printf("V %d %.2f %s\n", 0, us, name_of(&al, res.wavesCount, res.workspaceSize).c_str());
                    }
        }
        fflush(stdout);
    }
    return 0;
}
