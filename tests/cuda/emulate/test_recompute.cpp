/* cuda:step on the CPU: the kernels of its plain steps and their host side as they are, products as loops. Recomputed gates must
 * give what kept ones give, to the bit: a product's sums are in one order here, whatever rows are multiplied together; and so must
 * transposed copies; gradients that are fresh, NaN before, give what zeros give. R^T dr in pieces of k, which the cells add, gives the same
 * within rounding. Memory is NaN before each pass, and as large as it was
 * booked. */
#include <math.h>
#include <string.h>
#include <algorithm>
#include <random>

#include "cases.h"
#include "operands.h"
#include "emulate.h"
/* Other tests of this folder define these for theirs. */
#define sli_cuda_caps_of recompute_caps_of
#define sli_cuda_failed recompute_failed
#define sli_cuda_fail recompute_fail
#define sli_cuda_phase recompute_phase
#define sli_cuda_stream recompute_stream
#define sli_cuda_fork recompute_fork
#define sli_cuda_join recompute_join
#define sli_cuda_narrow recompute_narrow
#define sli_cuda_note_launch recompute_note_launch
#define sli_cuda_put recompute_put
#define sli_cuda_multiply recompute_multiply
#define sli_cuda_move_rows recompute_move_rows
#define sli_cuda_is_small recompute_is_small
#define sli_gpu_step_pack recompute_pack
#define sli_gpu_step_forward recompute_forward
#define sli_gpu_step_backward recompute_backward
#define sli_cuda_try recompute_try
#define sli_cuda_injected recompute_injected
#define sli_cuda_compile recompute_compile
#define cudaFuncSetAttribute recompute_set_attribute
#define cudaLaunchKernelExC recompute_launch
/* Names of a launch's fields, where the host writes it. */
#pragma push_macro("gridDim")
#pragma push_macro("blockDim")
#undef gridDim
#undef blockDim
#include "cuda_runtime_api.h"
#include "backend/cuda/runtime/narrow.h"
extern "C" {
#include "backend/cuda/cuda.h"
}
#include "backend/cuda/services.h"
#include "backend/cuda/step_layout.h"
#include "product.h"
#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"

