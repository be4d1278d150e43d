/* Transposed copies on the CPU: kernels/transpose.cuh as it is. */
#include <math.h>
#include <string.h>
#include <vector>

#include "cases.h"
#include "emulate.h"
#define SLI_TESTS_EMULATE_RUNTIME_API_H /* dim3 is the emulation's */
typedef struct emulate_stream *cudaStream_t;
enum cudaError_t { cudaSuccess };
extern "C" {
#include "backend/cuda/cuda.h"
}
#include "backend/cuda/services.h"

#define __shared__ static /* one block at a time */
#include "backend/cuda/kernels/transpose.cuh"

namespace {

std::string launch_transpose(const sli_cuda_transposition *each, int count, uint64_t seed) {
    const transpose_args args = transpose_args_of(each, count);
    emulate::launch_config config;
    config.grid = dim3(args.first[SLI_CUDA_TRANSPOSITIONS]);
    config.block = dim3(TRANSPOSE_THREADS);
    config.resident = 1;
    config.seed = seed;
    return emulate::launch(config, [&] { transpose(args); }).failure;
}

/* A matrix of floats, its rows apart and NaN between them, and a place for its copy, NaN with a guard of 16 bytes around it. */
struct trial {
    std::vector<float> from, to;
    sli_cuda_transposition t;
    trial(int64_t rows, int64_t columns, int64_t lines, int64_t apart, int64_t shift) {
        const int64_t from_row = columns + apart, to_row = sli_cuda_transposed_row(rows);
        from.assign((size_t)(rows * from_row + shift + 16), NAN);
        to.assign((size_t)(lines * to_row + 8 + 4), NAN);
        float *first = from.data();
        while ((uintptr_t)first % 16 != 0) first++;
        first += shift;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++) first[r * from_row + c] = (float)(r * columns + c + 1);
        float *copy = to.data() + 4;
        while ((uintptr_t)copy % 16 != 0) copy++;
        t = {first, from_row, rows, columns, copy, to_row, lines};
    }
    std::string wrong() const {
        for (const float *at = to.data(); at < to.data() + to.size(); at++) {
            const int64_t i = at - t.to, line = i / t.to_row, row = i % t.to_row;
            const bool inside = i >= 0 && line < t.lines, there = inside && row < t.rows && line < t.columns;
            const float expected = there ? (float)(row * t.columns + line + 1) : 0.0f;
            if (inside ? *at == expected : isnan(*at)) continue;
            return emulate_say("%ld x %ld: value %ld is %g", (long)t.rows, (long)t.columns, (long)i, (double)*at);
        }
        return "";
    }
};

} // namespace

/* For test_recompute.cpp. */
extern "C" void sli_cuda_transpose(sli_queue *, cudaStream_t, const sli_cuda_transposition *each, int count) {
    const std::string failure = launch_transpose(each, count, 0);
    if (!failure.empty()) fprintf(stderr, "transposition: %s\n", failure.c_str());
}

EMULATE_CASE("transpose: copies of every shape are whole, with zeros beyond") {
    static const int64_t sizes[] = {1, 2, 3, 4, 31, 33, 64, 65, 66, 131};
    for (const int64_t rows : sizes)
        for (const int64_t columns : sizes) {
            const trial close(rows, columns, columns, 0, 0), wide(rows, columns, (columns + 3) / 4 * 4, 5, 1);
            const trial aligned(columns, rows, rows + 1, 4 - rows % 4, 0); /* another shape in the same launch */
            const sli_cuda_transposition each[] = {close.t, wide.t, aligned.t};
            std::string wrong = launch_transpose(each, 3, seed);
            for (const trial *t : {&close, &wide, &aligned})
                if (wrong.empty()) wrong = t->wrong();
            if (!wrong.empty()) return wrong;
        }
    return "";
}
