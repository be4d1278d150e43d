/* A projection that is folded into the recurrent weights, the kernels around its products: persist_fold_host.cu. */
#include "backend/cuda/kernels/persist_fold.cuh"
#include "backend/cuda/kernels/step_device.cuh"

/* Number of step t in order of processing; and back. */
static __device__ __forceinline__ int fold_number(const fold_common &k, int t) {
    return k.reverse ? k.T - 1 - t : t;
}
static __device__ __forceinline__ int fold_first_of(const fold_common &k, int row) {
    return k.first ? k.first[row] : 0;
}
static __device__ __forceinline__ bool fold_shows(const fold_common &k, int t, int row) {
    return !k.flags || (k.flags[(size_t)t * k.B + row] & SLI_STEP_SHOWN);
}
/* An operand of row `row`, with the zeros behind its last column. */
static __device__ __forceinline__ void fold_operand(const fold_common &k, void *to, int64_t row, int j, float x) {
    const float value[1] = {x};
    const size_t at = (size_t)(row * k.hs);
    step_operand<1>(k.math, to, at + j, value);
    if (j + 1 == k.columns) step_operand_tail(k.math, step_operand_row(k.math, to, at), k.columns, k.hs);
}

/* ----------------------------------------------------------------------------------------------------- first steps -- */
enum { FIRST_X = 32, FIRST_Y = 8 };

/* Thread y looks at steps y, y + 8, ... of its row up to one that is valid. */
static __global__ void __launch_bounds__(FIRST_X *FIRST_Y) fold_first(const __grid_constant__ fold_first_args a) {
    __shared__ int found[FIRST_Y][FIRST_X];
    const int row = (int)(blockIdx.x * FIRST_X + threadIdx.x), y = (int)threadIdx.y;
    int s = a.k.T;
    if (row < a.k.B)
        for (s = y; s < a.k.T; s += FIRST_Y)
            if (a.k.flags[(size_t)fold_number(a.k, s) * a.k.B + row] & SLI_STEP_VALID) break;
    found[y][threadIdx.x] = s < a.k.T ? s : a.k.T;
    __syncthreads();
    if (y > 0 || row >= a.k.B) return;
    for (int other = 1; other < FIRST_Y; other++)
        if (found[other][threadIdx.x] < s) s = found[other][threadIdx.x];
    a.to[row] = s < a.k.T ? s : a.k.T;
}

/* -------------------------------------------------------------------------------------------------------- forward -- */
static __global__ void __launch_bounds__(STEP_THREADS) fold_enter(const __grid_constant__ fold_enter_args a) {
    const int j = step_unit<1>();
    if (j >= a.k.columns) return;
    for (int row = step_row(); row < a.k.B; row += step_row_stride()) {
        const int s = fold_first_of(a.k, row), t = s < a.k.T ? fold_number(a.k, s) : -1;
        if (t < a.c0 || t >= a.c1) continue;
        a.u[((size_t)(t - a.c0) * a.k.B + row) * a.us + j] += a.entering[(size_t)row * a.us + j];
    }
}

static __global__ void __launch_bounds__(STEP_THREADS) fold_give(const __grid_constant__ fold_give_args a) {
    const int j = step_unit<1>();
    if (j >= a.k.columns) return;
    for (int r = step_row(); r < a.rows; r += step_row_stride()) {
        const int t = a.t + r / a.k.B, row = r % a.k.B, s = fold_number(a.k, t);
        const size_t at = (size_t)row * a.k.columns + j;
        const float h = s < fold_first_of(a.k, row) ? a.h0[at] : a.q[(size_t)r * a.q_row + j];
        if (a.y) a.y[(size_t)r * a.y_row + j] = fold_shows(a.k, t, row) ? h : 0.0f;
        if (a.operand_h) fold_operand(a.k, a.operand_h, r, j, h);
        if (a.h_last && s + 1 == a.k.T) a.h_last[at] = h;
    }
}

