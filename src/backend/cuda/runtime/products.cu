/* Matrix products by cuBLASLt, found at run time. Row-major D = A B is column-major D^T = B^T A^T: the operands change places.
 * The same key (shapes, types, strides, workspace; nothing of addresses) always gives the same algorithm, hence the same
 * bits. Sums cut along k only in ways that are added up in a fixed order. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cublasLt.h>

#include "backend/cuda/runtime/internal.h"
#include "backend/cuda/runtime/tiles.h"
extern "C" {
#include "backend/cuda/cuda.h"
}

/* ----------------------------------------------------------------------------------------------------- library -- */
#define BLAS_FUNCTIONS(X)                                     \
    X(create, cublasLtCreate)                                 \
    X(status_text, cublasLtGetStatusString)                   \
    X(matmul, cublasLtMatmul)                                 \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic)              \
    X(configuration, cublasLtMatmulAlgoConfigGetAttribute)    \
    X(configure, cublasLtMatmulAlgoConfigSetAttribute)        \
    X(check, cublasLtMatmulAlgoCheck)                         \
    X(layout_init, cublasLtMatrixLayoutInit_internal)         \
    X(layout_set, cublasLtMatrixLayoutSetAttribute)           \
    X(desc_init, cublasLtMatmulDescInit_internal)             \
    X(desc_set, cublasLtMatmulDescSetAttribute)               \
    X(preference_init, cublasLtMatmulPreferenceInit_internal) \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute)

static struct {
#define BLAS_MEMBER(member, name) decltype(&name) member;
    BLAS_FUNCTIONS(BLAS_MEMBER)
#undef BLAS_MEMBER
} blas;

enum blas_state { UNTRIED, FOUND, MISSING };
enum { BUCKETS = 1024 };

/* Everything that an algorithm depends on; compared byte by byte. */
typedef struct product_key {
    int64_t m, n, k, a_row, b_row, d_row;
    uint64_t workspace;
    int32_t math;
    uint8_t a_transposed, b_transposed, add, bias;
    uint32_t a_align, b_align, d_align;
    uint16_t pieces;
    uint8_t hopper : 1, narrow_d : 1;
    uint8_t share;
} product_key;
static_assert(sizeof(product_key) == 80, "bytes between members would be compared as well");

typedef struct choice {
    product_key key;
    bool found;
    cublasLtMatmulAlgo_t algo;
    struct choice *next;
} choice;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static blas_state state;
static sli_why missing;
static struct {
    cublasLtHandle_t handle; /* NULL: none yet; a failure may pass */
    choice *buckets[BUCKETS];
} gpus[SLI_CUDA_MOST_GPUS];

static bool load(void) {
    /* cuBLASLt of CUDA 13 goes with the CUDA 13 runtime inside this plug-in; the function types above are its. */
    static const char *const names[] = {"libcublasLt.so.13", NULL};
    void *library = sli_cuda_host.open_library(names, &missing);
    if (!library) return false;
#define BLAS_LOAD(member, name)                                                                               \
    *(void **)(&blas.member) = dlsym(library, #name);                                                         \
    if (!blas.member) {                                                                                       \
        snprintf(missing.text, sizeof missing.text, "libcublasLt.so.13 has no " #name "; install cuBLAS 13"); \
        return false;                                                                                         \
    }
    BLAS_FUNCTIONS(BLAS_LOAD)
#undef BLAS_LOAD
    return true;
}

bool sli_products_open(sli_why *why) {
    pthread_mutex_lock(&lock);
    if (state == UNTRIED) state = load() ? FOUND : MISSING;
    const bool found = state == FOUND;
    if (!found && why) *why = missing;
    pthread_mutex_unlock(&lock);
    return found;
}

void sli_products_prepare(sli_device *device) {
    if (!sli_products_open(NULL)) return;
    pthread_mutex_lock(&lock);
    if (!gpus[device->index].handle) {
        cublasLtHandle_t handle = NULL;
        if (blas.create(&handle) == CUBLAS_STATUS_SUCCESS) gpus[device->index].handle = handle;
        (void)cudaGetLastError();
    }
    device->blas = gpus[device->index].handle;
    pthread_mutex_unlock(&lock);
}

/* ------------------------------------------------------------------------------------------------- descriptions -- */
typedef struct product_description {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t a, b, d; /* as cuBLASLt counts: a is our B */
} product_description;

static bool well(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS;
}

/* Products of a batch, pieces of k or a pair, `apart` elements from one to the next. */
static bool describe_matrix(cublasLtMatrixLayoutOpaque_t *layout, cudaDataType type, int64_t rows, int64_t columns,
                            int64_t row, uint32_t pieces, int64_t apart) {
    if (!well(blas.layout_init(layout, sizeof *layout, type, (uint64_t)rows, (uint64_t)columns, row))) return false;
    const int32_t count = (int32_t)pieces;
    return pieces < 2 ||
           (well(blas.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count)) &&
            well(blas.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof apart)));
}