namespace {

struct bench {
    sli_caps caps;
    uint64_t seed;
    bool transposes; /* as if it gained for these small shapes */
    int pieces;      /* of R^T dr; 0: as it is */
    int tiled;       /* rows of a tile of forward steps, as if they gained for these small shapes; 0: none */
    int wide;        /* pieces of the products of wide steps, by the seed 1 to 3; 0: none */
    int planned;     /* rows of the plan; 0: those of the call */
    bool runs;       /* wide steps as they are, of a GPU whose L2 holds next to nothing */
    bool forward_runs; /* in tf32, too */
    bool scaled;       /* those of f16 in tf32's place */
    bool huge;         /* row 1 of the states that are given is beyond what scaled ones have */
    bool exact;        /* parameters are numbers of the problem's dtype */
    std::string wrong;
} world;

void complain(const std::string &text) {
    if (world.wrong.empty()) world.wrong = text;
}

double gain_of(const sli_step_shape *s, sl_dtype math, const sli_caps *caps, int64_t rows) {
    return world.transposes ? 1 : sli_step_transpose_gain(s, math, caps, rows);
}

sli_step_wide wide_of(const sli_problem *p, const sli_caps *caps, bool backward) {
    if (world.runs) return sli_step_wide_of(p, caps, backward);
    if (world.wide == 0) return {};
    const sli_step_shape s = sli_step_shape_of(p, 1);
    const int64_t m = backward ? s.hs : s.zs, k = backward ? s.GH : s.O;
    sli_step_wide w = {};
    w.scaled = world.scaled && !backward;
    w.narrow = s.narrow || w.scaled;
    w.runs = s.narrow || (world.forward_runs && !backward);
    w.rows = s.B > 64 ? 128 : !w.runs || s.B > 32 ? 64 : s.B > 16 ? 32 : 16;
    w.blocks = (int)((m + SLI_STEP_WIDE_TALL - 1) / SLI_STEP_WIDE_TALL);
    w.tiles = (int)((s.B + w.rows - 1) / w.rows);
    w.stages = (int)((k * (w.narrow ? 2 : 4) + SLI_STEP_WIDE_BYTES - 1) / SLI_STEP_WIDE_BYTES);
    const int most = w.runs ? w.stages / 2 : w.stages; /* of a run a stage is held, and more come */
    w.pieces = world.wide < most ? world.wide : most;
    if (!w.narrow && w.runs && w.pieces > 2) w.pieces = 2;
    if (w.runs && !backward && w.pieces <= 2) {
        w.units = SLI_STEP_WIDE_HALF / s.gates / 4 * 8;
        w.blocks = (int)((s.H + w.units - 1) / w.units);
    }
    return w;
}

/* Fused steps are not part of this test: small layers go as larger ones do. */
bool fused_of(const sli_problem *, bool) {
    return false;
}

/* Takes `floats` at the end of what there is. */
size_t take_at_end(size_t *end, int64_t floats) {
    const size_t at = (*end + 255) / 256 * 256;
    *end = at + sizeof(float) * (size_t)floats;
    return at;
}

/* With places for pieces and transposed copies, which are not booked for such shapes, at the end. */
sli_step_scratch backward_layout(const sli_problem *p, const sli_caps *caps, int chunk, int span, bool) {
    sli_step_scratch at = sli_step_layout_backward(p, caps, chunk, span, true);
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    if (world.pieces > 0) {
        at.dp_pieces = world.pieces;
        at.dp = at.stride;
        at.stride += sizeof(float) * (size_t)(world.pieces * s.B * s.hs);
        at.total = at.stride * (size_t)s.directions;
    }
    if (world.wide > 0) {
        const sli_step_wide w = wide_of(p, caps, true);
        at.dp = take_at_end(&at.stride, w.pieces * s.B * s.hs);
        at.wide = take_at_end(&at.stride, sli_step_wide_buffers(&w) * (int64_t)sli_step_wide_v(&w) / 4);
        at.counts = take_at_end(&at.stride, (int64_t)SLI_STEP_RUN_COUNTS(w.blocks) / 4);
        at.total = at.stride * (size_t)s.directions;
    }
    if (!world.transposes) return at;
    const size_t row = sizeof(float) * (size_t)sli_cuda_transposed_row(s.rows);
    at.dz_t = at.stride;
    at.dr_t = at.dz_t + (size_t)s.GH * row;
    at.x_t = at.dr_t + (size_t)s.GH * row;
    at.h_t = at.x_t + (size_t)s.xs * row;
    at.stride = at.h_t + (size_t)s.hs * row;
    at.total = at.stride * (size_t)s.directions;
    return at;
}

/* The same for what tiled steps read. */
int tiled_of(const sli_problem *, const sli_caps *) {
    return world.tiled;
}

sli_step_scratch forward_layout(const sli_problem *p, const sli_caps *caps, int chunk, bool steps) {
    sli_step_scratch at = sli_step_layout_forward(p, caps, chunk, steps);
    const sli_step_shape s = sli_step_shape_of(p, chunk);
    if (world.wide > 0) {
        const sli_step_wide w = wide_of(p, caps, false);
        at.s = take_at_end(&at.stride, w.pieces * s.B * s.us);
        at.wide = take_at_end(&at.stride, sli_step_wide_buffers(&w) * (int64_t)sli_step_wide_v(&w) / 4);
        at.counts = take_at_end(&at.stride, (int64_t)SLI_STEP_RUN_COUNTS(w.blocks) / 4);
        at.total = at.stride * (size_t)s.directions;
    }
    if (world.tiled == 0) return at;
    at.h_tiled = at.stride;
    at.stride += sizeof(float) * (size_t)(2 * sli_step_tiled_k(&s) * sli_step_tiled_row(&s));
    at.total = at.stride * (size_t)s.directions;
    return at;
}

sli_step_packed packed_layout(const sli_problem *p, const sli_caps *caps) {
    sli_step_packed at = sli_step_layout_packed(p, caps);
    const sli_step_shape s = sli_step_shape_of(p, 1);
    if (world.wide > 0) {
        const sli_step_wide forward = wide_of(p, caps, false), backward = wide_of(p, caps, true);
        at.wide_backward = take_at_end(&at.stride, (int64_t)sli_step_wide_bytes(&backward) / 4);
        at.wide_forward = take_at_end(&at.stride, (int64_t)sli_step_wide_bytes(&forward) / 4);
        at.wide_largest = take_at_end(&at.stride, PERSIST_LARGEST);
        at.stride = (at.stride + 255) / 256 * 256;
        at.total = at.stride * (size_t)s.directions;
    }
    if (world.tiled == 0) return at;
    const int64_t units = (s.H + SLI_STEP_TILED_UNITS - 1) / SLI_STEP_TILED_UNITS * SLI_STEP_TILED_UNITS;
    at.tiled = at.stride;
    at.stride += sizeof(float) * (size_t)(sli_step_tiled_k(&s) * s.gates * units);
    at.total = at.stride * (size_t)s.directions;
    return at;
}

} // namespace

#define sli_step_tiled tiled_of
#define sli_step_fused fused_of
#define sli_step_wide_of wide_of
#define sli_step_layout_forward forward_layout
#define sli_step_layout_packed packed_layout
#define sli_step_transpose_gain gain_of
#define sli_step_layout_backward backward_layout
namespace recompute_engine {
#include "backend/cuda/kernels/step.cuh"

template <typename ARGS>
static void sli_step_launch(const step_way *, void (*kernel)(ARGS), const sli_step_grid *grid, const ARGS *args, bool,
                            const char *what, size_t shared = 0) {
    emulate::launch_config config;
    config.grid = dim3(grid->gx, grid->gy);
    config.block = dim3(grid->bx, grid->by);
    config.resident = 1; /* shared memory is static */
    config.shared = shared;
    config.seed = world.seed;
    const std::string failure = emulate::launch(config, [&] { kernel(*args); }).failure;
    if (!failure.empty()) complain(std::string(what) + ": " + failure);
}

#define launch run_launch
#define aligned run_aligned
#include "backend/cuda/kernels/step_run.cu"
#undef launch
#undef aligned
#pragma pop_macro("gridDim")
#pragma pop_macro("blockDim")
#define __shared__ static
#define STEP_MATH(k) ((k).math)
/* Runs and launches of a step each are one text here. */
#define STEP_WIDE_FORM(math, v) ((v).bound > 0 ? STEP_WIDE_SCALED : step_is_narrow(math) ? STEP_WIDE_NARROW : STEP_WIDE_FLOATS)
#include "../../../src/backend/cuda/kernels/step_device.cuh" /* not this folder's, which launches nothing */
#include "backend/cuda/kernels/step_way.cu"
#include "backend/cuda/kernels/step_common.cu"
#define plain lstm_is_plain
#include "backend/cuda/kernels/step_lstm.cu"
#undef plain
#define plain gru_is_plain
#include "backend/cuda/kernels/step_gru.cu"
#undef plain
#define plain rnn_is_plain
#include "backend/cuda/kernels/step_rnn.cu"
#undef plain
#define recurrent_product product_over_chunk
#include "backend/cuda/kernels/step_recompute.cu"
#undef recurrent_product
#include "backend/cuda/kernels/step_forward.cu"
#define TILED_SHARED(name) float *name = reinterpret_cast<float *>(emulated_shared())
#include "backend/cuda/kernels/step_tiled_forward.cu"
#define WIDE_MEMORY(name) unsigned char *name = emulated_shared()
#define launch wide_launch
#include "backend/cuda/kernels/step_wide.cu"
#undef launch
#include "backend/cuda/kernels/step_run.cuh"
#define SLI_CUDA_PERSIST_HOST_CUH /* this folder's has ways of its own */
#include "backend/cuda/kernels/persist_measure.cu"
#define args_at backward_args_at
#define projection_product backward_projection_product
#include "backend/cuda/kernels/step_backward.cu"
#undef args_at
#undef projection_product

void sli_step_fused_forward(const step_way *, const step_forward_args *, const void *, bool) {
    complain("a fused step, which is not part of this test");
}
void sli_step_fused_backward(const step_way *, const step_backward_args *, const void *, float *, bool) {
    complain("a fused step, which is not part of this test");
}
} // namespace recompute_engine
#undef sli_step_transpose_gain
#undef sli_step_layout_backward
#undef sli_step_layout_forward
#undef sli_step_layout_packed