/* ------------------------------------------------------------------------------------------------------- backward -- */
static __global__ void __launch_bounds__(STEP_THREADS) fold_shown(const __grid_constant__ fold_shown_args a) {
    const int j = step_unit<1>();
    if (j >= a.k.columns) return;
    for (int r = step_row(); r < a.rows; r += step_row_stride()) {
        const bool shows = fold_shows(a.k, a.t + r / a.k.B, r % a.k.B);
        fold_operand(a.k, a.to, r, j, shows ? a.dy[(size_t)r * a.dy_row + j] : 0.0f);
    }
}

static __device__ __forceinline__ float fold_dy(const fold_gradient_args &a, int t, int row, int j) {
    return a.dy && fold_shows(a.k, t, row) ? a.dy[((size_t)t * a.k.B + row) * a.dy_row + j] : 0.0f;
}

/* The slot after the last step: the rest of the gradient of h0. */
static __device__ __forceinline__ void fold_rest(const fold_gradient_args &a, int row, int j, float last) {
    const int first = fold_first_of(a.k, row);
    float left = first < a.k.T ? 0.0f : last;
    for (int s = 0; s < first; s++) left += fold_dy(a, fold_number(a.k, s), row, j);
    a.left[(size_t)row * a.k.hs + j] = left;
    if (first == a.k.T) a.dh[(size_t)row * a.k.columns + j] = 0.0f;
}

static __global__ void __launch_bounds__(STEP_THREADS) fold_gradient(const __grid_constant__ fold_gradient_args a) {
    const int j = step_unit<1>();
    if (j >= a.k.columns) return;
    for (int r = step_row(); r < a.rows; r += step_row_stride()) {
        const int slot = a.slot + r / a.k.B, row = r % a.k.B;
        const int enters = a.k.reverse ? slot - 1 : slot, leaves = a.k.reverse ? slot : slot - 1;
        const bool before_a_step = enters >= 0 && enters < a.k.T;
        float e = leaves >= 0 && leaves < a.k.T ? fold_dy(a, leaves, row, j) : 0.0f;
        if (before_a_step) {
            const float back = a.back[((size_t)(enters - a.c0) * a.k.B + row) * a.k.hs + j];
            if (fold_number(a.k, enters) == fold_first_of(a.k, row)) a.dh[(size_t)row * a.k.columns + j] = back;
            e += back;
        } else {
            const float last = a.dh_last ? a.dh_last[(size_t)row * a.k.columns + j] : 0.0f;
            fold_rest(a, row, j, last);
            e += last;
        }
        fold_operand(a.k, a.e, r, j, e);
    }
}

/* -------------------------------------------------------------------------------------------------------- launches -- */
template <typename ARGS>
static void over_rows(const step_way *way, void (*kernel)(ARGS), const ARGS *args, int rows, const char *what) {
    const sli_step_grid grid = sli_step_grid_of(args->k.columns, rows, 1);
    sli_step_launch(way, kernel, &grid, args, false, what);
}

void sli_fold_first(const step_way *way, const fold_first_args *args) {
    const sli_step_grid grid = {(unsigned)((args->k.B + FIRST_X - 1) / FIRST_X), 1, FIRST_X, FIRST_Y};
    sli_step_launch(way, fold_first, &grid, args, false, "launch of the rows' first steps");
}

void sli_fold_enter(const step_way *way, const fold_enter_args *args) {
    over_rows(way, fold_enter, args, args->k.B, "launch of the projected state");
}

void sli_fold_give(const step_way *way, const fold_give_args *args) {
    over_rows(way, fold_give, args, args->rows, "launch of the projection");
}

void sli_fold_shown(const step_way *way, const fold_shown_args *args) {
    over_rows(way, fold_shown, args, args->rows, "launch of the projection's operand");
}

void sli_fold_gradient(const step_way *way, const fold_gradient_args *args) {
    over_rows(way, fold_gradient, args, args->rows, "launch of the projection's gradient");
}