/* Elements that are k values in: k is a row's direction, or the rows'. */
static int64_t along_k(const sli_cuda_matrix *matrix, bool k_in_row, int64_t k) {
    return k_in_row ? k : k * matrix->row;
}

static bool describe_operation(cublasLtMatmulDescOpaque_t *operation, const product_key *key, const float *bias) {
    const cublasComputeType_t compute = key->math == SL_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    if (!well(blas.desc_init(operation, sizeof *operation, compute, CUDA_R_32F))) return false;
    const cublasOperation_t a = key->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = key->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (!well(blas.desc_set(operation, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a))) return false;
    if (!well(blas.desc_set(operation, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b))) return false;
    if (!key->bias) return true;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    return well(blas.desc_set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue)) &&
           well(blas.desc_set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
}

static bool describe(product_description *d, const product_key *key, const sli_cuda_product *p) {
    const cudaDataType type = key->math == SL_BF16 ? CUDA_R_16BF : key->math == SL_F16 ? CUDA_R_16F : CUDA_R_32F;
    const bool at = key->a_transposed, bt = key->b_transposed;
    const uint32_t pieces = key->pieces;
    const int64_t a_apart = p->paired ? p->a_apart : along_k(&p->a, !at, key->k);
    const int64_t b_apart = p->paired ? p->b_apart : along_k(&p->b, bt, key->k);
    return describe_operation(&d->operation, key, p->bias) &&
           describe_matrix(&d->a, type, bt ? key->k : key->n, bt ? key->n : key->k, key->b_row, pieces, b_apart) &&
           describe_matrix(&d->b, type, at ? key->m : key->k, at ? key->k : key->m, key->a_row, pieces, a_apart) &&
           describe_matrix(&d->d, key->narrow_d ? type : CUDA_R_32F, key->n, key->m, key->d_row, pieces, p->d_apart);
}

/* ---------------------------------------------------------------------------------------------------- algorithms -- */
static void fill_key(product_key *key, const sli_cuda_product *p, const sli_caps *caps) {
    memset(key, 0, sizeof *key);
    const size_t element = sli_cuda_operand_bytes(p->math);
    key->m = p->m;
    key->n = p->n;
    key->pieces = p->paired ? 2 : p->pieces > 1 ? (uint16_t)p->pieces : 1;
    key->narrow_d = p->narrow_d;
    key->hopper = caps->compute_capability / 10 == 9;
    key->k = p->paired ? p->k : p->k / key->pieces;
    key->share = (uint8_t)p->share;
    key->a_row = p->a.row;
    key->b_row = p->b.row;
    key->d_row = p->d_row;
    key->math = (int32_t)p->math;
    key->a_transposed = p->a.transposed;
    key->b_transposed = p->b.transposed;
    key->add = p->beta != 0.0f;
    key->bias = p->bias != NULL;
    key->a_align = sli_alignment(p->a.data, p->a.row, element);
    key->b_align = sli_alignment(p->b.data, p->b.row, element);
    key->d_align = sli_alignment(p->d, p->d_row, p->narrow_d ? element : sizeof(float));
    /* cuBLASLt has no preference for the bias: it is taken to be aligned as D is. */
    if (p->bias) key->d_align = sli_alignment(p->bias, key->d_align, 1);
    /* The workspace is used from its first multiple of WORKSPACE_ALIGN. */
    key->workspace = p->workspace ? p->workspace_bytes : 0;
}

enum { WORKSPACE_ALIGN = 256, ASKED = 8 };
static const uint64_t TUNED_WORKSPACE = (uint64_t)32 << 20;

