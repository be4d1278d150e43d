/* cuda:embed. Forward gathers rows of the table. For backward the positions are sorted by token, stably, from the last step to the
 * first, few of them in forward's launch, which nobody waits for; one warp adds up each run of equal tokens: d table[token] gets its terms in the
 * order in which the CPU adds them, so segments of time change no bit. */
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/elements_layout.h"
#include "backend/cuda/updates_layout.h"

/* -------------------------------------------------------------------------------------------------------- sort --
 * Position k of the order of adding is row (T - 1 - k / B) B + k % B. */
__device__ __forceinline__ uint32_t row_of(size_t position, size_t rows, size_t batch) {
    const size_t step = sli_divide(position, batch);
    return (uint32_t)(rows - (step + 1) * batch + (position - step * batch));
}

/* The key of a position: its token, or the vocabulary's size for anything outside. */
__device__ __forceinline__ uint32_t key_of(int32_t token, uint32_t vocabulary) {
    return (uint32_t)token < vocabulary ? (uint32_t)token : vocabulary;
}

/* Few positions: where each goes is counted, by RANK_LANES threads: those with a smaller token, or the same and before it. Every
 * block has all tokens in shared memory. */
enum { RANK_LANES = 8, RANK_POSITIONS = SLI_THREADS / RANK_LANES };
struct sort_few {
    uint32_t rows, batch;
    unsigned blocks; /* 0: nothing is sorted */
    int32_t *tokens; /* = [rows], sorted */
    uint32_t *order; /* = [rows], their rows */
};
__device__ __forceinline__ void sort_block(const sort_few &few, const int32_t *tokens, uint32_t vocabulary) {
    extern __shared__ uint32_t keys[];
    const uint32_t rows = few.rows, batch = few.batch;
    for (uint32_t i = threadIdx.x; i < rows; i += SLI_THREADS)
        keys[i] = key_of(tokens[row_of(i, rows, batch)], vocabulary);
    __syncthreads();
    const uint32_t position = blockIdx.x * RANK_POSITIONS + threadIdx.x / RANK_LANES, lane = threadIdx.x % RANK_LANES;
    const uint32_t own = position < rows ? keys[position] : 0;
    uint32_t before = 0;
    for (uint32_t i = lane; i < rows; i += RANK_LANES) before += keys[i] < own || (keys[i] == own && i < position);
    before = sli_warp_sum(before, RANK_LANES);
    if (lane != 0 || position >= rows) return;
    few.tokens[before] = (int32_t)own;
    few.order[before] = row_of(position, rows, batch);
}

/* ----------------------------------------------------------------------------------------------------- forward -- */
/* Tokens that the host gave were checked there; what another library owns may hold anything: such rows become NaN, so that it is
 * seen, and give no gradient. y[row] = table[token]; `width` packs of N floats a row. The first blocks sort few positions for backward. */
template <int N>
__global__ void __launch_bounds__(SLI_THREADS) embed_gather(const int32_t *tokens, uint32_t vocabulary, const float *table, float *y,
                                                            size_t rows, size_t width, sort_few few) {
    if (blockIdx.x < few.blocks) {
        sort_block(few, tokens, vocabulary);
        return;
    }
    const size_t first = (size_t)(blockIdx.x - few.blocks) * blockDim.x + threadIdx.x;
    for (size_t i = first; i < rows * width; i += (size_t)(gridDim.x - few.blocks) * blockDim.x) {
        const size_t row = sli_divide(i, width), column = i - row * width;
        const uint32_t token = (uint32_t)tokens[row];
        sli_pack<N> value;
#pragma unroll
        for (int n = 0; n < N; n++) value.v[n] = NAN;
        if (token < vocabulary) value = sli_load<N>(table, (size_t)token * width + column);
        sli_store<N>(y, i, value);
    }
}

/* Where forward of few positions leaves them sorted, and backward finds them. */
static sort_few sort_few_of(const sli_call *call) {
    const size_t rows = sli_call_rows(call);
    const sli_sort_layout layout = sli_sort_layout_of(rows, call->problem.inputs);
    sort_few few = {};
    if (!call->training || !call->saved || layout.passes > 0) return few;
    few.rows = (uint32_t)rows;
    few.batch = (uint32_t)call->problem.batch;
    few.blocks = (few.rows + RANK_POSITIONS - 1) / RANK_POSITIONS;
    few.tokens = (int32_t *)((char *)call->saved + layout.tokens[0]);
    few.order = (uint32_t *)((char *)call->saved + layout.rows[0]);
    return few;
}