/* ------------------------------------------------------------------------------------------------------ services -- */
#include "failing_queue.h"
extern "C" {
cudaStream_t sli_cuda_stream(sli_queue *) {
    return nullptr;
}
cudaStream_t sli_cuda_fork(sli_queue *) {
    return nullptr;
}
void sli_cuda_join(sli_queue *) {}

bool sli_cuda_put(sli_queue *, cudaStream_t, void *to, const void *from, size_t bytes) {
    if (from || bytes % (4 * SLI_STEP_RUN_APART) != 0) complain("a call of no steps, which is not part of this test");
    memset(to, 0, bytes);
    return true;
}
bool sli_cuda_try(sli_queue *, cudaError_t error, const char *) {
    return error == cudaSuccess;
}
cudaError_t sli_cuda_injected(cudaError_t error) {
    return error;
}

void sli_cuda_note_launch(sli_queue *, cudaStream_t) {}
void sli_cuda_narrow(sli_queue *, cudaStream_t, sl_dtype math, void *to, const float *from, size_t count) {
    for (size_t i = 0; i < count; i++) put_operand(math, to, (int64_t)i, from[i]);
}

void sli_cuda_multiply(sli_queue *, cudaStream_t, const sli_cuda_product *p) {
    const std::string wrong = emulated_multiply(p);
    if (!wrong.empty()) complain(wrong);
}
void sli_cuda_move_rows(sli_queue *, cudaStream_t, const sli_cuda_move *move) {
    emulated_move(move);
}
bool sli_cuda_is_small(const sli_cuda_product *p) {
    return small_fits(p);
}
}

/* ----------------------------------------------------------------------------------------------------------- runs -- */
namespace {

/* Instances, as the defines name them. */
struct instance {
    int gates, math, rows, held, vector, backward, units, pair, scaled;
} chosen;
template <int GATES, int MATH, int ROWS, int HELD, int VECTOR, int UNITS, bool BACKWARD, bool PAIR, bool SCALED> struct run_of {
    static constexpr int gates = GATES, math = MATH, rows = ROWS, held = HELD, vector = VECTOR, units = UNITS;
    static constexpr bool backward = BACKWARD, pair = PAIR, scaled = SCALED;
};

#pragma push_macro("gridDim")
#pragma push_macro("blockDim")
#undef gridDim
#undef blockDim
emulate::launch_config configured(const cudaLaunchConfig_t *given) {
    emulate::launch_config config;
    config.grid = given->gridDim;
    config.block = given->blockDim;
    config.shared = given->dynamicSmemBytes;
    config.seed = world.seed;
    if (given->numAttrs > 1) config.cluster = given->attrs[1].val.clusterDim.x;
    return config;
}
#pragma pop_macro("gridDim")
#pragma pop_macro("blockDim")

/* HELD: stages whose weights are held. */
template <int GATES, int MATH, int ROWS, int VECTOR, int HELD = 1, bool SCALED = false>
bool try_run(const cudaLaunchConfig_t *given, void *arguments) {
    if (chosen.scaled != SCALED || chosen.gates != GATES || chosen.math != MATH || chosen.rows != ROWS || chosen.vector != VECTOR) return false;
    if (MATH != 1 && (world.runs != (HELD > 1) || (world.runs && chosen.held != HELD))) return false;
    if (MATH == 1 && (chosen.held != 0 || chosen.backward)) complain("a run in tf32 that holds weights, or goes backward");
    const emulate::launch_config config = configured(given);
    if (given->numAttrs != (chosen.pair ? 2u : 1u) || given->attrs->id != cudaLaunchAttributeCooperative) complain("a run that is not launched cooperatively");
    constexpr int units = SLI_STEP_WIDE_HALF / GATES / 4 * 8;
    if (chosen.units != 0 && chosen.units != units) complain("blocks of other units");
    const std::string failure =
        emulate::launch(config, [&] {
            using namespace recompute_engine;
            if (chosen.backward)
                run_steps<run_of<GATES, MATH, ROWS, HELD, VECTOR, 0, true, false, false>>(*static_cast<step_backward_run *>(arguments), emulated_shared());
            else if (chosen.pair)
                run_steps<run_of<GATES, MATH, ROWS, HELD, VECTOR, units, false, true, SCALED>>(*static_cast<step_forward_run *>(arguments), emulated_shared());
            else if (chosen.units > 0)
                run_steps<run_of<GATES, MATH, ROWS, HELD, VECTOR, units, false, false, SCALED>>(*static_cast<step_forward_run *>(arguments), emulated_shared());
            else
                run_steps<run_of<GATES, MATH, ROWS, HELD, VECTOR, 0, false, false, SCALED>>(*static_cast<step_forward_run *>(arguments), emulated_shared());
        }).failure;
    if (!failure.empty()) complain("a run: " + failure);
    return true;
}

} // namespace