static uint64_t usable_workspace(const product_key *key) {
    return key->workspace > WORKSPACE_ALIGN ? key->workspace - WORKSPACE_ALIGN : 0;
}

/* What a block of an algorithm computes, in how many pieces k is cut (a negative number: in ways of its own, stream-K), and which
 * blocks share what they read. */
enum { SHARED_K = -1 };
typedef struct cut {
    int tile, pieces, cluster;
} cut;

static cut cut_of(const cublasLtMatmulAlgo_t *algo) {
    uint32_t tile = 0;
    int32_t pieces = 0;
    uint16_t cluster = 0;
    size_t written;
    const bool known =
        well(blas.configuration(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile, &written)) &&
        well(blas.configuration(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &pieces, sizeof pieces, &written));
    if (!well(blas.configuration(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, sizeof cluster, &written)))
        cluster = CUBLASLT_CLUSTER_SHAPE_AUTO;
    return known ? cut{(int)tile, pieces, (int)cluster} : cut{-1, 0, 0};
}

static bool same_cut(cut a, cut b) {
    return a.tile == b.tile && a.pieces == b.pieces && a.cluster == b.cluster;
}

/* Blocks of all its pieces, in multiprocessors. */
static double blocks_of(const cublasLtMatmulHeuristicResult_t *result) {
    const int pieces = cut_of(&result->algo).pieces;
    return (double)result->wavesCount * (pieces > 1 ? pieces : 1);
}

static bool is_usable(const cublasLtMatmulHeuristicResult_t *result, const product_key *key) {
    return well(result->state) && result->workspaceSize <= usable_workspace(key);
}

static int find_tile(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key, int tile) {
    for (int i = 0; i < results; i++) {
        const cut at = cut_of(&result[i].algo);
        if (is_usable(&result[i], key) && at.tile == tile && at.pieces == 1) return i;
    }
    return -1;
}

/* As many blocks as multiprocessors, which clusters of blocks do not all reach, take two rounds: of 4 products of 16-bit operands that
 * had them first, those with a few blocks fewer further down, k as whole, were 9 to 25% faster (cublaslt_tiles_h200_*). */
static int fewer_blocks(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key, int first) {
    const double most = 0.99, blocks = blocks_of(&result[first]);
    const bool whole = cut_of(&result[first].algo).pieces == 1;
    if (blocks < most || blocks > 1) return first;
    for (int i = first + 1; i < results; i++)
        if (is_usable(&result[i], key) && blocks_of(&result[i]) < most && blocks_of(&result[i]) > 0.8 &&
            (!whole || cut_of(&result[i].algo).pieces == 1))
            return i;
    return first;
}

/* In tf32, of a few tiles of 128x128 (less than 0.6 of the multiprocessors have one) and a long k, larger ones whose k several blocks
 * share (stream-K: they want a workspace, and are not listed as cut in pieces) are a third faster: 700 x 1500 x 10000 takes 140 us, and 92 (cublaslt_tiles_h200_*). */
static int cut_tile(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key, int first) {
    if (result[first].wavesCount > 0.6f || cut_of(&result[first].algo).tile != CUBLASLT_MATMUL_TILE_128x128)
        return first;
    for (int i = first + 1; i < results; i++)
        if (is_usable(&result[i], key) && result[i].wavesCount > 0.8f && result[i].workspaceSize > 0 &&
            cut_of(&result[i].algo).tile == CUBLASLT_MATMUL_TILE_256x128)
            return i;
    return first;
}

/* In tf32, weights stored [k][n]: of tiles of 128x64 whose clusters are four along D's rows those that are eight, where both are listed, take 3 to 16% less
 * in five of six products, 3% more in one (cublaslt_layers_h100_2026-11-25.txt). */
static int longer_cluster(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key, int first) {
    const cut four = {CUBLASLT_MATMUL_TILE_128x64, SHARED_K, CUBLASLT_CLUSTER_SHAPE_1x4x1};
    const cut eight = {CUBLASLT_MATMUL_TILE_128x64, SHARED_K, CUBLASLT_CLUSTER_SHAPE_1x8x1}, at = cut_of(&result[first].algo);
    if (!key->hopper || key->a_transposed || key->b_transposed || !same_cut(at, four)) return first;
    for (int i = first + 1; i < results; i++)
        if (is_usable(&result[i], key) && same_cut(cut_of(&result[i].algo), eight)) return i;
    return first;
}