extern "C" void sli_gpu_embed_forward(const sli_call *call) {
    const size_t rows = sli_call_rows(call), width = (size_t)call->problem.units;
    if (!sli_begin(call, SLI_PHASE_OTHER) || rows * width == 0) return;
    const int32_t *tokens = (const int32_t *)call->in[SLI_EMBED_TOKENS];
    const float *table = (const float *)call->param[SLI_EMBED_TABLE];
    float *y = (float *)call->out[SLI_EMBED_Y];
    const uint32_t vocabulary = (uint32_t)call->problem.inputs;
    const bool vectors = width % 4 == 0 && sli_aligned(table) && sli_aligned(y);
    const sort_few few = sort_few_of(call);
    const unsigned blocks = few.blocks + sli_blocks(rows * width / (vectors ? 4 : 1));
    const size_t shared = few.blocks > 0 ? rows * sizeof(uint32_t) : 0;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    if (vectors)
        embed_gather<4><<<blocks, SLI_THREADS, shared, stream>>>(tokens, vocabulary, table, y, rows, width / 4, few);
    else
        embed_gather<1><<<blocks, SLI_THREADS, shared, stream>>>(tokens, vocabulary, table, y, rows, width, few);
    SLI_LAUNCHED(call->queue, "embed_gather");
}

/* One pass of a radix sort by 8 bits, the lowest first. tokens_in NULL: the first pass reads the tokens in their order. */
struct sort_pass {
    const int32_t *tokens;
    const int32_t *tokens_in;
    const uint32_t *rows_in;
    int32_t *tokens_out;
    uint32_t *rows_out;
    uint32_t *counts; /* [SLI_SORT_DIGITS][tiles]: of each digit in each tile, then where the first of them goes */
    size_t rows, batch, tiles;
    uint32_t vocabulary;
    int shift;
};

__device__ __forceinline__ void read_position(const sort_pass &p, size_t k, uint32_t *token, uint32_t *row) {
    *row = p.tokens_in ? p.rows_in[k] : row_of(k, p.rows, p.batch);
    *token = p.tokens_in ? (uint32_t)p.tokens_in[k] : key_of(p.tokens[*row], p.vocabulary);
}

enum { SORT_THREADS = 256, SORT_WARPS = SORT_THREADS / 32, SORT_EACH = SLI_SORT_TILE / SORT_THREADS };
static_assert((int)SORT_THREADS == (int)SLI_SORT_DIGITS, "a thread a digit");

/* counts[digit][tile] = ; integers, so the order of counting does not matter. */
__global__ void __launch_bounds__(SORT_THREADS) sort_count(sort_pass p) {
    __shared__ uint32_t counts[SLI_SORT_DIGITS];
    counts[threadIdx.x] = 0;
    __syncthreads();
    const size_t first = (size_t)blockIdx.x * SLI_SORT_TILE;
    for (int i = threadIdx.x; i < SLI_SORT_TILE && first + i < p.rows; i += SORT_THREADS) {
        uint32_t token, row;
        read_position(p, first + i, &token, &row);
        atomicAdd(&counts[token >> p.shift & (SLI_SORT_DIGITS - 1)], 1u);
    }
    __syncthreads();
    p.counts[(size_t)threadIdx.x * p.tiles + blockIdx.x] = counts[threadIdx.x];
}

/* counts = sum of those before, by one block: each thread has its part of the array. */
enum { SCAN_THREADS = 1024 };
__global__ void __launch_bounds__(SCAN_THREADS) sort_scan(uint32_t *counts, size_t count) {
    __shared__ uint32_t sums[SCAN_THREADS];
    const size_t part = (count + SCAN_THREADS - 1) / SCAN_THREADS, start = threadIdx.x * part;
    const size_t end = start + part < count ? start + part : count;
    uint32_t sum = 0;
    for (size_t i = start; i < end; i++) sum += counts[i];
    sums[threadIdx.x] = sum;
    for (int apart = 1; apart < SCAN_THREADS; apart *= 2) {
        __syncthreads();
        const uint32_t before = (int)threadIdx.x >= apart ? sums[threadIdx.x - apart] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
    }
    uint32_t before = sums[threadIdx.x] - sum; /* its own entry */
    for (size_t i = start; i < end; i++) {
        const uint32_t here = counts[i];
        counts[i] = before;
        before += here;
    }
}