cudaError_t cudaFuncSetAttribute(const void *, int, int) {
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *, void **arguments) {
    if (!try_run<4, 2, 16, 4>(config, arguments[0]) && !try_run<4, 3, 128, 1>(config, arguments[0]) &&
        !try_run<3, 3, 32, 4>(config, arguments[0]) && !try_run<1, 2, 64, 1>(config, arguments[0]) &&
        !try_run<4, 1, 16, 4, 0>(config, arguments[0]) && !try_run<3, 1, 128, 1, 0>(config, arguments[0]) &&
        !try_run<4, 3, 16, 4, 1, true>(config, arguments[0]) && !try_run<3, 3, 32, 1, 1, true>(config, arguments[0]) &&
        !try_run<4, 3, 16, 4, 9, true>(config, arguments[0]) && !try_run<4, 2, 16, 4, 7>(config, arguments[0]) && !try_run<4, 2, 16, 4, 9>(config, arguments[0]))
        complain("an instance that this test has not");
    return cudaSuccess;
}
extern "C" cudaKernel_t sli_cuda_compile(sli_queue *, const char *, const char *, const char *defines, sli_why *) {
    if (sscanf(defines,
               "#define RUN_GATES %d #define RUN_MATH %d #define RUN_ROWS %d #define RUN_HELD %d #define RUN_VECTOR %d #define RUN_BACKWARD %d "
               "#define RUN_UNITS %d #define RUN_PAIR %d #define RUN_SCALED %d",
               &chosen.gates, &chosen.math, &chosen.rows, &chosen.held, &chosen.vector, &chosen.backward, &chosen.units, &chosen.pair,
               &chosen.scaled) != 9)
        complain("other defines of a run");
    return &chosen;
}