/* In tf32, sums over so few rows (steps by the batch) that cutting them costs a second launch, which takes as long as the first: 20 rows, 512 x 100, 4.8
 * and 2.6 us, and 3.4 whole (tails_h200_2026-11-27.txt, 5). */
enum { FEW_ROWS = 64 };
static int whole_sum(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key, int first) {
    if (cut_of(&result[first].algo).pieces < 2) return first;
    for (int i = first + 1; i < results; i++)
        if (is_usable(&result[i], key) && cut_of(&result[i].algo).pieces == 1) return i;
    return first;
}

/* In f32, weights stored [n][k], tiles for a round and more, k whole: 256x64, where it is listed, takes 0.87 to 1.00 of the time of what comes first
 * (five products of 1600 to 4096 rows, an H200: cublaslt_f32_h200_2026-11-27.txt). */
static int tall_tile(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key, int first) {
    const bool whole = cut_of(&result[first].algo).pieces == 1 && result[first].wavesCount >= 1.0f;
    const int found = key->hopper && whole && !key->a_transposed && key->b_transposed
                          ? find_tile(result, results, key, CUBLASLT_MATMUL_TILE_256x64)
                          : -1;
    return found >= 0 ? found : first;
}

/* d x in 16 bits, whose k comes first in pieces that a second launch adds up, which beside other products waits for them: whole, where that is listed with blocks for most
 * multiprocessors, three take 0.72 to 0.84 of the time alone (300 and 400 x 2048 x 8192, 400 x 2400 x 9600); with blocks for all, one as long (400 x 4096 x 16384: graph_h200_2026-11-28.txt). */
enum { STEP_ROWS = 256 };
static int whole_inputs(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key, int first) {
    for (int i = first + 1; i < results; i++)
        if (is_usable(&result[i], key) && cut_of(&result[i].algo).pieces == 1 && result[i].wavesCount > 0.7f &&
            result[i].wavesCount < 0.9f)
            return i;
    return first;
}

/* Of small products side by side that with the longest k: blocks for its share of the multiprocessors, so that others begin at once; -1: none that is listed has so few, or is near. What is listed
 * first has blocks for all of them. Two layers of 200 units with 20 rows and steps: 1600 x 400, 1600 x 200 and 400 x 200 take 8 us so, 17 before (graph_h200_2026-11-28.txt, 3). Of larger ones few blocks end later. */
static int blocks_of_share(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key) {
    const double most = 7e8, products = (double)key->m * (double)key->n * (double)key->k, share = 1.05 * key->share / 100;
    int best = -1;
    for (int i = 0; i < results && products <= most; i++) {
        const bool fits = is_usable(&result[i], key) && cut_of(&result[i].algo).pieces == 1 && result[i].wavesCount <= share;
        if (fits && result[i].wavesCount >= 0.5 * share && (best < 0 || result[i].wavesCount > result[best].wavesCount)) best = i;
    }
    return best;
}

/* Of 16-bit operands and sums in f32 cuBLASLt 13.1 puts large tiles first, which on an H200 are slower than smaller ones further
 * down: of 33 products of 105 that had both, by 0 to 25% (cublaslt_tiles_h200_*); and sometimes narrow ones, of 7 products by 4 to
 * 28% (cublaslt_steps_h200_*); of 160 looked at again, with D only written too, 9 by 2 to 35% (short_h200_2026-11-23.txt). Two rounds of 192x192
 * are slower than others where D is added to, and faster where it is written. `first`: the first that fits. */
