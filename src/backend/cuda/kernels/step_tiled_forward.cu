/* cuda:step, tiled forward steps: a step's recurrent product and its cells in one launch, in f32, of many rows. R lies packed as blocks of
 * units want it, [block][k][gate][unit]; d h' as [unit][row], which each step writes for the next one beside what else it leaves. */
#include "backend/cuda/kernels/step_tiled.cuh"

typedef struct tiled_forward_args {
    step_forward_args step;
    const float *r;   /* [blocks][k][gates][TILED_UNITS] */
    const float *h_t; /* [k][h_row] d h' */
    float *h_t_to;    /* = the same of d h */
    int64_t h_row;
    int k; /* lines beyond H are zeros in both */
} tiled_forward_args;

/* ---------------------------------------------------------------------------------------------------- cells --
 * V units of one row from `j` on: what is loaded while sums meet, and the end, with sums[gate][4] from the unit's own on. */
template <int V_, bool PLAIN> struct tiled_lstm {
    enum { GATES = 4, V = V_ };
    float z[4][V], c[V], h_old[V];

    __device__ __forceinline__ void load(const step_forward_args &a, int row, int j) {
#pragma unroll
        for (int g = 0; g < 4; g++) step_load<V>(z[g], a.u + (size_t)row * a.k.us + (size_t)g * a.k.H + j);
        step_load<V>(c, a.c_from + (size_t)row * a.k.H + j);
        step_load_or_zero<V>(h_old, PLAIN ? nullptr : a.h_from, (size_t)row * a.h_from_row + j);
    }
    __device__ __forceinline__ void finish(const step_forward_args &a, int row, int j, unsigned flags,
                                           float (&s)[4][V], float (&h)[V]) {
        float m[V];
        step_lstm_cells<V, PLAIN>(a, row, j, flags, z, s, c, h_old, h, m);
    }
};

template <int V_, bool PLAIN> struct tiled_gru {
    enum { GATES = 3, V = V_ };
    float u[3][V], bias[V], h_old[V];

    __device__ __forceinline__ void load(const step_forward_args &a, int row, int j) {
#pragma unroll
        for (int g = 0; g < 3; g++) step_load<V>(u[g], a.u + (size_t)row * a.k.us + (size_t)g * a.k.H + j);
        step_load_or_zero<V>(bias, a.bias_n, (size_t)j);
        step_load<V>(h_old, a.h_from + (size_t)row * a.h_from_row + j);
    }
    __device__ __forceinline__ void finish(const step_forward_args &a, int row, int j, unsigned flags,
                                           float (&s)[3][V], float (&h)[V]) {
        step_gru_cells<V, PLAIN>(a, row, j, flags, u, s, bias, h_old, h);
    }
};

/* ------------------------------------------------------------------------------------------------------- kernel -- */
/* The lines of u that the block's cells read, into L2: nobody waits for them. */
template <class cut>
static __device__ __forceinline__ void tiled_prefetch(const step_forward_args &a, int row0, int unit0) {
    for (int at = (int)threadIdx.x; at < cut::rows * cut::gates; at += cut::threads) {
        const int row = row0 + at / cut::gates, gate = at % cut::gates;
        if (row < a.k.B) ptx_prefetch(a.u + (size_t)row * a.k.us + (size_t)gate * a.k.H + unit0);
    }
}

/* One cell's end; h also into the tile of d h, whose lines are units. */
template <class CELL, int line>
static __device__ __forceinline__ void tiled_finish(CELL &cell, const step_forward_args &a, int row, int j,
                                                    float (&s)[CELL::GATES][CELL::V], float *h_tile) {
    enum { V = CELL::V };
    const unsigned flags = step_flags_of(a.k, row);
    float h[V];
    cell.finish(a, row, j, flags, s, h);
    step_put_h<V>(a, row, j, flags, h);
#pragma unroll
    for (int v = 0; v < V; v++)
        h_tile[v * line] = a.k.factor ? a.k.factor[(size_t)row * a.k.O + j + v] * h[v] : h[v];
}

/* The block's cells. Of vectors what they read is asked for while sums meet; of single units, with all options, the sums go through
 * shared memory, so that a loop need not be unrolled. */