/* --------------------------------------------------------------------------------------------------------- trials -- */
namespace {

typedef std::vector<float> floats;

struct memory { /* as booked, NaN, and a guard behind it */
    std::vector<unsigned char> bytes;
    size_t booked;
    explicit memory(size_t count) : bytes(count + 64, 0xff), booked(count) {}
    bool guarded() const {
        for (size_t i = booked; i < bytes.size(); i++)
            if (bytes[i] != 0xff) return false;
        return true;
    }
};

struct results {
    std::vector<std::string> names;
    std::vector<floats> values;
    float *add(const std::string &name, size_t count, float before = 0.25f) {
        names.push_back(name);
        values.push_back(floats(count + 1, 0.25f));
        std::fill_n(values.back().begin(), count, before);
        return values.back().data();
    }
};

floats drawn(std::mt19937 &random, size_t count, double scale) {
    floats values(count + 1);
    for (float &v : values) v = (float)(scale * (2.0 * (double)(random() >> 8) / 16777216.0 - 1));
    return values;
}

size_t param_size(const sli_problem &p, int k) {
    const size_t GH = (size_t)(sli_op_gates(p.op) * p.units), O = (size_t)sli_problem_output(&p);
    switch (k) {
    case SLI_RNN_KERNEL:
        return GH * (size_t)p.inputs;
    case SLI_RNN_RECURRENT:
        return GH * O;
    case SLI_RNN_BIAS:
        return p.bias != SL_BIAS_NONE ? GH : 0;
    case SLI_RNN_RECURRENT_BIAS:
        return p.bias == SL_BIAS_DOUBLE ? GH : 0;
    case SLI_RNN_PEEPHOLE:
        return p.peephole ? 3 * (size_t)p.units : 0;
    default:
        return p.projection > 0 ? O * (size_t)p.units : 0;
    }
}

/* Parameters of 16 bits, and their gradients. */
typedef std::vector<uint16_t> halves;

halves narrowed(const floats &from, sl_dtype math) {
    halves to(from.size());
    for (size_t i = 0; i < from.size() && is_16_bit(math); i++) put_operand(math, to.data(), (int64_t)i, from[i]);
    return to;
}

/* Forward and backward of one training call; all results, by name. `before`: what lies in the gradients of parameters. */
results compute(const sli_problem &p, int chunk, float before, bool fresh) {
    std::mt19937 random(7);
    const int directions = p.bidirectional ? 2 : 1, states = sli_problem_states(&p);
    const size_t rows = (size_t)p.steps * (size_t)p.batch, O = (size_t)sli_problem_output(&p);
    const size_t width = O * (size_t)directions;
    const sli_kernel *row = p.op == SLI_OP_LSTM ? &sli_cuda_lstm : p.op == SLI_OP_GRU ? &sli_cuda_gru : &sli_cuda_rnn;
    sli_booking booking;
    sli_problem plan = p;
    if (world.planned > 0) plan.batch = world.planned;
    row->book(&plan, &world.caps, chunk, &booking);
    memory saved(booking.saved), packed(packed_layout(&plan, &world.caps).total),
        forward(forward_layout(&plan, &world.caps, chunk, true).total),
        backward(world.transposes || world.pieces > 0 || world.wide > 0 ? backward_layout(&plan, &world.caps, chunk, chunk, true).total
                                                      : booking.scratch_backward);
    sli_scalars scalars = {};
    scalars.seed = 11;
    sli_call call = {};
    call.problem = p;
    call.planned = {plan.batch, p.steps};
    call.chunk = chunk;
    call.total_steps = p.steps;
    call.training = true;
    call.scalars = &scalars;
    call.saved = saved.bytes.data();
    call.packed = packed.bytes.data();
    call.scratch = forward.bytes.data();
    results r;
    r.values.reserve(64);
    floats x = drawn(random, rows * (size_t)p.inputs, 1), dy = drawn(random, rows * width, 1);
    if (world.exact)
        for (floats *values : {&x, &dy})
            for (float &v : *values) v = operand_of(p.dtype, v);
    const halves narrow_x = narrowed(x, p.dtype), narrow_dy = narrowed(dy, p.dtype);
    std::vector<int32_t> lengths((size_t)p.batch);
    std::vector<uint8_t> mask(rows);
    for (int32_t &length : lengths) length = (int32_t)(random() % ((unsigned)p.steps + 1));
    for (uint8_t &m : mask) m = random() % 4 != 0;
    call.in[SLI_RNN_X] = p.narrow_io ? static_cast<const void *>(narrow_x.data()) : x.data();
    call.in[SLI_RNN_LENGTHS] = lengths.data();
    call.in[SLI_RNN_MASK] = mask.data();
    std::vector<floats> given;
    given.reserve(64);
    std::vector<halves> narrow;
    std::vector<std::pair<size_t, size_t>> rounded; /* results that are of 16 bits: places in r and in `narrow` */
    narrow.reserve(64);
    const auto add_result = [&](const std::string &name, size_t count, float value, bool of_16_bits) {
        float *const floats_of = r.add(name, count, value);
        if (!of_16_bits) return static_cast<void *>(floats_of);
        rounded.push_back({r.values.size() - 1, narrow.size()});
        narrow.push_back(narrowed(r.values.back(), p.dtype));
        return static_cast<void *>(narrow.back().data());
    };
    call.out[SLI_RNN_Y] = add_result("y", rows * width, 0.25f, p.narrow_io);
    for (int part = 0; part < directions; part++) {
        for (int k = 0; k < SLI_PART_PARAMS; k++) {
            const size_t size = param_size(p, k);
            if (size == 0) continue;
            given.push_back(drawn(random, size, 0.4));
            if (world.exact)
                for (float &v : given.back()) v = operand_of(p.dtype, v);
            const void **param = &call.param[part * SLI_PART_PARAMS + k];
            *param = given.back().data();
            call.d_param[part * SLI_PART_PARAMS + k] = add_result("gradient of parameter " + std::to_string(k), size, before, p.narrow);
            if (p.narrow) {
                narrow.push_back(narrowed(given.back(), p.dtype));
                *param = narrow.back().data();
            }
            if (fresh) call.fresh[part] |= (uint8_t)(1u << k);
        }
        for (int k = 0; k < states; k++) {
            const size_t size = (size_t)p.batch * (k == 0 ? O : (size_t)p.units);
            given.push_back(drawn(random, size, 0.5));
            if (world.huge && k == 0) std::fill_n(given.back().begin() + (ptrdiff_t)O, O, 1e6f); /* many, as some are dropped */
            call.in[SLI_RNN_STATE_IN(part, k)] = given.back().data();
            call.out[SLI_RNN_STATE_OUT(part, k)] = r.add("state " + std::to_string(k), size);
            given.push_back(drawn(random, size, 1));
            call.d_out[SLI_RNN_STATE_OUT(part, k)] = given.back().data();
            call.d_in[SLI_RNN_STATE_IN(part, k)] = r.add("gradient of state " + std::to_string(k), size);
        }
    }
    recompute_engine::sli_gpu_step_pack(&call);
    recompute_engine::sli_gpu_step_forward(&call);
    call.scratch = backward.bytes.data();
    call.d_out[SLI_RNN_Y] = p.narrow_io ? static_cast<const void *>(narrow_dy.data()) : dy.data();
    call.d_in[SLI_RNN_X] = add_result("gradient of x", rows * (size_t)p.inputs, 0.25f, p.narrow_io);
    if (!world.huge) recompute_engine::sli_gpu_step_backward(&call); /* there y alone is looked at */
    if (!saved.guarded() || !packed.guarded() || !forward.guarded() || !backward.guarded())
        complain("memory beyond what was booked was written to");
    for (const auto &at : rounded)
        for (size_t i = 0; i < r.values[at.first].size(); i++)
            r.values[at.first][i] = operand(p.dtype, narrow[at.second].data(), (int64_t)i);
    return r;
}

const char *const trials[] = {
    "lstm:b5_t8_i3_h6_train",
    "lstm:b3_t7_i3_h9_bi_train+clip=0.3+forget=1+mask=holes+peephole+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.2",
    "lstm:b4_t7_i5_h7_p3_train+lengths+peephole+rdrop=0.2+reverse+zoneout_c=0.3",
    "lstm:b65_t4_i3_h6_bf16_train+act=relu+lengths",
    "lstm:b66_t4_i3_h5_f16_train+ract=hard_sigmoid+zoneout_c=0.1",
    "gru:b5_t8_i3_h6_train",
    "gru:b3_t7_i3_h9_bi_train+bias=single+lengths+maskout=repeat+rdrop=0.3+zoneout_h=0.2",
    "gru:b65_t5_i3_h6_bf16_train+rdrop=0.2+reverse",
    "gru:b4_t8_i3_h7_train+mask=holes+rdrop=0.3+reset=before+reverse",
    "gru:b65_t4_i3_h7_bf16_bi_train+bias=none+reset=before",
    "rnn:b5_t8_i3_h6_bi_train+act=softsign+zoneout_h=0.2",
    "rnn:b66_t3_i3_h5_f16_train+mask=left",
};

/* To the bit; `zeros`: but for the sign of zeros, which 0 + -0 loses. */
void same(const results &a, const results &b, bool zeros) {
    for (size_t k = 0; k < a.values.size() && world.wrong.empty(); k++)
        for (size_t i = 0; i < a.values[k].size(); i++) {
            const float x = a.values[k][i], y = b.values[k][i];
            if (!(fabsf(x) < 1e6f && (zeros ? x == y : memcmp(&x, &y, sizeof x) == 0)))
                complain(a.names[k] + " " + std::to_string(i) + " is " + std::to_string(x) + ", not " +
                         std::to_string(y));
        }
}

/* tf32 of more rows than fused steps take. */
const char *const transposed_trials[] = {
    "lstm:b65_t5_i3_h6_tf32_bi_train+lengths",
    "lstm:b66_t4_i5_h7_p3_tf32_train+reverse",
    "gru:b67_t4_i6_h9_tf32_train+rdrop=0.2+reverse",
    "rnn:b65_t4_i8_h5_tf32_train",
};

/* Gates are a multiple of four: so many pieces have each the same part of k. */
const char *const pieces_trials[] = {
    "lstm:b5_t8_i3_h6_train",
    "lstm:b3_t7_i3_h9_bi_train+lengths+peephole+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.2",
    "lstm:b4_t7_i5_h7_p3_train+lengths+peephole+reverse",
    "lstm:b66_t4_i3_h8_tf32_train",
    "gru:b3_t7_i3_h8_bi_train+bias=single+lengths+maskout=repeat+rdrop=0.3+zoneout_h=0.2",
    "rnn:b5_t8_i3_h8_train+act=softsign+reverse",
};

/* Rows and units beyond whole tiles, k beyond whole chunks, all that cells can be asked for; the second in vectors of units. */
const char *const tiled_trials[] = {
    "lstm:b67_t5_i3_h38_train",
    "lstm:b33_t4_i3_h36_train+recompute",
    "lstm:b9_t7_i3_h45_bi_train+clip=0.3+forget=1+mask=holes+peephole+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.2",
    "gru:b65_t4_i3_h68_train+reverse",
    "gru:b7_t7_i3_h33_bi_train+bias=single+lengths+maskout=repeat+rdrop=0.3+zoneout_h=0.2",
};

/* In tf32, of which operands are rounded: beyond whole blocks and tiles, one over them; in vectors of units, and with all options. */
const char *const wide_trials[] = {
    "lstm:b65_t4_i3_h40_tf32_train",
    "lstm:b129_t3_i3_h33_tf32_train+reverse",
    "lstm:b65_t5_i3_h33_tf32_bi_train+clip=0.3+forget=1+mask=holes+peephole+rdrop=0.3+zoneout_c=0.2+zoneout_h=0.2",
    "lstm:b65_t4_i3_h36_tf32_train+recompute",
    "gru:b66_t4_i3_h44_tf32_train",
    "gru:b65_t5_i3_h45_tf32_bi_train+bias=single+lengths+maskout=repeat+rdrop=0.3+zoneout_h=0.2",
    "rnn:b67_t4_i3_h131_tf32_train+act=softsign",
};

/* In 16 bits, many steps a launch, of which a call has two: of few rows and of many, in vectors of units and one by one; K is more than a stage. */
const char *const run_trials[] = {
    "lstm:b9_t5_i3_h132_bf16_train",
    "lstm:b65_t4_i3_h133_f16_train+clip=0.3+forget=1+mask=holes+peephole+rdrop=0.3+reverse+zoneout_c=0.2+zoneout_h=0.2",
    "gru:b18_t4_i3_h136_f16_train+bias=single+lengths",
    "rnn:b33_t5_i3_h150_bf16_train+recompute",
};

/* Larger ones, in two and three pieces of k: pairs of blocks, and sums that go through memory, forward. */
const char *const run_pieces_trials[] = {
    "lstm:b9_t4_i3_h260_bf16_train",
    "gru:b18_t4_i3_h400_f16_train+lengths+reverse",
};

/* Runs in tf32, forward; backward steps are a launch each. */
const char *const tf32_run_trials[] = {
    "lstm:b9_t5_i3_h132_tf32_train+mask=holes+zoneout_h=0.2",
    "gru:b66_t4_i3_h133_tf32_train+lengths",
};

/* The same of f16, scaled, planned for more rows; two with dropout, by which v has another scale. The last ones are of two and three pieces of k: sums of three go through memory. */
const char *const scaled_run_trials[] = {
    "lstm:b9_t5_i3_h260_tf32_train+mask=holes+zoneout_h=0.2",
    "lstm:b9_t4_i3_h324_tf32_train+lengths+rdrop=0.6+reverse",
    "gru:b18_t4_i3_h321_tf32_train+rdrop=0.6+reverse+zoneout_h=0.2",
};

/* Too wide for fused steps. In tf32 backward is no run, and inference is not tried here. */
const char *const planned_trials[] = {
    "lstm:b9_t2_i3_h1028_bf16_train",
    "lstm:b9_t2_i3_h1028_tf32_train",
};

/* Within rounding. */
void close(const results &a, const results &b) {
    for (size_t k = 0; k < a.values.size() && world.wrong.empty(); k++)
        for (size_t i = 0; i < a.values[k].size(); i++) {
            const float x = a.values[k][i], y = b.values[k][i];
            if (!(fabsf(x - y) <= 1e-5f * (1 + fabsf(y))))
                complain(a.names[k] + " " + std::to_string(i) + " is " + std::to_string(x) + ", not " +
                         std::to_string(y));
        }
}

/* Within that of tf32, summed: of the largest number a hundredth. */
void alike(const results &a, const results &b) {
    for (size_t k = 0; k < a.values.size() && world.wrong.empty(); k++) {
        float most = 0;
        for (const float y : b.values[k]) most = fmaxf(most, fabsf(y));
        for (size_t i = 0; i < a.values[k].size(); i++)
            if (!(fabsf(a.values[k][i] - b.values[k][i]) <= 1e-2f * most))
                complain(a.names[k] + " " + std::to_string(i) + " is " + std::to_string(a.values[k][i]) + ", not " +
                         std::to_string(b.values[k][i]));
    }
}

/* A state that scaled operands do not have is NaN in its row, and changes no bit of others. */
void one_row(const results &a, const results &b, const sli_problem &p) {
    const size_t O = (size_t)sli_problem_output(&p), B = (size_t)p.batch;
    bool shows = false;
    for (size_t i = 0; i < (size_t)p.steps * B * O; i++) {
        const float x = a.values[0][i], y = b.values[0][i];
        if (i / O % B == 1)
            shows = shows || isnan(x);
        else if (memcmp(&x, &y, sizeof x) != 0)
            complain("y " + std::to_string(i) + " changes with another row");
    }
    if (!shows) complain("a state that is too large does not show");
}

bool enter(const char *text, uint64_t seed, sli_problem *p) {
    world = bench();
    world.seed = seed;
    world.caps.kind = SLI_DEVICE_CUDA;
    world.caps.compute_capability = 80;
    world.caps.multiprocessors = 108;
    world.caps.l2_bytes = 40 << 20;
    if (sli_problem_parse(text, p) != SL_OK) complain(sl_error_detail());
    return world.wrong.empty();
}

enum { CHUNK = 3 };

std::string run_trial(const char *text, bool transposes, uint64_t seed) {
    sli_problem p;
    if (!enter(text, seed, &p)) return world.wrong;
    const results kept = compute(p, CHUNK, 0.25f, false), added = compute(p, CHUNK, 0, false);
    same(compute(p, CHUNK, NAN, true), added, true);
    world.transposes = transposes;
    p.recompute = !transposes;
    same(compute(p, CHUNK, 0.25f, false), kept, false);
    same(compute(p, CHUNK, NAN, true), added, true);
    return world.wrong;
}

/* With parameters of 16 bits everything is the same to the bit, but for their gradients: the sums over all chunks, rounded once, added to what was there or not. */
const char *const narrow_trials[] = {
    "lstm:b5_t8_i3_h6_bf16_train+bias=double+peephole",
    "lstm:b5_t3_i8_h16_f16_train+bias=double",
    "lstm:b4_t7_i5_h7_p3_f16_bi_train+lengths+rdrop=0.2",
    "lstm:b65_t4_i8_h8_bf16_train+act=relu+recompute",
    "gru:b5_t8_i3_h6_f16_train+bias=double",
    "gru:b65_t5_i8_h16_bf16_train+bias=double+rdrop=0.2+reverse",
    "gru:b4_t3_i3_h7_bf16_train+bias=double+mask=holes+reset=before",
    "rnn:b66_t3_i3_h5_f16_train+bias=double+mask=left",
};

const char *const narrow_wide_trials[] = {"lstm:b9_t5_i3_h132_bf16_train"};

std::string run_narrow(const char *text, int wide, uint64_t seed) {
    sli_problem p;
    if (!enter(text, seed, &p)) return world.wrong;
    world.exact = true;
    world.wide = wide;
    results sums = compute(p, CHUNK, NAN, true), added = sums;
    for (size_t k = 0; k < sums.values.size(); k++)
        for (size_t i = 0; i + 1 < sums.values[k].size() && sums.names[k].find("gradient of parameter") == 0; i++) {
            added.values[k][i] = operand_of(p.dtype, 0.25f + sums.values[k][i]);
            sums.values[k][i] = operand_of(p.dtype, sums.values[k][i]);
        }
    p.narrow = true;
    same(compute(p, CHUNK, NAN, true), sums, false);
    same(compute(p, CHUNK, 0.25f, false), added, false);
    p.narrow_io = true;
    if (!p.bidirectional) { /* d x of both directions is rounded twice */
        for (size_t k = 0; k < sums.values.size(); k++)
            for (size_t i = 0; i + 1 < sums.values[k].size() && (sums.names[k] == "y" || sums.names[k] == "gradient of x"); i++)
                sums.values[k][i] = operand_of(p.dtype, sums.values[k][i]);
        same(compute(p, CHUNK, NAN, true), sums, false);
    }
    return world.wrong;
}

std::string run_pieces(const char *text, uint64_t seed) {
    sli_problem p;
    if (!enter(text, seed, &p)) return world.wrong;
    const results whole = compute(p, CHUNK, 0.25f, false);
    for (world.pieces = 2; world.pieces <= SLI_CUDA_MOST_PIECES; world.pieces *= 2)
        close(compute(p, CHUNK, 0.25f, false), whole);
    return world.wrong;
}

std::string run_tiled(const char *text, uint64_t seed) {
    sli_problem p;
    if (!enter(text, seed, &p)) return world.wrong;
    const results apart = compute(p, CHUNK, 0.25f, false);
    for (const int rows : {32, 64}) {
        world.tiled = rows;
        close(compute(p, CHUNK, 0.25f, false), apart);
    }
    return world.wrong;
}

/* By launches, in tf32, the product as a loop rounds its operands, the wide one cuts v off; in runs operands are the same bits, sums are not. `more`: rows
 * that the plan has beyond those of the call, with three pieces; `first`: pieces of seed 0, then come others. */
std::string run_wide(const char *text, int more, int first, uint64_t seed, bool forward_runs = false, bool scaled = false) {
    sli_problem p;
    if (!enter(text, seed, &p)) return world.wrong;
    world.forward_runs = forward_runs;
    world.scaled = scaled;
    const results apart = compute(p, CHUNK, 0.25f, false);
    world.wide = 1 + (first - 1 + (int)(seed % 3)) % 3;
    world.planned = world.wide > 2 && more > 0 ? p.batch + more : 0;
    const results wide = compute(p, CHUNK, 0.25f, false);
    alike(wide, apart);
    world.huge = scaled;
    if (scaled) one_row(compute(p, CHUNK, 0.25f, false), wide, p);
    return world.wrong;
}

/* As they are planned and laid out, with as many stages held as on a GPU: nothing but runs has R. */
std::string run_planned(const char *text, uint64_t seed) {
    sli_problem p;
    if (!enter(text, seed, &p)) return world.wrong;
    const results apart = compute(p, CHUNK, 0.25f, false);
    world.caps.compute_capability = 90;
    world.caps.multiprocessors = 132;
    world.caps.shared_memory = 227 << 10;
    world.caps.l2_bytes = 1 << 18;
    world.runs = true;
    if (sli_step_all_runs(&p, &world.caps) != (p.dtype != SL_TF32)) complain("other steps are runs than was thought");
    if (sli_step_wide_of(&p, &world.caps, false).scaled != (p.dtype == SL_TF32)) complain("tf32 forward is of scaled operands alone");
    alike(compute(p, CHUNK, 0.25f, false), apart);
    return world.wrong;
}

/* The first trial that fails, with what is wrong. */
template <size_t N, class RUN> std::string each(const char *const (&texts)[N], const RUN &run) {
    for (const char *text : texts) {
        const std::string wrong = run(text);
        if (!wrong.empty()) return emulate_say("%s: %s", text, wrong.c_str());
    }
    return "";
}

} // namespace