static int better_tile(const cublasLtMatmulHeuristicResult_t *result, int results, const product_key *key, int first) {
    enum { INSTEAD = 3 };
    static const struct {
        int tile;
        float rounds; /* from so many on */
        int instead[INSTEAD];
    } better[] = {{CUBLASLT_MATMUL_TILE_128x256, 0, {CUBLASLT_MATMUL_TILE_128x128}},
                  {CUBLASLT_MATMUL_TILE_256x128, 0, {CUBLASLT_MATMUL_TILE_128x128}},
                  {CUBLASLT_MATMUL_TILE_128x256, 12, {CUBLASLT_MATMUL_TILE_128x160}},
                  {CUBLASLT_MATMUL_TILE_256x128, 12, {CUBLASLT_MATMUL_TILE_128x160}},
                  {CUBLASLT_MATMUL_TILE_224x128, 0, {CUBLASLT_MATMUL_TILE_128x128}},
                  {CUBLASLT_MATMUL_TILE_224x64, 0, {CUBLASLT_MATMUL_TILE_128x128}},
                  {CUBLASLT_MATMUL_TILE_64x224, 0, {CUBLASLT_MATMUL_TILE_128x128}},
                  {CUBLASLT_MATMUL_TILE_144x128, 0, {CUBLASLT_MATMUL_TILE_128x80}},
                  {CUBLASLT_MATMUL_TILE_192x160, 0, {CUBLASLT_MATMUL_TILE_128x80}},
                  {CUBLASLT_MATMUL_TILE_256x80, 0, {CUBLASLT_MATMUL_TILE_128x80}},
                  {CUBLASLT_MATMUL_TILE_128x80, 0, {CUBLASLT_MATMUL_TILE_128x160}},
                  {CUBLASLT_MATMUL_TILE_192x192,
                   0,
                   {CUBLASLT_MATMUL_TILE_96x128, CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_128x128}},
                  {CUBLASLT_MATMUL_TILE_320x128, 0, {CUBLASLT_MATMUL_TILE_128x160, CUBLASLT_MATMUL_TILE_96x128}}};
    if (key->math == SL_TF32 && key->a_transposed && key->k <= FEW_ROWS) return whole_sum(result, results, key, first);
    if (key->math == SL_TF32) return cut_tile(result, results, key, longer_cluster(result, results, key, first));
    if (key->math == SL_F32) return tall_tile(result, results, key, first);
    if (key->math != SL_BF16 && key->math != SL_F16) return first;
    const int shared = key->share > 0 ? blocks_of_share(result, results, key) : -1;
    if (shared >= 0) return shared;
    const cut at = cut_of(&result[first].algo);
    const float rounds = result[first].wavesCount;
    if (at.pieces > 1 && !key->a_transposed && !key->b_transposed && key->m > STEP_ROWS)
        return whole_inputs(result, results, key, first);
    if (at.tile == CUBLASLT_MATMUL_TILE_192x192 && !key->add && !key->bias && rounds <= 2.0f) return first;
    for (size_t k = 0; k < sizeof better / sizeof *better && at.pieces == 1; k++)
        for (int i = 0; i < INSTEAD && better[k].tile == at.tile && rounds >= better[k].rounds; i++) {
            const int found = better[k].instead[i] ? find_tile(result, results, key, better[k].instead[i]) : -1;
            if (found >= 0) return found;
        }
    return fewer_blocks(result, results, key, first);
}

/* The same algorithm with other tiles or clusters, where cuBLASLt puts these first: of 298 products of layers in tf32 and 244 in 16 bits on
 * an H100 the 11 of the first three lines take 8 to 28% less so, the 6 of the next 2 to 6%, the 5 of the last two 12 to 14%
 * (cublaslt_layers_h100_2026-11-25.txt; others, of 512 units, were faster alone and made layers slower). 1x2: blocks that are next to each
 * other along D's rows have the same weights, which tf32 that does not lie along the sum transposes in shared memory. */
enum {
    TILE_32x64 = CUBLASLT_MATMUL_TILE_32x64,
    TILE_64x32 = CUBLASLT_MATMUL_TILE_64x32,
    TILE_64x64 = CUBLASLT_MATMUL_TILE_64x64,
    TILE_128x64 = CUBLASLT_MATMUL_TILE_128x64,
    TILE_128x128 = CUBLASLT_MATMUL_TILE_128x128,
    TILE_256x128 = CUBLASLT_MATMUL_TILE_256x128,
    ALONE = CUBLASLT_CLUSTER_SHAPE_1x1x1,
    BESIDE_1x2 = CUBLASLT_CLUSTER_SHAPE_1x2x1,
    BESIDE_2x1 = CUBLASLT_CLUSTER_SHAPE_2x1x1,
    BESIDE_2x2 = CUBLASLT_CLUSTER_SHAPE_2x2x1
};
static const struct {
    bool narrow, a_transposed; /* 16 bits, or tf32; B is not */
    cut from, to;
} exchanges[] = {
    {false, false, {TILE_128x128, SHARED_K, BESIDE_2x1}, {TILE_128x128, SHARED_K, BESIDE_1x2}},
    {false, false, {TILE_128x128, SHARED_K, ALONE}, {TILE_128x128, SHARED_K, BESIDE_1x2}},
    {false, false, {TILE_128x64, SHARED_K, BESIDE_2x1}, {TILE_128x64, SHARED_K, BESIDE_1x2}},
    {false, true, {TILE_128x128, SHARED_K, BESIDE_2x1}, {TILE_256x128, SHARED_K, ALONE}},
    {true, true, {TILE_64x32, 1, BESIDE_1x2}, {TILE_64x64, 1, BESIDE_2x2}},
    {true, true, {TILE_32x64, 1, BESIDE_2x1}, {TILE_64x64, 1, BESIDE_2x2}},
};