template <class CELL, class cut, int line>
static __device__ __forceinline__ void tiled_cells(const step_forward_args &a, const tiled_place &at, int row0, int unit0,
                                                   const float (&sum)[TILED_ROWS][4 * cut::gates], float *shared,
                                                   float *h_tile) {
    enum { V = CELL::V };
    const int j = unit0 + at.unit;
    float total[cut::own][4 * cut::gates];
    const auto row_of = [&](int i) { return tiled_row(at, at.slice * cut::own + i); };
    if constexpr (V == 4) {
        CELL cells[cut::own];
        tiled_meet<cut>(total, sum, at, shared, [&] {
#pragma unroll
            for (int i = 0; i < cut::own; i++)
                if (row0 + row_of(i) < a.k.B && j < a.k.H) cells[i].load(a, row0 + row_of(i), j);
        });
        __syncthreads(); /* what met has been read */
#pragma unroll
        for (int i = 0; i < cut::own; i++) {
            float s[cut::gates][V];
#pragma unroll
            for (int n = 0; n < 4 * cut::gates; n++) s[n / 4][n % 4] = total[i][n];
            if (row0 + row_of(i) < a.k.B && j < a.k.H)
                tiled_finish<CELL, line>(cells[i], a, row0 + row_of(i), j, s, h_tile + at.unit * line + row_of(i));
        }
    } else {
        tiled_meet<cut>(total, sum, at, shared, [] {});
        __syncthreads();
        float *const own = shared + threadIdx.x;
#pragma unroll
        for (int i = 0; i < cut::own; i++)
#pragma unroll
            for (int n = 0; n < 4 * cut::gates; n++) own[(i * 4 * cut::gates + n) * cut::threads] = total[i][n];
#pragma unroll 1
        for (int c = 0; c < 4 * cut::own; c++) {
            const int local = row_of(c / 4), row = row0 + local, n = c % 4;
            if (row >= a.k.B || j + n >= a.k.H) continue;
            CELL cell;
            float s[cut::gates][V];
#pragma unroll
            for (int g = 0; g < cut::gates; g++) s[g][0] = own[((c / 4 * cut::gates + g) * 4 + n) * cut::threads];
            cell.load(a, row, j + n);
            tiled_finish<CELL, line>(cell, a, row, j + n, s, h_tile + (at.unit + n) * line + local);
        }
    }
}

template <class CELL, class cut>
static __global__ void __launch_bounds__(cut::threads, 1) tiled_forward(const __grid_constant__ tiled_forward_args f) {
#if TILED_HERE
    enum { LINE = cut::rows + 4 }; /* of the tile of d h: lanes put it in different banks */
    TILED_SHARED(shared);
    float *const h_tile = shared + cut::own * 4 * cut::gates * cut::threads;
    step_let_next_in();
    const step_forward_args &a = f.step;
    const tiled_place at = tiled_stand<cut>();
    const int row0 = (int)blockIdx.y * cut::rows, unit0 = (int)blockIdx.x * TILED_UNITS;
    const tiled_operands operands = {f.h_t + row0, f.r + (size_t)blockIdx.x * f.k * cut::columns, f.h_row, f.k};
    float sum[TILED_ROWS][4 * cut::gates] = {};
    tiled_prefetch<cut>(a, row0, unit0);
    tiled_multiply<cut>(sum, operands, at, shared);
    tiled_cells<CELL, cut, LINE>(a, at, row0, unit0, sum, shared, h_tile);
    __syncthreads();
    for (int piece = (int)threadIdx.x; piece < TILED_UNITS * cut::rows / 4; piece += cut::threads) {
        const int unit = piece / (cut::rows / 4), row = piece % (cut::rows / 4) * 4;
        if (unit0 + unit < a.k.H)
            *reinterpret_cast<float4 *>(f.h_t_to + (size_t)(unit0 + unit) * f.h_row + row0 + row) =
                *reinterpret_cast<const float4 *>(h_tile + unit * LINE + row);
    }
#endif
}

/* --------------------------------------------------------------------------------------------------------- pack -- */
typedef struct tiled_pack_args {
    float *to;        /* = [blocks][k][gates][TILED_UNITS] */
    const float *r;   /* [gates][H][H] */
    int H, gates, k;
} tiled_pack_args;

enum { PACK_DOWN = 8 };