EMULATE_CASE("recompute: gates of cuda:step computed again give the same bits") {
    return each(trials, [&](const char *text) { return run_trial(text, false, seed); });
}
EMULATE_CASE("recompute: parameters of 16 bits, whose gradients are rounded once") {
    const std::string wrong = each(narrow_trials, [&](const char *text) { return run_narrow(text, 0, seed); });
    return wrong.empty() ? each(narrow_wide_trials, [&](const char *text) { return run_narrow(text, 2, seed); }) : wrong;
}
EMULATE_CASE("recompute: sums over time from transposed copies have the same bits") {
    return each(transposed_trials, [&](const char *text) { return run_trial(text, true, seed); });
}
EMULATE_CASE("recompute: cells add the pieces of a product that is cut along k") {
    return each(pieces_trials, [&](const char *text) { return run_pieces(text, seed); });
}
EMULATE_CASE("recompute: tiled forward steps give what products and cells give") {
    return each(tiled_trials, [&](const char *text) { return run_tiled(text, seed); });
}
EMULATE_CASE("recompute: products of wide steps give what cuBLASLt's give") {
    return each(wide_trials, [&](const char *text) { return run_wide(text, 65, 1, seed); });
}
EMULATE_CASE("recompute: runs of wide steps give what steps of a launch each give") {
    return each(run_trials, [&](const char *text) { return run_wide(text, 0, 1, seed); });
}
EMULATE_CASE("recompute: runs of more pieces of k, planned for more rows") {
    return each(run_pieces_trials, [&](const char *text) { return run_wide(text, 5, 2, seed); });
}
EMULATE_CASE("recompute: runs forward in tf32 give what steps of a launch each give") {
    return each(tf32_run_trials, [&](const char *text) { return run_wide(text, 0, 1, seed, true); });
}
EMULATE_CASE("recompute: runs of scaled operands in tf32 give what steps of a launch each give") {
    return each(scaled_run_trials, [&](const char *text) { return run_wide(text, 3, 2, seed, true, true); });
}
EMULATE_CASE("recompute: runs as they are planned and laid out") {
    if (seed > 0) return ""; /* one order of threads: a second and more each */
    return each(planned_trials, [&](const char *text) { return run_planned(text, seed); });
}