static void exchange(cublasLtHandle_t handle, const product_key *key, product_description *d,
                     cublasLtMatmulAlgo_t *algo) {
    const bool narrow = key->math == SL_BF16 || key->math == SL_F16, at = key->a_transposed;
    const cut from = cut_of(algo);
    /* what is checked is not whether addresses and rows are aligned as the other tile wants them */
    const bool aligned = key->a_align == 16 && key->b_align == 16 && key->d_align == 16;
    if (!aligned || key->b_transposed || key->pieces > 1 || (!narrow && key->math != SL_TF32)) return;
    for (const auto &e : exchanges) {
        if (e.narrow != narrow || e.a_transposed != at || !same_cut(e.from, from)) continue;
        const uint32_t tile = (uint32_t)e.to.tile;
        const uint16_t cluster = (uint16_t)e.to.cluster;
        cublasLtMatmulAlgo_t other = *algo;
        cublasLtMatmulHeuristicResult_t result = {};
        if (well(blas.configure(&other, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile, sizeof tile)) &&
            well(blas.configure(&other, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, sizeof cluster)) &&
            well(blas.check(handle, &d->operation, &d->a, &d->b, &d->d, &d->d, &other, &result)) &&
            result.workspaceSize <= usable_workspace(key))
            *algo = other;
        return;
    }
}

/* The first of cuBLASLt's algorithms that is content with the workspace, or a better one; false: there is none. `promised`:
 * bytes of workspace that cuBLASLt is told of. */