/* Each warp has SORT_EACH * 32 neighbouring positions of the tile and goes through them in order. */
__global__ void __launch_bounds__(SORT_THREADS) sort_scatter(sort_pass p) {
    __shared__ uint32_t counts[SORT_WARPS][SLI_SORT_DIGITS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int w = 0; w < SORT_WARPS; w++) counts[w][threadIdx.x] = 0;
    __syncthreads();
    const size_t first = (size_t)blockIdx.x * SLI_SORT_TILE + (size_t)(warp * SORT_EACH * 32 + lane);
    uint32_t token[SORT_EACH], row[SORT_EACH], rank[SORT_EACH];
#pragma unroll
    for (int r = 0; r < SORT_EACH; r++) {
        const bool live = first + r * 32 < p.rows;
        token[r] = row[r] = rank[r] = 0;
        if (live) read_position(p, first + r * 32, &token[r], &row[r]);
        const uint32_t digit = live ? token[r] >> p.shift & (SLI_SORT_DIGITS - 1) : SLI_SORT_DIGITS;
        const uint32_t peers = __match_any_sync(0xffffffffu, digit);
        const int before = __popc(peers & ((1u << lane) - 1));
        const uint32_t earlier = live ? counts[warp][digit] : 0;
        rank[r] = earlier + before;
        __syncwarp();
        if (live && before == 0) counts[warp][digit] = earlier + __popc(peers);
        __syncwarp();
    }
    __syncthreads();
    uint32_t at = p.counts[(size_t)threadIdx.x * p.tiles + blockIdx.x];
    for (int w = 0; w < SORT_WARPS; w++) {
        const uint32_t here = counts[w][threadIdx.x];
        counts[w][threadIdx.x] = at;
        at += here;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < SORT_EACH; r++) {
        if (first + r * 32 >= p.rows) continue;
        const uint32_t to = counts[warp][token[r] >> p.shift & (SLI_SORT_DIGITS - 1)] + rank[r];
        p.tokens_out[to] = (int32_t)token[r];
        p.rows_out[to] = row[r];
    }
}

static void launch_passes(const sli_call *call, const sli_sort_layout *layout, const int32_t *tokens) {
    char *scratch = (char *)call->scratch;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    for (int k = 0; k < layout->passes; k++) {
        const int from = k % 2, to = 1 - from;
        sort_pass pass;
        pass.tokens = tokens;
        pass.tokens_in = k > 0 ? (const int32_t *)(scratch + layout->tokens[from]) : NULL;
        pass.rows_in = (const uint32_t *)(scratch + layout->rows[from]);
        pass.tokens_out = (int32_t *)(scratch + layout->tokens[to]);
        pass.rows_out = (uint32_t *)(scratch + layout->rows[to]);
        pass.counts = (uint32_t *)(scratch + layout->counts);
        pass.rows = layout->positions;
        pass.batch = (size_t)call->problem.batch;
        pass.tiles = layout->tiles;
        pass.vocabulary = (uint32_t)call->problem.inputs;
        pass.shift = 8 * k;
        sort_count<<<(unsigned)layout->tiles, SORT_THREADS, 0, stream>>>(pass);
        SLI_LAUNCHED(call->queue, "sort_count");
        sort_scan<<<1, SCAN_THREADS, 0, stream>>>(pass.counts, layout->tiles * SLI_SORT_DIGITS);
        SLI_LAUNCHED(call->queue, "sort_scan");
        sort_scatter<<<(unsigned)layout->tiles, SORT_THREADS, 0, stream>>>(pass);
        SLI_LAUNCHED(call->queue, "sort_scatter");
    }
}

/* ---------------------------------------------------------------------------------------------------- backward -- */
/* The packs of 32 * N columns at `column` of dy's rows given by the lanes' `row`, the first `count` of them, in order. */
template <int N>
__device__ __forceinline__ void add_rows(sli_pack<N> &sum, const float *dy, uint32_t row, int count, size_t width,
                                         size_t column, bool live) {
    enum { AHEAD = 8 };
    for (int i = 0; i < count; i += AHEAD) {
        sli_pack<N> term[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const size_t from = __shfl_sync(0xffffffffu, row, (i + k) % 32);
            if (live && i + k < count) term[k] = sli_load<N>(dy, from * width + column);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int n = 0; n < N; n++)
                if (live && i + k < count) sum.v[n] += term[k].v[n];
    }
}

