/* Which of cuBLASLt's algorithms a product takes (runtime/products.cu as it is), without a GPU: the library's answers are this file's. Run by
 * tests/cuda/products_choice. */
#include "backend/cuda/runtime/products.cu"

#include "backend/cuda/runtime/small_fit.h"

#include "products_stubs.h"

extern "C" cudaError_t cudaGetLastError(void) { return cudaSuccess; }

/* ------------------------------------------------------------------------------------------------ a cuBLASLt -- */
/* An algorithm is its tile, pieces and cluster. */
static struct {
    cut list[8];
    int count;
    bool refuses, knows_clusters;
    size_t wants; /* workspace of what is checked */
    float rounds; /* of what is listed */
    float round[8]; /* of each alone; 0: as above */
} library;

static cublasStatus_t configuration(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t which, void *to,
                                    size_t bytes, size_t *written) {
    const bool cluster = which == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    if (bytes != (cluster ? 2 : 4) || (cluster && !library.knows_clusters)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, &algo->data[which == CUBLASLT_ALGO_CONFIG_TILE_ID ? 0 : cluster ? 2 : 1], bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t configure(cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t which, const void *from,
                                size_t bytes) {
    const bool cluster = which == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    if (bytes != (cluster ? 2 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&algo->data[which == CUBLASLT_ALGO_CONFIG_TILE_ID ? 0 : cluster ? 2 : 1], from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t check(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *,
                            cublasLtMatmulHeuristicResult_t *result) {
    result->workspaceSize = library.wants;
    return library.refuses ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int asked,
                                cublasLtMatmulHeuristicResult_t *results, int *count) {
    memset(results, 0, (size_t)asked * sizeof *results);
    for (int i = 0; i < library.count; i++) {
        const cut *at = &library.list[i];
        const uint16_t cluster = (uint16_t)at->cluster;
        memcpy(&results[i].algo.data[0], &at->tile, 4);
        memcpy(&results[i].algo.data[1], &at->pieces, 4);
        memcpy(&results[i].algo.data[2], &cluster, 2);
        results[i].wavesCount = library.round[i] > 0 ? library.round[i] : library.rounds;
    }
    *count = library.count;
    return CUBLAS_STATUS_SUCCESS;
}
static cublasStatus_t preference_init(cublasLtMatmulPreference_t, size_t) { return CUBLAS_STATUS_SUCCESS; }
static cublasStatus_t preference_set(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t) {
    return CUBLAS_STATUS_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------- cases -- */
static int passed, failed;
static int64_t fresh = 1 << 20; /* rows that no product had: a choice is remembered by shape */

/* What is taken of the library's list. `row`: of A, B and D, floats or 16 bits. */
static cut taken(sl_dtype math, bool a_transposed, bool b_transposed, int64_t row, int capability, int64_t k = 512, int64_t m = 0,
                 int share = 0) {
    sli_cuda_product p = {};
    p.math = math;
    p.m = m > 0 ? m : fresh++;
    p.share = share;
    p.n = 512;
    p.k = k;
    p.a = {nullptr, row, a_transposed};
    p.b = {nullptr, row, b_transposed};
    p.d_row = row;
    p.workspace = &p;
    p.workspace_bytes = (32 << 20) + WORKSPACE_ALIGN;
    caps.compute_capability = capability;
    product_key key;
    fill_key(&key, &p, &caps);
    product_description d;
    memset(&d, 0, sizeof d);
    cublasLtMatmulAlgo_t algo, again;
    if (!choose(0, &key, &d, &algo) || !choose(0, &key, &d, &again) || memcmp(&algo, &again, sizeof algo) != 0)
        return {-2, 0, 0};
    return cut_of(&algo);
}

static void expect(const char *what, cut is, cut wanted) {
    if (same_cut(is, wanted)) {
        passed++;
        return;
    }
    failed++;
    printf("failed   products_choice, %s: tile %d, pieces %d, cluster %d; expected %d, %d, %d\n", what, is.tile, is.pieces,
           is.cluster, wanted.tile, wanted.pieces, wanted.cluster);
}

template <class... MORE> static void list(cut first, MORE... more) {
    const cut all[] = {first, more...};
    library = {};
    library.knows_clusters = true;
    library.rounds = 3;
    for (const cut &each : all) library.list[library.count++] = each;
}

/* The line for A stored the other way, if there is one, or none. */
static cut other_way(bool narrow, bool a_transposed, cut from) {
    for (const auto &e : exchanges)
        if (e.narrow == narrow && e.a_transposed != a_transposed && same_cut(e.from, from)) return e.to;
    return from;
}

static void check_exchanges() {
    for (const auto &e : exchanges) {
        const sl_dtype math = e.narrow ? SL_F16 : SL_TF32, other = e.narrow ? SL_TF32 : SL_BF16;
        list(e.from);
        expect("exchanged", taken(math, e.a_transposed, false, 512, 90), e.to);
        if (e.narrow) expect("in bf16", taken(SL_BF16, e.a_transposed, false, 512, 90), e.to);
        expect("another type", taken(other, e.a_transposed, false, 512, 90), e.from);
        expect("A the other way", taken(math, !e.a_transposed, false, 512, 90),
               other_way(e.narrow, e.a_transposed, e.from));
        expect("B transposed", taken(math, e.a_transposed, true, 512, 90), e.from);
        expect("another GPU", taken(math, e.a_transposed, false, 512, 100), e.from);
        expect("the generation before", taken(math, e.a_transposed, false, 512, 80), e.from);
        expect("rows of 8 bytes and 4", taken(math, e.a_transposed, false, 514, 90), e.from);
        library.refuses = true;
        expect("refused", taken(math, e.a_transposed, false, 512, 90), e.from);
        list(e.from);
        library.wants = (32 << 20) + 1;
        expect("too much workspace", taken(math, e.a_transposed, false, 512, 90), e.from);
        list({e.from.tile, e.from.pieces == 1 ? 2 : 1, e.from.cluster});
        expect("k cut otherwise", taken(math, e.a_transposed, false, 512, 90), library.list[0]);
    }
}

static void check_lists() {
    const cut four = {CUBLASLT_MATMUL_TILE_128x64, SHARED_K, CUBLASLT_CLUSTER_SHAPE_1x4x1},
              eight = {CUBLASLT_MATMUL_TILE_128x64, SHARED_K, CUBLASLT_CLUSTER_SHAPE_1x8x1},
              large = {CUBLASLT_MATMUL_TILE_128x256, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1},
              small = {CUBLASLT_MATMUL_TILE_128x128, 1, CUBLASLT_CLUSTER_SHAPE_2x1x1};
    list(four);
    expect("no cluster of eight", taken(SL_TF32, false, false, 512, 90), four);
    library.list[1] = eight;
    library.count = 2;
    expect("a cluster of eight", taken(SL_TF32, false, false, 512, 90), eight);
    expect("of another GPU", taken(SL_TF32, false, false, 512, 100), four);
    expect("of sums", taken(SL_TF32, true, false, 512, 90), four);
    list(large, small);
    expect("a smaller tile", taken(SL_BF16, false, false, 512, 90), small);
    library.knows_clusters = false; /* tiles are known even so */
    expect("without clusters", taken(SL_BF16, false, false, 512, 90),
           {small.tile, small.pieces, CUBLASLT_CLUSTER_SHAPE_AUTO});
}

/* f32: tiles of 256x64 where they are listed. */
static void check_tall() {
    const cut first = {CUBLASLT_MATMUL_TILE_128x128, 1, 0}, tall = {CUBLASLT_MATMUL_TILE_256x64, 1, 0}, cut_k = {CUBLASLT_MATMUL_TILE_256x64, 2, 0};
    list(first, cut_k, tall);
    expect("f32, weights [n][k]", taken(SL_F32, false, true, 512, 90), tall);
    expect("f32, weights [k][n]", taken(SL_F32, false, false, 512, 90), first);
    expect("f32, another GPU", taken(SL_F32, false, true, 512, 100), first);
    expect("f32, sums", taken(SL_F32, true, true, 512, 90), first);
    expect("tf32 as it was", taken(SL_TF32, false, true, 512, 90), first);
    library.rounds = 0.9f;
    expect("f32, less than a round", taken(SL_F32, false, true, 512, 90), first);
    library.rounds = 3;
    library.count = 2;
    expect("f32, k cut", taken(SL_F32, false, true, 512, 90), first);
    list(cut_k, tall);
    expect("f32, k cut first", taken(SL_F32, false, true, 512, 90), cut_k);
}

/* tf32: sums over few steps as a whole. */
static void check_whole() {
    const cut pieces = {CUBLASLT_MATMUL_TILE_64x64, 5, 0}, whole = {CUBLASLT_MATMUL_TILE_64x64, 1, 0};
    list(pieces);
    expect("tf32, few steps, nothing else", taken(SL_TF32, true, false, 512, 90, 20), pieces);
    library.list[1] = pieces;
    library.list[2] = whole;
    library.count = 3;
    expect("tf32, few steps", taken(SL_TF32, true, false, 512, 90, 20), whole);
    expect("tf32, many steps", taken(SL_TF32, true, false, 512, 90, 65), pieces);
    expect("tf32, no sum", taken(SL_TF32, false, false, 512, 90, 20), pieces);
    expect("bf16", taken(SL_BF16, true, false, 512, 90, 20), pieces);
}

/* d x in 16 bits: no second launch for pieces of k where whole sums have blocks for most multiprocessors. */
static void check_inputs() {
    const cut pieces = {CUBLASLT_MATMUL_TILE_128x128, 2, 0}, whole = {CUBLASLT_MATMUL_TILE_64x144, 1, 0}, few = {CUBLASLT_MATMUL_TILE_64x256, 1, 0};
    list(pieces, few, whole);
    library.round[1] = 0.4f;
    library.round[2] = 0.73f;
    int64_t k = 9000; /* a choice is remembered by shape */
    expect("d x, whole", taken(SL_BF16, false, false, 512, 90, k += 8, 300), whole);
    expect("a step's", taken(SL_BF16, false, false, 512, 90, k += 8, 256), pieces);
    expect("a sum over time", taken(SL_BF16, true, false, 512, 90, k += 8, 300), pieces);
    expect("W x", taken(SL_F16, false, true, 512, 90, k += 8, 300), pieces);
    library.round[2] = 0.97f;
    expect("d x, blocks for all", taken(SL_F16, false, false, 512, 90, k += 8, 300), pieces);
}

/* d x beside sums: blocks for its share. */
static void check_shares() {
    const cut first = {CUBLASLT_MATMUL_TILE_64x16, 1, 0}, some = {CUBLASLT_MATMUL_TILE_64x72, 1, 0}, fewer = {CUBLASLT_MATMUL_TILE_64x104, 1, 0},
              pieces = {CUBLASLT_MATMUL_TILE_64x64, 4, 0};
    list(first, pieces, fewer, some);
    const float rounds[] = {0.76f, 0.24f, 0.12f, 0.18f};
    for (int i = 0; i < 4; i++) library.round[i] = rounds[i];
    int64_t k = 1600;
    expect("a quarter", taken(SL_BF16, false, false, 512, 90, k += 8, 400, 25), some);
    expect("an eighth", taken(SL_F16, false, false, 512, 90, k += 8, 400, 12), fewer);
    expect("alone", taken(SL_BF16, false, false, 512, 90, k += 8, 400), first);
    expect("none is near", taken(SL_BF16, false, false, 512, 90, k += 8, 400, 50), first);
    expect("none has so few", taken(SL_BF16, false, false, 512, 90, k += 8, 400, 5), first);
    expect("too many products", taken(SL_BF16, false, false, 512, 90, k += 8, 1 << 20, 25), first);
    expect("another type", taken(SL_TF32, false, false, 512, 90, k += 8, 400, 25), first);
}

/* Which kernel a product of floats that are to be rounded, and a pair that cuBLASLt does not take, come to. */
static void check_own() {
    static float d[64];
    static uint16_t a[64], b[64];
    sli_cuda_product p = {};
    p.math = SL_BF16;
    p.m = 4;
    p.n = p.k = 8;
    p.a = {d, 8, false};
    p.b = {b, 8, true};
    p.a_floats = true;
    owns = {};
    sli_cuda_multiply(nullptr, nullptr, &p);
    expect("floats of few rows", {owns.small_count, owns.tile_count, 0}, {1, 0, 0});
    sli_device device = {};
    sli_queue queue = {};
    queue.device = &device; /* no cuBLASLt */
    p.m = 8;
    p.a_floats = false;
    p.paired = true;
    p.a = {a, 8, true};
    p.b = {b, 8, false};
    p.d = d;
    p.d_row = 8;
    p.beta = 1;
    p.a_apart = 0;
    p.b_apart = 16;
    p.d_apart = 32;
    owns = {};
    sli_cuda_multiply(&queue, nullptr, &p);
    expect("a pair", {owns.small_count, owns.tile_count, 0}, {0, 2, 0});
    const bool first = owns.tiles[0].a.data == a && owns.tiles[0].b.data == b && owns.tiles[0].d == d;
    const bool second = owns.tiles[1].a.data == a && owns.tiles[1].b.data == b + 16 && owns.tiles[1].d == d + 32;
    expect("a pair's operands", {first, second, owns.tiles[0].paired || owns.tiles[1].paired}, {1, 1, 0});
    expect("a pair is added", {owns.tiles[0].beta == 1, owns.tiles[1].beta == 1, 0}, {1, 1, 0});
}

/* A pair whose D has 300 columns: both matrices in one pad, one behind the other, out of which one launch moves them. */
static void check_padded_pair() {
    enum { M = 1200, N = 300, ROW = 304, K = 256 };
    static float pad[2 * M * ROW], d[4];
    static uint16_t a[8], b[8];
    sli_device device = {};
    sli_queue queue = {};
    queue.device = &device; /* no cuBLASLt */
    sli_cuda_product p = {};
    p.math = SL_BF16;
    p.m = M;
    p.n = N;
    p.k = K;
    p.paired = true;
    p.a = {a, M, true};
    p.b = {b, ROW, false};
    p.b_apart = K * ROW;
    p.d = d;
    p.d_row = N;
    p.d_apart = M * N;
    p.beta = 1;
    p.pad = pad;
    p.pad_bytes = sizeof pad;
    caps.compute_capability = 90;
    owns = {};
    sli_cuda_multiply(&queue, nullptr, &p);
    const sli_cuda_product *t = owns.tiles;
    expect("a padded pair", {owns.tile_count, (int)t[0].n, (int)t[1].n}, {2, ROW, ROW});
    expect("its sums", {t[0].d == pad, t[1].d == pad + M * ROW, t[0].beta == 0 && t[1].beta == 0}, {1, 1, 1});
    const sli_cuda_move *move = &owns.move;
    expect("their move", {move->count, (int)move->from_apart, (int)move->to_apart}, {2, M * ROW, M * N});
    expect("from and to", {move->from == pad && move->to == d, (int)move->columns, move->add}, {1, N, 1});
    p.pad_bytes -= sizeof(float); /* holds one matrix: one after the other */
    owns = {};
    sli_cuda_multiply(&queue, nullptr, &p);
    expect("a pad of one matrix", {owns.move.count, owns.tile_count, owns.tiles[1].d == pad}, {1, 2, 1});
    expect("its second move", {owns.move.to == d + M * N, owns.move.from == pad, 0}, {1, 1, 0});
}

/* Rows that a product is given in its pad: nothing behind the rows of A may be read. */
static void check_pads() {
    const struct {
        const char *what;
        sl_dtype math;
        bool transposed;
        int64_t m, row, first, rows; /* A begins at column `first` */
    } cases[] = {
        {"rows of the pad", SL_BF16, true, 300, 304, 0, 304},      {"whole already", SL_F16, true, 304, 304, 0, 304},
        {"a part of A's columns", SL_BF16, true, 100, 304, 200, 104}, {"that begins unaligned", SL_BF16, true, 129, 392, 258, 129},
        {"rows that are not whole", SL_BF16, true, 300, 300, 0, 300}, {"A as it is", SL_BF16, false, 300, 304, 0, 300},
        {"tf32", SL_TF32, true, 300, 304, 0, 300},
    };
    for (const auto &c : cases) {
        sli_cuda_product p = {};
        p.math = c.math;
        p.m = c.m;
        p.a = {(const void *)(uintptr_t)(4096 + 2 * c.first), c.row, c.transposed};
        expect(c.what, {(int)padded_rows(&p), 0, 0}, {(int)c.rows, 0, 0});
    }
}

/* Which products are our own small ones. */
static void check_small() {
    const struct {
        const char *what;
        sl_dtype math;
        bool a_transposed, b_transposed;
        int64_t m, n, k, row; /* of A and B */
        uintptr_t a, b;       /* addresses */
        bool taken, floats = false;
    } cases[] = {
        {"W x of floats", SL_BF16, false, true, 20, 512, 100, 104, 4096, 4096, true, true},
        {"W x of floats, five rows", SL_F16, false, true, 5, 512, 100, 104, 4096, 4096, true, true},
        {"W x of floats, four rows", SL_BF16, false, true, 4, 512, 100, 104, 4096, 4096, false, true},
        {"W x of floats, 33 rows", SL_BF16, false, true, 33, 512, 100, 104, 4096, 4096, false, true},
        {"W x of floats, A at 8 bytes", SL_BF16, false, true, 20, 512, 100, 104, 4104, 4096, false, true},
        {"W x of floats, k no whole fours", SL_BF16, false, true, 20, 512, 101, 104, 4096, 4096, false, true},
        {"d x of floats", SL_BF16, false, false, 20, 100, 512, 512, 4096, 4096, false, true},
        {"W x in tf32", SL_TF32, false, true, 20, 512, 100, 100, 4096, 4096, true},
        {"W x in bf16", SL_BF16, false, true, 20, 512, 104, 104, 4096, 4096, false},
        {"W x in f32", SL_F32, false, true, 20, 512, 100, 100, 4096, 4096, false},
        {"W x of 33 rows", SL_TF32, false, true, 33, 512, 100, 100, 4096, 4096, false},
        {"W x of k that is no whole fours", SL_TF32, false, true, 20, 512, 101, 104, 4096, 4096, false},
        {"W x with B at 8 bytes", SL_TF32, false, true, 20, 512, 100, 100, 4096, 4104, false},
        {"W x with A at 8 bytes", SL_TF32, false, true, 20, 512, 100, 100, 4104, 4096, false},
        {"W x of 48 million", SL_TF32, false, true, 30, 1600, 1000, 1000, 4096, 4096, true},
        {"W x of more", SL_TF32, false, true, 30, 1604, 1000, 1000, 4096, 4096, false},
        {"d x in tf32", SL_TF32, false, false, 20, 96, 512, 512, 4096, 4100, true},
        {"d x in bf16", SL_BF16, false, false, 20, 100, 512, 512, 4096, 4098, true},
        {"d x in f16, A at 8 bytes", SL_F16, false, false, 32, 1, 512, 516, 4104, 4096, true},
        {"d x in bf16, A at 4 bytes", SL_BF16, false, false, 20, 100, 512, 512, 4100, 4096, false},
        {"d x in bf16 of whole eights", SL_BF16, false, false, 20, 104, 512, 512, 4096, 4096, false},
        {"d x in f32", SL_F32, false, false, 20, 100, 512, 512, 4096, 4096, false},
        {"d x of two million", SL_TF32, false, false, 20, 100, 1000, 1000, 4096, 4096, true},
        {"d x of more", SL_TF32, false, false, 20, 100, 1004, 1004, 4096, 4096, false},
        {"a sum over time", SL_TF32, true, false, 20, 100, 512, 512, 4096, 4096, false},
    };
    for (const auto &c : cases) {
        sli_cuda_product p = {};
        p.math = c.math;
        p.m = c.m;
        p.n = c.n;
        p.k = c.k;
        p.a = {reinterpret_cast<const void *>(c.a), c.row, c.a_transposed};
        p.b = {reinterpret_cast<const void *>(c.b), c.row, c.b_transposed};
        p.a_floats = c.floats;
        expect(c.what, {small_fits(&p), 0, 0}, {c.taken, 0, 0});
    }
}

int main() {
    blas.configuration = configuration;
    blas.configure = configure;
    blas.check = check;
    blas.heuristic = heuristic;
    blas.preference_init = preference_init;
    blas.preference_set = preference_set;
    check_exchanges();
    check_lists();
    check_tall();
    check_whole();
    check_pads();
    check_padded_pair();
    check_small();
    check_inputs();
    check_shares();
    check_own();
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0;
}