static bool ask(cublasLtHandle_t handle, const product_key *key, product_description *d, uint64_t promised,
                cublasLtMatmulAlgo_t *algo) {
    cublasLtMatmulPreferenceOpaque_t preference;
    if (!well(blas.preference_init(&preference, sizeof preference))) return false;
    /* "In place" adds into D in the order in which blocks arrive at their turn, and rounds to D's type: left out. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        const void *value;
        size_t bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &promised, sizeof promised},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->b_align, sizeof key->b_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->a_align, sizeof key->a_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->d_align, sizeof key->d_align},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->d_align, sizeof key->d_align},
    };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        if (!well(blas.preference_set(&preference, wishes[i].which, wishes[i].value, wishes[i].bytes))) return false;
    cublasLtMatmulHeuristicResult_t result[ASKED];
    int results = 0;
    if (!well(blas.heuristic(handle, &d->operation, &d->a, &d->b, &d->d, &d->d, &preference, ASKED, result, &results)))
        return false;
    for (int i = 0; i < results; i++) {
        if (!is_usable(&result[i], key)) continue;
        *algo = result[better_tile(result, results, key, i)].algo;
        if (key->hopper) exchange(handle, key, d, algo);
        return true;
    }
    return false;
}

/* cuBLASLt 13.1 chooses well on an H200 only when told of 32 MiB: told of 256 bytes less, it takes for 20 x 1500 x 6000 in
 * bf16 a kernel of 162 us, not 14 (bench/results). So it is told of 32 MiB, and what needs more than there is is passed over. */
static bool find(cublasLtHandle_t handle, const product_key *key, product_description *d, cublasLtMatmulAlgo_t *algo) {
    const uint64_t usable = usable_workspace(key);
    if (ask(handle, key, d, usable > TUNED_WORKSPACE ? usable : TUNED_WORKSPACE, algo)) return true;
    return ask(handle, key, d, usable, algo);
}

static size_t bucket_of(const product_key *key) {
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *key; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return (size_t)(hash >> 20) % BUCKETS;
}

/* The algorithm of this key on this GPU; false: our own kernel multiplies. */
static bool choose(int index, const product_key *key, product_description *d, cublasLtMatmulAlgo_t *algo) {
    pthread_mutex_lock(&lock);
    choice **bucket = &gpus[index].buckets[bucket_of(key)];
    choice *at = *bucket;
    while (at && memcmp(&at->key, key, sizeof *key) != 0) at = at->next;
    if (!at) {
        choice made;
        memset(&made, 0, sizeof made);
        made.key = *key;
        made.found = find(gpus[index].handle, key, d, &made.algo);
        /* Without memory for the note it is asked again next time, with the same answer. */
        at = (choice *)malloc(sizeof *at);
        if (at) {
            made.next = *bucket;
            *at = made;
            *bucket = at;
        } else {
            *algo = made.algo;
            pthread_mutex_unlock(&lock);
            return made.found;
        }
    }
    *algo = at->algo;
    const bool found = at->found;
    pthread_mutex_unlock(&lock);
    return found;
}

/* ------------------------------------------------------------------------------------------------------ multiply -- */
/* true: cuBLASLt took it, or failed and said so. */
static bool multiply_blas(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    const sli_caps *caps = sli_cuda_caps_of(queue);
    const int index = caps->index;
    const cublasLtHandle_t handle = (cublasLtHandle_t)queue->device->blas;
    if (!handle) return false;
    product_key key;
    fill_key(&key, p, caps);
    product_description d;
    if (!describe(&d, &key, p)) return false;
    cublasLtMatmulAlgo_t algo;
    if (!choose(index, &key, &d, &algo)) return false;
    const float one = 1.0f, beta = key.add ? 1.0f : 0.0f;
    const size_t bytes = (size_t)usable_workspace(&key);
    void *workspace =
        bytes ? (void *)(((uintptr_t)p->workspace + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN) : NULL;
    const cublasStatus_t status = blas.matmul(handle, &d.operation, &one, p->b.data, &d.a, p->a.data, &d.b, &beta, p->d,
                                              &d.d, p->d, &d.d, &algo, workspace, bytes, stream);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) { /* refused late, before any work */
        (void)cudaGetLastError();
        return false;
    }
    if (!SLI_CU(queue, cudaGetLastError())) return true;
    if (!well(status))
        sli_cuda_fail(
            queue, SL_ERR_DEVICE,
            "cublasLtMatmul failed on GPU %d: %s (m %lld, n %lld, k %lld, %s); please report it together with "
            "this sentence",
            index, blas.status_text(status), (long long)p->m, (long long)p->n, (long long)p->k,
            p->math == SL_BF16   ? "bf16"
            : p->math == SL_F16  ? "f16"
            : p->math == SL_TF32 ? "tf32"
                                 : "f32");
    return true;
}

static int matrices_of(const sli_cuda_product *p) {
    return p->paired ? 2 : 1;
}

/* Columns that the product is given in its pad; n: it goes into D as it is. */
static int64_t padded_columns(sli_queue *queue, const sli_cuda_product *p) {
    if (!p->pad || p->bias) return p->n;
    const int64_t columns = sli_cuda_pad_columns(sli_cuda_caps_of(queue), p->math, p->m, p->n, p->k);
    const bool there = p->b.transposed || columns <= p->b.row;
    const size_t bytes = (size_t)matrices_of(p) * (size_t)sli_cuda_pad_rows(p->m) * (size_t)columns * sizeof(float);
    return there && bytes <= p->pad_bytes ? columns : p->n;
}

/* Rows of D that the product is given in its pad: in 16 bits whole eights of A's columns, which its rows have where they and the address are aligned. */
static int64_t padded_rows(const sli_cuda_product *p) {
    const bool narrow = p->math == SL_BF16 || p->math == SL_F16;
    const bool whole = p->a.transposed && narrow && sli_alignment(p->a.data, p->a.row, 2) == 16;
    return whole && sli_cuda_pad_rows(p->m) <= p->a.row ? sli_cuda_pad_rows(p->m) : p->m;
}

/* pad[m][columns] = A B, D = beta D + pad, of a pair both. Rows of the pad beyond m are sums of what lies behind A's columns, anything, and stay there. */
static void multiply_padded(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p, int64_t columns) {
    sli_cuda_product wide = *p;
    wide.n = columns;
    wide.m = padded_rows(p);
    wide.d = p->pad;
    wide.narrow_d = p->narrow_d && p->beta == 0.0f; /* rounded once, here or by the move */
    wide.d_row = columns;
    wide.d_apart = wide.m * columns;
    wide.beta = 0.0f;
    wide.pad = NULL;
    sli_cuda_multiply(queue, stream, &wide);
    const sli_cuda_move move = {p->narrow_d ? p->math : SL_F32,
                                wide.narrow_d ? p->math : SL_F32,
                                p->d,
                                p->d_row,
                                p->d_apart,
                                wide.d,
                                columns,
                                wide.d_apart,
                                p->m,
                                p->n,
                                matrices_of(p),
                                p->beta != 0.0f};
    sli_cuda_move_rows(queue, stream, &move);
}

/* All columns but four by cuBLASLt, into D itself, which no pad and no copy costs. */
static void multiply_but_four(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    sli_cuda_product most = *p;
    most.n = p->n / 8 * 8;
    most.pad = NULL;
    sli_few_columns_multiply(queue, stream, p);
    sli_cuda_multiply(queue, stream, &most);
}

/* Split where that pays, else exactly. */
static void multiply_f32x3(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    if (sli_split_fits(queue, p)) {
        sli_split_multiply(queue, stream, p);
        return;
    }
    sli_cuda_product exact = *p;
    exact.math = SL_F32;
    sli_cuda_multiply(queue, stream, &exact);
}

static void multiply_pieces(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    if (p->math != SL_F32X3 && multiply_blas(queue, stream, p)) return;
    const size_t element = sli_cuda_operand_bytes(p->math);
    sli_cuda_product piece = *p;
    piece.pieces = 1;
    piece.k = p->k / p->pieces;
    for (int i = 0; i < p->pieces; i++) {
        const int64_t first = i * piece.k;
        piece.a.data = (const char *)p->a.data + (size_t)along_k(&p->a, !p->a.transposed, first) * element;
        piece.b.data = (const char *)p->b.data + (size_t)along_k(&p->b, p->b.transposed, first) * element;
        piece.d = sli_cuda_d_at(p, i * p->d_apart);
        sli_cuda_multiply(queue, stream, &piece);
    }
}

static void multiply_pair(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *p) {
    const int64_t columns = p->k > 0 ? padded_columns(queue, p) : p->n;
    if (columns != p->n) {
        multiply_padded(queue, stream, p, columns);
        return;
    }
    if (p->k > 0 && multiply_blas(queue, stream, p)) return;
    const int64_t element = (int64_t)sli_cuda_operand_bytes(p->math);
    sli_cuda_product one = *p;
    one.paired = false;
    sli_cuda_multiply(queue, stream, &one);
    one.a.data = (const char *)p->a.data + p->a_apart * element;
    one.b.data = (const char *)p->b.data + p->b_apart * element;
    one.d = sli_cuda_d_at(p, p->d_apart);
    sli_cuda_multiply(queue, stream, &one);
}

extern "C" void sli_cuda_multiply(sli_queue *queue, cudaStream_t stream, const sli_cuda_product *product) {
    if (sli_cuda_failed(queue) || product->m <= 0 || product->n <= 0) return;
    if (product->k <= 0 && product->beta != 0.0f && !product->bias) return;
    if (product->paired) {
        multiply_pair(queue, stream, product);
        return;
    }
    if (product->pieces > 1) {
        multiply_pieces(queue, stream, product);
        return;
    }
    if (product->a_floats) { /* where sli_cuda_is_small */
        sli_small_multiply(queue, stream, product);
        return;
    }
    if (sli_few_rows_fit(product)) {
        sli_few_rows_multiply(queue, stream, product);
        return;
    }
    if (sli_small_fit(product)) {
        sli_small_multiply(queue, stream, product);
        return;
    }
    if (product->math == SL_F32X3) {
        multiply_f32x3(queue, stream, product);
        return;
    }
    const int64_t columns = padded_columns(queue, product);
    if (columns != product->n && product->k > 0 && sli_few_columns_fit(product)) {
        multiply_but_four(queue, stream, product);
        return;
    }
    if (columns != product->n) {
        multiply_padded(queue, stream, product, columns);
        return;
    }
    if (product->k > 0 && multiply_blas(queue, stream, product)) return;
    sli_tiles_multiply(queue, stream, product);
}