enum { ADD_WARPS = SLI_THREADS / 32 };

/* Slices of all gradients that hold a row of the table, of `width` elements: sli_call.touched. */
struct marks {
    uint8_t *touched; /* or NULL */
    size_t first, width;
};
__device__ __forceinline__ void mark_row(const marks &m, size_t token, int lane) {
    const size_t begin = m.first + token * m.width, end = begin + m.width;
    if (!m.touched || m.width == 0) return;
    for (size_t slice = begin / SLI_NORM_SLICE + lane; slice * SLI_NORM_SLICE < end; slice += 32) m.touched[slice] = 1;
}

/* d table[token] += its rows of dy. The warp of a run's first position adds the run, 32 packs of N columns at a time; `width`
 * packs a row. */
template <int N>
__global__ void __launch_bounds__(SLI_THREADS)
    embed_add(const int32_t *tokens, uint32_t vocabulary, const uint32_t *rows, size_t count, const float *dy,
              float *table, size_t width, marks mark) {
    const size_t start = (size_t)blockIdx.x * ADD_WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (start >= count) return;
    const int32_t token = tokens[start];
    if ((uint32_t)token >= vocabulary) return;
    if (start > 0 && tokens[start - 1] == token) return;
    if (blockIdx.y == 0) mark_row(mark, (size_t)token, lane);
    for (size_t tile = blockIdx.y; tile * 32 < width; tile += gridDim.y) {
        const size_t column = tile * 32 + lane, at = (size_t)token * width + column;
        const bool live = column < width;
        sli_pack<N> sum;
        if (live) sum = sli_load<N>(table, at);
        for (size_t k = start;; k += 32) {
            const bool inside = k + lane < count;
            const uint32_t row = inside ? rows[k + lane] : 0;
            const uint32_t same = __ballot_sync(0xffffffffu, inside && tokens[k + lane] == token);
            const int run = same == 0xffffffffu ? 32 : __ffs((int)~same) - 1;
            add_rows<N>(sum, dy, row, run, width, column, live);
            if (run < 32) break;
        }
        if (live) sli_store<N>(table, at, sum);
    }
}

extern "C" void sli_gpu_embed_backward(const sli_call *call) {
    const float *dy = (const float *)call->d_out[SLI_EMBED_Y];
    float *table = (float *)call->d_param[SLI_EMBED_TABLE];
    const size_t rows = sli_call_rows(call), width = (size_t)call->problem.units;
    if (!sli_begin(call, SLI_PHASE_OTHER) || !dy || !table || rows * width == 0) return;
    const sli_sort_layout layout = sli_sort_layout_of(rows, call->problem.inputs);
    const int result = sli_sort_result(&layout);
    const sort_few few = sort_few_of(call);
    const int32_t *tokens = few.blocks > 0 ? few.tokens : (int32_t *)((char *)call->scratch + layout.tokens[result]);
    const uint32_t *order = few.blocks > 0 ? few.order : (uint32_t *)((char *)call->scratch + layout.rows[result]);
    if (layout.passes > 0) launch_passes(call, &layout, (const int32_t *)call->in[SLI_EMBED_TOKENS]);
    const bool vectors = width % 4 == 0 && sli_aligned(dy) && sli_aligned(table);
    const size_t packs = vectors ? width / 4 : width, tiles = (packs + 31) / 32;
    const dim3 grid((unsigned)((rows + ADD_WARPS - 1) / ADD_WARPS), (unsigned)(tiles < 65535 ? tiles : 65535));
    const uint32_t vocabulary = (uint32_t)call->problem.inputs;
    const cudaStream_t stream = sli_cuda_stream(call->queue);
    const marks mark = {call->touched, (size_t)call->first_element, width};
    if (vectors)
        embed_add<4><<<grid, SLI_THREADS, 0, stream>>>(tokens, vocabulary, order, rows, dy, table, packs, mark);
    else
        embed_add<1><<<grid, SLI_THREADS, 0, stream>>>(tokens, vocabulary, order, rows, dy, table, packs, mark);
    SLI_LAUNCHED(call->queue, "embed_add");
}