/* Blocks of 32 units of a gate by 32 of k, by way of shared memory. */
static __global__ void __launch_bounds__(TILED_UNITS *PACK_DOWN) tiled_pack(const __grid_constant__ tiled_pack_args a) {
    __shared__ float tile[TILED_UNITS][TILED_UNITS + 1];
    const int block = (int)blockIdx.x / a.gates, gate = (int)blockIdx.x % a.gates, k0 = (int)blockIdx.y * TILED_UNITS;
    const int x = (int)threadIdx.x;
    for (int y = (int)threadIdx.y; y < TILED_UNITS; y += PACK_DOWN) {
        const int unit = block * TILED_UNITS + y, k = k0 + x;
        tile[y][x] = unit < a.H && k < a.H ? a.r[((size_t)gate * a.H + unit) * a.H + k] : 0.0f;
    }
    __syncthreads();
    for (int y = (int)threadIdx.y; y < TILED_UNITS && k0 + y < a.k; y += PACK_DOWN)
        a.to[(((size_t)block * a.k + k0 + y) * a.gates + gate) * TILED_UNITS + x] = tile[x][y];
}

void sli_step_tiled_pack(const step_way *way) {
    const sli_step_shape *s = &way->s;
    tiled_pack_args a = {};
    a.to = (float *)(way->weights + way->packed.tiled);
    a.r = (const float *)way->param[SLI_RNN_RECURRENT];
    a.H = (int)s->H;
    a.gates = (int)s->gates;
    a.k = (int)sli_step_tiled_k(s);
    const sli_step_grid grid = {step_blocks_of(s->H, TILED_UNITS) * (unsigned)s->gates, step_blocks_of(a.k, TILED_UNITS),
                                TILED_UNITS, PACK_DOWN};
    sli_step_launch(way, tiled_pack, &grid, &a, false, "launch of packed recurrent weights");
}

/* -------------------------------------------------------------------------------------------------------- steps -- */
static float *h_t_of(const step_way *way, int slot) {
    const size_t floats = (size_t)(sli_step_tiled_k(&way->s) * sli_step_tiled_row(&way->s));
    return (float *)(way->work + way->scratch.h_tiled) + (size_t)slot * floats;
}

void sli_step_tiled_begin(const step_way *way) {
    const sli_step_shape *s = &way->s;
    const float *entering = (const float *)sli_step_operand_h(way, way->reverse ? (int)s->T : 0);
    sli_cuda_transposition each[2];
    for (int slot = 0; slot < 2; slot++) /* the second for its zeros beyond H */
        each[slot] = {entering, s->hs, s->B, s->O, h_t_of(way, slot), sli_step_tiled_row(s), sli_step_tiled_k(s)};
    sli_cuda_transpose(way->queue, way->stream, each, 2);
}

template <class CELL, int rows> static void launch(const step_way *way, const tiled_forward_args *f, bool dependent) {
    typedef tiled_cut<CELL::GATES, rows / TILED_WARP_ROWS, 8 / (rows / TILED_WARP_ROWS), rows / 4, 4> cut;
    const sli_step_grid grid = {step_blocks_of(way->s.H, TILED_UNITS), step_blocks_of(way->s.B, rows), cut::threads, 1};
    sli_step_launch(way, tiled_forward<CELL, cut>, &grid, f, dependent, "launch of a tiled step",
                    sizeof(float) * cut::floats);
}

template <class PLAIN_CELL, class CELL>
static void launch_cell(const step_way *way, const tiled_forward_args *f, bool plain, bool dependent) {
    if (way->tiled == 64)
        plain ? launch<PLAIN_CELL, 64>(way, f, dependent) : launch<CELL, 64>(way, f, dependent);
    else
        plain ? launch<PLAIN_CELL, 32>(way, f, dependent) : launch<CELL, 32>(way, f, dependent);
}

void sli_step_tiled_forward(const step_way *way, const step_forward_args *args, int number, bool dependent) {
    tiled_forward_args f = {};
    f.step = *args;
    f.r = (const float *)(way->weights + way->packed.tiled);
    f.h_t = h_t_of(way, number % 2);
    f.h_t_to = h_t_of(way, 1 - number % 2);
    f.h_row = sli_step_tiled_row(&way->s);
    f.k = (int)sli_step_tiled_k(&way->s);
    const bool aligned = way->s.H % 4 == 0 && sli_step_aligned(args->y) && sli_step_aligned(args->h_last) &&
                         sli_step_aligned(args->c_last) && sli_step_aligned(args->bias_n);
    const bool plain = step_plain(&args->k) && aligned && (way->s.gru || !args->h_to);
    if (way->s.lstm)
        launch_cell<tiled_lstm<4, true>, tiled_lstm<1, false>>(way, &f, plain, dependent);
    else
        launch_cell<tiled_gru<4, true>, tiled_gru<1, false>>(way, &f, plain, dependent);
}
