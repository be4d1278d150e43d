/* sluice.h - gated recurrent networks (LSTM, GRU, simple RNN) that train and run at the speed of the hardware.
 *
 * How to read this file
 * ---------------------
 * Sluice works in three calls: describe -> plan -> run.
 *
 *   1. A *model* (sl_model) is a description: a list of layers with named inputs. It owns no numbers.
 *   2. A *plan* (sl_plan) fixes batch, steps, precision and device, picks for every part the fastest kernel that
 *      computes exactly what was asked (and remembers why each other one was refused), and knows every byte before
 *      one is allocated.
 *   3. *Parameters* (sl_params) and *runs* (sl_run) are blocks of memory bound to a plan, on its device. A run computes: no
 *      choice, nothing is allocated. But for a GPU's first call of each kind, in which the driver may allocate. Kernels that
 *      are not built in are compiled (NVRTC), or read from the cache on disk, when a plan for a GPU that is there is made.
 *
 * Conventions, valid for every function below
 * -------------------------------------------
 * - A function returns sl_status; SL_OK is 0. On failure nothing is changed that the caller could see, output
 *   pointers are set to NULL, and sl_error_detail() holds one sentence: what is wrong, where, what to do. (Where a device
 *   fails in the middle of its work, SL_ERR_DEVICE, free the run and the params: what they hold is not known.)
 * - The library never exits, never prints, keeps no global state but libraries that it opened (BLAS, GPU plug-ins). Any
 *   function may be called from any thread, but one sl_run must not be used by two threads at once. sl_plan is immutable;
 *   sl_params is read-only in inference: both are shared freely. A plan must outlive its params and runs; a model may be freed
 *   once planned.
 * - Option structs are plain; a field of 0 means the default (Keras's, where Keras has one). Zero them first:
 *   `sl_plan_options options = {0};`. An options pointer may be NULL: all defaults.
 * - Strings given to the library are copied. Strings returned live as long as the object they came from.
 * - Names: B batch rows, T time steps, I input features, H units, P projected units, V vocabulary, G gates
 *   (LSTM 4: i f g o; GRU 3: r z n; RNN 1). Matrices are row-major; kernel [G*H][I], recurrent_kernel [G*H][H].
 * - Host arrays are time-major [T][B][features] unless sl_plan_options.batch_major is set: then [B][T][features]. All arrays
 *   of this file are host memory; sluice_interop.h takes memory of the device.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SL_VERSION_MAJOR 0
#define SL_VERSION_MINOR 1
#define SL_VERSION_PATCH 0

#if defined(_WIN32)
#define SL_API
#else
#define SL_API __attribute__((visibility("default")))
#endif

/* "0.1.0". */
SL_API const char *sl_version(void);

/* ------------------------------------------------------------------------------------------------------ status --
 * One list gives the code, its number (pinned for ever), its text and the exit code of the command. */
#define SL_STATUS_LIST(X)                                            \
    X(SL_OK, 0, 0, "done")                                           \
    X(SL_ERR_INTERNAL, 1, 1, "internal error (a bug in Sluice)")     \
    X(SL_ERR_CHECK, 2, 1, "a check failed")                          \
    X(SL_ERR_USAGE, 3, 2, "wrong use")                               \
    X(SL_ERR_INPUT, 4, 3, "bad input")                               \
    X(SL_ERR_FILE, 5, 3, "file cannot be read or is damaged")        \
    X(SL_ERR_SHAPE, 6, 3, "shapes do not fit")                       \
    X(SL_ERR_UNKNOWN, 7, 3, "unknown name")                          \
    X(SL_ERR_NO_KERNEL, 8, 4, "no kernel satisfies the requirement") \
    X(SL_ERR_MEMORY_LIMIT, 9, 5, "does not fit the memory limit")    \
    X(SL_ERR_OUT_OF_MEMORY, 10, 5, "out of memory")                  \
    X(SL_ERR_IO, 11, 6, "input/output failed")                       \
    X(SL_ERR_DEVICE, 12, 7, "device not available")                  \
    X(SL_ERR_NUMBERS, 13, 8, "numbers are not finite")               \
    X(SL_ERR_CANCELLED, 14, 0, "cancelled by the caller")

typedef enum sl_status {
#define SL_STATUS_ENUM(name, number, exit_code, text) name = number,
    SL_STATUS_LIST(SL_STATUS_ENUM)
#undef SL_STATUS_ENUM
} sl_status;

SL_API const char *sl_status_name(sl_status status); /* "SL_ERR_SHAPE" */
SL_API const char *sl_status_text(sl_status status); /* "shapes do not fit" */
SL_API int sl_status_exit_code(sl_status status);    /* 0..8, the exit code of the command */
/* The sentence of the last failure on this thread: what, where, what to do. Never NULL; "" if none failed yet. */
SL_API const char *sl_error_detail(void);

/* --------------------------------------------------------------------------------------------------- allocator --
 * All memory of an object comes from the allocator it was made with; NULL means malloc. alloc may return NULL;
 * `align` is a power of two >= 16. Both are called from the thread that calls Sluice. (JSON texts are parsed by
 * Jansson, whose own short-lived nodes come from malloc.) */
typedef struct sl_allocator {
    void *(*alloc)(void *context, size_t bytes, size_t align);
    void (*free)(void *context, void *pointer, size_t bytes);
    void *context;
} sl_allocator;

/* ----------------------------------------------------------------------------------------------- enumerations -- */
/* What matrix products are computed in, see sl_plan_options.dtype; the default is f32. CPUs have kernels for f32, f32x3,
 * bf16, i8 and f64, GPUs for f32, tf32, bf16, f16, f32x3. Another one is SL_ERR_NO_KERNEL.
 * i8 is for inference: recurrent and dense layers round each row of weights, and each row of what they multiply, to whole numbers
 * from -127 to 127 times a scale of its own, and add products of these exactly; everything else is f32. */
typedef enum sl_dtype { SL_DTYPE_DEFAULT, SL_F32, SL_F32X3, SL_TF32, SL_BF16, SL_F16, SL_I8, SL_F64 } sl_dtype;

typedef enum sl_activation {
    SL_ACT_DEFAULT, /* tanh for the cell, sigmoid for gates, linear for dense */
    SL_ACT_LINEAR,
    SL_ACT_TANH,
    SL_ACT_SIGMOID,
    SL_ACT_RELU,
    SL_ACT_HARD_SIGMOID,    /* Keras 3: clip(x/6 + 0.5, 0, 1) */
    SL_ACT_HARD_SIGMOID_K2, /* Keras 1 and 2, ONNX default: clip(0.2 x + 0.5, 0, 1) */
    SL_ACT_SOFTSIGN         /* x / (1 + |x|) */
} sl_activation;

typedef enum sl_direction_merge { /* Keras Bidirectional(merge_mode) */
                                  SL_UNIDIRECTIONAL,
                                  SL_BI_CONCAT,
                                  SL_BI_SUM,
                                  SL_BI_MUL,
                                  SL_BI_AVE
} sl_direction_merge;

typedef enum sl_bias {
    SL_BIAS_DEFAULT, /* one; GRU with reset after: two (Keras) */
    SL_BIAS_NONE,
    SL_BIAS_SINGLE,
    SL_BIAS_DOUBLE /* bias and recurrent_bias, as in PyTorch, cuDNN, char-rnn */
} sl_bias;

typedef enum sl_forget_bias_mode {                    /* LSTM only */
                                   SL_FORGET_DEFAULT, /* = SL_FORGET_IN_VARIABLE with value 1 (Keras unit_forget_bias) */
                                   SL_FORGET_NONE,    /* nothing is added or set (PyTorch, TF PTB tutorial) */
                                   SL_FORGET_IN_VARIABLE, /* the forget slice of `bias` starts at the value */
                                   SL_FORGET_AT_RUN /* the value is added to f's pre-activation in every step (TF BasicLSTMCell) */
} sl_forget_bias_mode;

typedef enum sl_masked_output {
    SL_MASKED_ZERO,  /* outputs of masked steps are 0 (cuDNN, PyTorch packed, ONNX) */
    SL_MASKED_REPEAT /* the previous output is repeated, zeros if none yet (Keras without zero_output_for_mask) */
} sl_masked_output;

typedef enum sl_init_kind {
    SL_INIT_DEFAULT, /* kernel glorot_uniform, recurrent orthogonal, bias zeros, embedding uniform 0.05 (Keras) */
    SL_INIT_ZEROS,
    SL_INIT_ONES,
    SL_INIT_CONSTANT /* value */,
    SL_INIT_UNIFORM /* U(-value, value) */,
    SL_INIT_NORMAL /* N(0, value^2) */,
    SL_INIT_TRUNCATED_NORMAL /* redrawn beyond 2 sigma */,
    SL_INIT_GLOROT_UNIFORM,
    SL_INIT_GLOROT_NORMAL,
    SL_INIT_HE_UNIFORM,
    SL_INIT_HE_NORMAL,
    SL_INIT_LECUN_UNIFORM,
    SL_INIT_LECUN_NORMAL,
    SL_INIT_ORTHOGONAL /* gain value, 0 = 1 */,
    SL_INIT_IDENTITY /* gain value, 0 = 1 */,
    SL_INIT_PYTORCH /* U(-1/sqrt(n), 1/sqrt(n)), n = units of a recurrent layer, inputs of a dense one;
                                embedding N(0, 1) */
} sl_init_kind;

typedef struct sl_init {
    sl_init_kind kind;
    double value;
} sl_init;

/* ------------------------------------------------------------------------------------------------------- model --
 * A model is a list of layers. Each layer reads named tensors and writes one called like the layer; a recurrent layer
 * with return_state also writes "NAME.h" (and "NAME.c" for LSTM; bidirectional: "NAME.forward.h", ...).
 * `inputs` is a NULL-terminated array of tensor names; NULL means: the output of the layer added last. */
typedef struct sl_model sl_model;
typedef struct sl_plan_options sl_plan_options; /* see `plan` below */

typedef enum sl_cell { SL_LSTM, SL_GRU, SL_RNN } sl_cell;

/* Options of a recurrent layer. Mathematics: LSTM Hochreiter & Schmidhuber 1997 / Gers 2000, GRU Cho 2014.
 *   LSTM  i,f,o = act_r(W x + R h + b), g = act(W x + R h + b), c = f*c' + i*g, h = o*act(c)
 *   GRU   r,z = act_r(W x + R h + b), n = act(Wx + b + r*(R h + b_r)) [reset after, Keras 2+, cuDNN]
 *         or n = act(W x + R (r*h') + b) [reset_before], h = (1-z)*n + z*h'
 *   RNN   h = act(W x + R h + b)
 * Inputs: x, or x and initial state(s): {"x", "h0"} (GRU, RNN) or {"x", "h0", "c0"} (LSTM), [B][P or H] and [B][H];
 * bidirectional: forward's state(s), then backward's. */
typedef struct sl_recurrent {
    int units;                          /* H >= 1, required */
    sl_activation activation;           /* default tanh */
    sl_activation recurrent_activation; /* default sigmoid; unused by RNN */
    sl_bias bias;
    sl_forget_bias_mode forget_bias_mode;
    double forget_bias;   /* used by the last two modes; 0 with SL_FORGET_DEFAULT means 1 */
    int return_sequences; /* 0: only the last output [B][H] (Keras default) */
    int return_state;
    int go_backwards; /* process in reverse and return in processed order (Keras) */
    int stateful; /* carry the final state of a run into the next until sl_run_reset_state; trainers: of streams alone */
    sl_direction_merge bidirectional;
    int reset_before;            /* GRU: r is applied before the recurrent product */
    int projection;              /* LSTM: P > 0, h = W_p (o*act(c)), no bias (PyTorch proj_size) */
    int peephole;                /* LSTM: i and f see c', o sees the new c, diagonal (Gers 2002) */
    double cell_clip;            /* LSTM: c is clipped to +-value before o's peephole and tanh (TF); 0 = off */
    double recurrent_dropout;    /* one mask on h' a sequence, shared by all gates, scaled by 1/(1-p) (Gal &
                                  * Ghahramani 2016, tied weights; Keras draws one such mask a gate: same expectation) */
    double zoneout_h, zoneout_c; /* Krueger 2016: keep the old value with probability p; inference: expectation */
    sl_masked_output masked_output;
    sl_init kernel_init, recurrent_init, bias_init;
} sl_recurrent;

typedef struct sl_embedding {
    int vocabulary;
    int units;
    sl_init init;
} sl_embedding;

typedef struct sl_dense {     /* y = act(W x + b), over every step if x has steps; kernel [units][I] */
    int units;                /* required; with tied weights the vocabulary of the Embedding */
    sl_activation activation; /* default linear */
    int no_bias;
    const char *tied_to; /* name of an Embedding whose [V][E] table is this kernel; NULL: own kernel */
    sl_init kernel_init, bias_init;
} sl_dense;

typedef enum sl_merge { SL_MERGE_ADD, SL_MERGE_CONCAT, SL_MERGE_MULTIPLY, SL_MERGE_AVERAGE } sl_merge;

/* allocator: see above, may be NULL. */
SL_API sl_status sl_model_new(const sl_allocator *allocator, sl_model **model);
SL_API void sl_model_free(sl_model *model); /* NULL is allowed, here and in every _free */
/* A float input [T][B][features], or [B][features] if no_steps. */
SL_API sl_status sl_model_add_input(sl_model *model, const char *name, int features, int no_steps);
/* An integer input: tokens int32 [T][B], each in [0, vocabulary). */
SL_API sl_status sl_model_add_tokens(sl_model *model, const char *name, int vocabulary);
SL_API sl_status sl_model_add_recurrent(sl_model *model, const char *name, sl_cell cell, const sl_recurrent *options,
                                        const char *const *inputs);
SL_API sl_status sl_model_add_embedding(sl_model *model, const char *name, const sl_embedding *options,
                                        const char *const *inputs);
/* One-hot vectors of a token input (Keras CategoryEncoding, output_mode one_hot). */
SL_API sl_status sl_model_add_one_hot(sl_model *model, const char *name, int vocabulary, const char *const *inputs);
SL_API sl_status sl_model_add_dense(sl_model *model, const char *name, const sl_dense *options,
                                    const char *const *inputs);
/* Zeroes with probability `rate` in training and scales the rest by 1/(1-rate). */
SL_API sl_status sl_model_add_dropout(sl_model *model, const char *name, double rate, const char *const *inputs);
/* Add, Concatenate (features), Multiply, Average of two to four tensors of equal leading shape. */
SL_API sl_status sl_model_add_merge(sl_model *model, const char *name, sl_merge kind, const char *const *inputs);
/* The tensors a run returns; default: the output of the last layer. NULL-terminated. */
SL_API sl_status sl_model_set_outputs(sl_model *model, const char *const *outputs);
/* Name of input number `index`, NULL past the last. *vocabulary > 0: tokens [T][B]; else floats with *features, and *has_steps
 * says whether [T][B][features] or [B][features]. The pointers may be NULL. */
SL_API const char *sl_model_input(const sl_model *model, int index, int *vocabulary, int *features, int *has_steps);
/* Model JSON: Keras Sequential JSON; our extra keys are `inputs` and `sluice` inside a layer's config. An unknown key
 * is an error that names it. *text is allocated by the model and valid until the next call or sl_model_free. */
SL_API sl_status sl_model_from_json(const sl_allocator *allocator, const char *text, size_t bytes, sl_model **model);
SL_API sl_status sl_model_to_json(sl_model *model, const char **text);
/* A model of one problem string ("lstm:l2_b20_t35_i650_h650_train"): input "x", layers "rnn1", "rnn2"...; fills batch,
 * steps, dtype, train, masking and recompute_gates of *options, which may be NULL; of a loss, norm or optim what it is about, too. */
SL_API sl_status sl_model_from_problem(const sl_allocator *allocator, const char *problem, sl_model **model,
                                       sl_plan_options *options);

/* -------------------------------------------------------------------------------------------------------- plan -- */
typedef struct sl_plan sl_plan;

typedef enum sl_masking {
    SL_MASK_NONE,
    SL_MASK_LENGTHS /* per row */,
    SL_MASK_STEPS /* per row and step, any holes */
} sl_masking;

typedef enum sl_loss {
    SL_LOSS_NONE,    /* the others are of the first output alone */
    SL_LOSS_SOFTMAX, /* softmax cross-entropy from logits; int32 labels [T][B] or [B], -1 is ignored */
    SL_LOSS_BINARY,  /* binary cross-entropy from logits; float targets in [0, 1] like the output */
    SL_LOSS_MSE      /* mean squared error; float targets like the output */
} sl_loss;

typedef enum sl_reduction {
    SL_REDUCE_MEAN,    /* over every valid element (Keras, PyTorch) */
    SL_REDUCE_SUM_TIME /* sum over steps, mean over batch rows and features (Zaremba 2014, TF PTB tutorial, char-rnn) */
} sl_reduction;

typedef enum sl_optimizer_kind { SL_SGD, SL_ADAM, SL_ADAMW, SL_RMSPROP } sl_optimizer_kind;

/* SGD: m = momentum*m + g; p -= lr*m (Nesterov: p -= lr*(g + momentum*m)). Adam, AdamW: Kingma 2015, Loshchilov 2019.
 * RMSprop: v = rho*v + (1-rho)*g^2; p -= lr*g/(sqrt(v)+epsilon). As PyTorch computes them. */
typedef struct sl_optimizer {
    sl_optimizer_kind kind;
    double momentum;
    int nesterov;
    double beta1, beta2; /* 0: 0.9, 0.999 */
    double rho;          /* 0: 0.9 */
    double epsilon;      /* 0: 1e-8 */
    double weight_decay; /* SGD, Adam, RMSprop: L2 added to g; AdamW: decoupled, 0 means 0.01 there; at most 1e6 */
} sl_optimizer;

typedef enum sl_clip_kind {
    SL_CLIP_NONE,
    SL_CLIP_VALUE,
    SL_CLIP_NORM /* each tensor */,
    SL_CLIP_GLOBAL_NORM
} sl_clip_kind;
typedef struct sl_clip {
    sl_clip_kind kind;
    double value;
} sl_clip;

typedef enum sl_tune {
    SL_TUNE_NEVER, /* kernels by predicted time; no file is read */
    SL_TUNE,
    SL_TUNE_AGAIN
} sl_tune;

/* The program's own threads, in place of those that each run on a CPU makes. parallel_for calls task(task_context, i) once for each
 * i from 0 to count - 1 and returns when all have returned. They may run in any order, on any threads, at the same time or one
 * after another: the numbers do not depend on it. It is called from the thread that uses the run, never from inside a task, and
 * cannot fail. A task may wait for what another task has begun, spinning and then asleep, never for one that has not begun:
 * so a task that has begun must be able to go on whatever others do, as on a thread, and its stack have 128 kB. */
typedef struct sl_thread_pool {
    void (*parallel_for)(void *context, int count, void (*task)(void *task_context, int index), void *task_context);
    void *context;
} sl_thread_pool;

struct sl_plan_options {
    int batch; /* B, 0 = 1 */
    int steps; /* the largest T of one call, 0 = 1 */
    int train; /* book gradients, saved activations, optimizer */
    /* What matrix products are computed in: f32; bf16, tf32 (GPU), f16 (GPU): operands are rounded to it, sums are f32 (tf32: in fused kernels whose
     * h has a bound, forward, in f16 times powers of two, the same bits; given states above 4000 are NaN there); f32x3: f32 on tensor cores where that
     * is faster, to less than 2^-21 of each product: on GPUs by three tf32 products, on CPUs with AMX by six bf16 products (2^-23; operands that are
     * not finite, or beyond 3.38e38, give NaN), on other CPUs it is f32. Parameters, optimizer state, cell state, activations between layers and
     * pointwise mathematics are f32 in all of these. There tanh errs by at most 6 ulp and sigmoid by 3e-7; where only rounded values follow by more: in
     * tf32 and f16 on GPUs by 2e-7 (absolute), in bf16 by 2^-11 and 2^-12 on GPUs, by 1.1e-3 and 5e-4 on CPUs. On CPUs with AMX or AVX512_BF16 bf16
     * training keeps gates in f16 and multiplies their gradients as bf16. Kernels "cudnn:*" compute as cuDNN does. f64 runs on the reference kernels.
     * f16 training scales its loss by itself (sl_result.loss_scale). */
    sl_dtype dtype;
    /* "auto" (the first GPU that can be used, else the CPU, with a note where there is one that cannot; always the CPU for f64, i8 and
     * where `require` is "ref" or begins with "cpu:"), "cpu", "cuda:0", "cuda:1"...; invented for planning: "cpu:base", "cpu:avx2", "cuda:sm_80", "cuda:sm_90" (an H200),
     * "cuda:sm_100"; NULL = auto */
    const char *device;
    /* Kernel name ("cuda:step"), prefix ending in ':' ("cudnn:"), or the word "fused" (no step engine, cuDNN or reference);
     * recurrent problems only; NULL: any */
    const char *require;
    size_t memory_limit; /* bytes for block and parameters together; 0 = none; a GPU's free memory limits it as well */
    int threads;         /* 0 = by affinity mask and cgroup quota */
    /* CPU: copied; what its context points to must outlive runs and parameters. `threads` says how many it has. NULL: own threads */
    const sl_thread_pool *thread_pool;
    sl_masking masking;
    int batch_major; /* host arrays are [B][T][features]; a run then has host memory of its own, beside its block, for the largest of them */
    int input_gradients; /* also compute gradients of float inputs and of given initial states */
    sl_loss loss;
    sl_reduction reduction;
    sl_optimizer optimizer;
    sl_clip clip;
    int no_graph; /* GPU: launch every kernel anew instead of replaying calls of full size as one CUDA graph each */
    /* Training: recurrent layers keep h and c of every step, not the gates, and compute those again in backward, a chunk of steps at a
     * time: one more product with each weight matrix. Memory for time; last bits of gradients may differ. Kernels that cannot do it refuse. */
    int recompute_gates;
    /* bf16 and f16, on GPUs: 16 bits for parameters and their gradients, without updates; for tensors with time and theirs, as PyTorch has
     * them. Sums are f32, rounded when they are added to what is there. Without a loss; kernels that cannot do it refuse. */
    int narrow_parameters, narrow_tensors;
    const sl_allocator *allocator;
    /* Which kernels compute the recurrent problems, in place of what is predicted: lines "PROBLEM KERNEL", the problem as
     * sl_plan_explain prints it, KERNEL@CUT where a kernel can cut the work in several ways; "PROBLEM parts" for a stack, or both
     * directions, that is not to be one problem; then, if it was timed, the microseconds of a call; # begins a comment. A line that cannot be
     * obeyed is explained, and planned for as if it were not there; a line of another form is an error. sl_plan_choices gives a plan's. NULL: none. */
    const char *choices;
    /* Choose by timing: every eligible kernel of every recurrent problem that `choices` leaves open runs on the device, for a few
     * tenths of a second a problem. What was timed before on the same machine with the same libraries is remembered in
     * $XDG_CACHE_HOME/sluice/tuned.txt and not timed again, unless SL_TUNE_AGAIN. */
    sl_tune tune;
};

/* Copies what it needs of `model`. On SL_ERR_MEMORY_LIMIT the detail names the bytes and the cheapest remedies. */
SL_API sl_status sl_plan_new(const sl_model *model, const sl_plan_options *options, sl_plan **plan);
SL_API void sl_plan_free(sl_plan *plan);

typedef struct sl_memory {                                        /* bytes of the device's memory, exact */
    size_t parameters, packed, optimizer;                         /* the block of sl_params is their sum */
    size_t gradients, activations, saved, scratch, state, inputs; /* before lifetimes are overlapped */
    size_t params_block;                                          /* what sl_params_new allocates */
    size_t run_block;    /* what sl_run_new allocates: the parts above, overlapped where lifetimes allow */
    size_t blas_buffers; /* CPU: memory that a BLAS library keeps for itself, an estimate; not part of the blocks */
    int segments;        /* 1, or the number of time segments whose activations are recomputed in backward */
} sl_memory;
SL_API void sl_plan_memory(const sl_plan *plan, sl_memory *memory);

/* A table for people: what is computed in what, on which device; layer, problem, chosen kernel, each refused or slower kernel
 * with its reason, FLOPs, bytes, predicted time of a call and of a time step. Owned by the plan. sl_plan_explain_json: the same as one JSON object. */
SL_API const char *sl_plan_explain(const sl_plan *plan);
SL_API const char *sl_plan_explain_json(const sl_plan *plan);
/* The kernels of the recurrent problems as sl_plan_options.choices: another plan of the model takes the same with them. */
SL_API const char *sl_plan_choices(const sl_plan *plan);
/* Distinct kernels of the recurrent problems, comma-separated ("cuda:step,cudnn:standard"); for logs. */
SL_API const char *sl_plan_kernels(const sl_plan *plan);
/* What is otherwise than asked for or than one might think, a sentence a line, as at the end of the explanation: device auto is the CPU
 * although there is a GPU, choices that are not taken, what tuning could not do. "": nothing. Owned by the plan. */
SL_API const char *sl_plan_notes(const sl_plan *plan);
SL_API int sl_plan_threads(const sl_plan *plan);
SL_API const char *sl_plan_device(const sl_plan *plan); /* the one taken: "cpu", "cuda:0" */
SL_API double sl_plan_flops(const sl_plan *plan);       /* of one call at full size, training if planned so */

/* ------------------------------------------------------------------------------------------------- parameters -- */
typedef struct sl_params sl_params;

/* Allocates sl_memory.params_block bytes; every value is 0 until initialised, set or loaded. SL_ERR_DEVICE for a plan of an
 * invented device. */
SL_API sl_status sl_params_new(const sl_plan *plan, sl_params **params);
SL_API void sl_params_free(sl_params *params);
/* Every parameter by its layer's initialiser. While an orthogonal one is drawn it takes 8 bytes a value more of the host. */
SL_API sl_status sl_params_init(sl_params *params, uint64_t seed);
SL_API int sl_params_count(const sl_params *params);
/* "LAYER.kernel"; rows x columns (a vector has rows = 1). NULL if index is out of range. */
SL_API const char *sl_params_name(const sl_params *params, int index, int *rows, int *columns);
/* Copies rows*columns values; count must match exactly. f64 plans keep doubles, so neither call loses bits there. */
SL_API sl_status sl_params_get(const sl_params *params, const char *name, double *values, size_t count);
SL_API sl_status sl_params_set(sl_params *params, const char *name, const double *values, size_t count);

/* --------------------------------------------------------------------------------------------------------- run -- */
typedef struct sl_run sl_run;

/* One call's data, borrowed for the call. batch <= plan's B, steps <= plan's T. */
typedef struct sl_batch {
    int batch, steps;
    const void *const *inputs; /* one per model input, in order: float (double in f64 plans) or int32 tokens */
    const int32_t *lengths;    /* [batch], 0..steps; with SL_MASK_LENGTHS; NULL = all full */
    const uint8_t *mask;       /* [T][B] (batch_major: [B][T]), 0 = masked; with SL_MASK_STEPS; NULL = all valid */
    const void *targets;       /* labels int32 or float (double in f64) targets; NULL where no loss is wanted */
} sl_batch;

typedef struct sl_result { /* of a call that computes a loss */
    double loss;           /* as reduced by the plan */
    double loss_sum;       /* sum over valid elements, nats for cross-entropies */
    double count;          /* valid elements */
    double correct;        /* softmax: argmax hits; binary: right sides of 0 */
    double gradient_norm;  /* global, before clipping, not finite where gradients overflowed; 0 where not computed */
    double loss_scale;     /* f16 training: the factor that the loss is multiplied by now; else 0 */
    double skipped_steps;  /* f16 training: updates left out so far because gradients overflowed */
} sl_result;

/* Allocates sl_memory.run_block bytes on the device. In inference several runs may share params. */
SL_API sl_status sl_run_new(const sl_plan *plan, sl_params *params, sl_run **run);
SL_API void sl_run_free(sl_run *run);
/* Inference: no dropout, zoneout by expectation. Returns when it is done. */
SL_API sl_status sl_run_forward(sl_run *run, const sl_batch *batch);
/* Inference with targets, of a plan with a loss: fills *result. */
SL_API sl_status sl_run_evaluate(sl_run *run, const sl_batch *batch, sl_result *result);
/* Copies output `name` (NULL: the first) of the last forward: [T][B][F] (batch_major: [B][T][F]), or [B][F]. `count` is
 * the number of elements of `values`, and must match. float in every plan but f64's: double. Not after a backward
 * pass whose loss reused the memory. */
SL_API sl_status sl_run_output(sl_run *run, const char *name, void *values, size_t count);
/* Shape of output `name` in the last call: steps 0 if it has none. */
SL_API sl_status sl_run_output_shape(sl_run *run, const char *name, int *steps, int *batch, int *features);

/* Training. `step` numbers the optimizer step: with the run's seed (0 until it is set) it keys every random mask. */
SL_API sl_status sl_run_set_seed(sl_run *run, uint64_t seed);
/* Forward and backward; gradients are *added* to the run's accumulators. With a loss in the plan, `d_outputs` is NULL and
 * the loss's gradient is multiplied by `scale` (1 / micro-batches). Without one, `d_outputs` holds one gradient per model
 * output, shaped like it (NULL entries are zero), taken as it is. `micro_step` numbers the micro-batch within the step.
 * *result may be NULL. Afterwards outputs can be read only in a plan without a loss. */
SL_API sl_status sl_run_gradients(sl_run *run, const sl_batch *batch, const void *const *d_outputs, uint32_t step,
                                  uint32_t micro_step, double scale, sl_result *result);
/* Clip, optimizer step with this learning rate, pack, zero the accumulators. *result, which may be NULL, gets gradient_norm and in
 * f16 loss_scale and skipped_steps. Gradients that are not finite leave the parameters as they are; such an update does not
 * count as an optimizer step. */
SL_API sl_status sl_run_update(sl_run *run, double learning_rate, sl_result *result);
/* sl_run_gradients (micro_step 0, scale 1) and sl_run_update as one, queued without waiting for the device: on a GPU one CUDA
 * graph, recorded at the first call of full size. At most sl_run_depth steps may be uncollected. The batch is copied. Collect
 * every step before parameters are read or written.
 * Gradients that are not finite leave the parameters as they are (gradient_norm of that step shows it). */
SL_API sl_status sl_run_step(sl_run *run, const sl_batch *batch, uint32_t step, double learning_rate);
/* Waits for the oldest uncollected step and fills *result (gradient_norm too). SL_ERR_USAGE if there is none. */
SL_API sl_status sl_run_step_result(sl_run *run, sl_result *result);
/* 1 on devices that work at once (CPU), 2 on a GPU: the host may prepare one step while the device computes another. */
SL_API int sl_run_depth(const sl_run *run);
SL_API sl_status sl_run_zero_gradients(sl_run *run);
/* The accumulated gradient of a parameter (rows*columns values, count must match), without the factor of f16's loss scaling. */
SL_API sl_status sl_run_gradient(sl_run *run, const char *parameter, double *values, size_t count);
/* Gradient of float input `index` after sl_run_gradients (input_gradients plans); like sl_run_output. */
SL_API sl_status sl_run_input_gradient(sl_run *run, int index, void *values, size_t count);

/* State carried by `stateful` layers, as a plain blob (float, or double in f64 plans). */
SL_API sl_status sl_run_reset_state(sl_run *run);
SL_API size_t sl_run_state_bytes(const sl_run *run);
SL_API sl_status sl_run_get_state(sl_run *run, void *blob, size_t bytes);
SL_API sl_status sl_run_set_state(sl_run *run, const void *blob, size_t bytes);
/* The first layer whose output in the last call holds a NaN or infinity; NULL if none. */
SL_API const char *sl_run_first_nonfinite(sl_run *run);

/* Where the time of this run's calls goes, from begin to end. `parts` gets seconds on the device, the largest first: "recurrence"
 * (on a CPU with the products of recurrent layers), "matrix products", "softmax and losses", "optimizer", "copies", "launch
 * gaps", "other". SL_ERR_DEVICE where the device cannot tell. */
enum { SL_PROFILE_PARTS = 7 };
typedef struct sl_profile_part {
    const char *name;
    double seconds;
} sl_profile_part;
SL_API sl_status sl_run_profile_begin(sl_run *run);
SL_API sl_status sl_run_profile_end(sl_run *run, sl_profile_part parts[SL_PROFILE_PARTS]);
/* What a recurrent layer (a stack, one direction) took of a time step in the last profile; in seconds, with the products that
 * belong to it, but for a layer's weight gradients that run beside the layer below ("late" in the plan). 0 if `index` is past the
 * last. */
typedef struct sl_step_time {
    const char *layer, *problem, *kernel; /* the plan's */
    double predicted;                     /* forward and backward, if the plan trains; negative: no prediction */
    double forward, backward;             /* forward negative: not measured; backward 0 without training */
} sl_step_time;
SL_API int sl_run_step_time(const sl_run *run, int index, sl_step_time *time);
/* sl_plan_explain and, after a profile, a line for each recurrent layer with measured and predicted microseconds of a time step.
 * Owned by the run, until the next call. NULL: memory. */
SL_API const char *sl_run_explain(sl_run *run);

/* ----------------------------------------------------------------------------------------------------- devices --
 * The devices of this machine and what is missing for others, one per index; NULL past the end. *detail (may be NULL)
 * gets a sentence: instruction sets, threads, or why the device cannot be used. Strings are static or thread-local,
 * valid until the next call on this thread. */
SL_API const char *sl_device_name(int index, const char **detail, int *usable);

/* -------------------------------------------------------------------------------------------------- model file --
 * safetensors: parameters in the internal gate order, optimizer slots "optim.SLOT.LAYER.param", carried states
 * "state.LAYER.h", and in __metadata__ format, version, model (JSON), vocabulary, training. Nothing else is needed to
 * evaluate or generate. */
typedef struct sl_file sl_file;

SL_API sl_status sl_file_open(const sl_allocator *allocator, const char *path, sl_file **file);
/* From memory; `bytes` is borrowed until sl_file_close. */
SL_API sl_status sl_file_open_memory(const sl_allocator *allocator, const void *bytes, size_t size, sl_file **file);
SL_API void sl_file_close(sl_file *file);
SL_API const char *sl_file_metadata(const sl_file *file, const char *key);                  /* NULL if absent */
SL_API const char *sl_file_metadata_at(const sl_file *file, int index, const char **value); /* key; NULL past the end */
typedef struct sl_tensor_info {
    const char *name;
    const char *dtype;
    int rank;
    int64_t shape[8];
    const void *data;
    size_t bytes;
} sl_tensor_info;
SL_API int sl_file_tensor_count(const sl_file *file);
SL_API sl_status sl_file_tensor(const sl_file *file, int index, sl_tensor_info *info);
SL_API int sl_file_find(const sl_file *file, const char *name); /* index, or -1 */
SL_API sl_status sl_file_model(const sl_file *file, sl_model **model);
/* Every parameter of `params` must be in the file with its shape. */
SL_API sl_status sl_file_load_params(const sl_file *file, sl_params *params);
/* `params` belong to a plan of `model`, else SL_ERR_USAGE. Writes atomically (temporary file in the same folder, fsync, rename).
 * metadata: key, value, key, value, ..., NULL. SL_ERR_NUMBERS: a parameter is not finite; what was at `path` stays. */
SL_API sl_status sl_file_save(const char *path, sl_model *model, const sl_params *params, const char *const *metadata);

/* A trained model for inference step by step, one row, without this library's planner: layers one after the other, of one
 * direction, that lead to the model's first output. What cannot be one is SL_ERR_INPUT. */
typedef enum sl_convert_form {
    SL_CONVERT_STREAM, /* a stream model (.slm), run by sluice_stream.h */
    SL_CONVERT_C       /* one C99 file, weights included, that calls nothing: NAME_reset, NAME_step */
} sl_convert_form;
typedef struct sl_convert {
    sl_convert_form form;
    const char *name; /* C: NAME; NULL: the file's name without its ending */
    sl_dtype
        dtype; /* C: f32 (the default), or i8: weights of 8 bits, a quarter of the memory, the numbers of a plan in i8 */
} sl_convert;
/* `params` are of a plan of `model`, `name` can begin names of C, else SL_ERR_USAGE. Atomic; options NULL: a stream model. */
SL_API sl_status sl_model_convert(const sl_model *model, sl_params *params, const sl_convert *options,
                                  const char *path);

/* ------------------------------------------------------------------------------------------------------- arrays --
 * NumPy .npy files, version 1-3, little-endian f4 f8 i4 i8 u1 b1, C order. */
typedef enum sl_array_type {
    SL_ARRAY_F32,
    SL_ARRAY_F64,
    SL_ARRAY_I32,
    SL_ARRAY_I64,
    SL_ARRAY_U8,
    SL_ARRAY_BOOL
} sl_array_type;
typedef struct sl_array {
    sl_array_type type;
    int rank;
    int64_t shape[8];
    void *data;
    size_t bytes;
    sl_allocator allocator;
} sl_array;
SL_API sl_status sl_npy_read(const sl_allocator *allocator, const char *path, sl_array *array);
SL_API sl_status sl_npy_read_memory(const sl_allocator *allocator, const void *bytes, size_t size, sl_array *array);
SL_API sl_status sl_npy_write(const char *path, const sl_array *array); /* atomically */
SL_API void sl_array_free(sl_array *array);

/* --------------------------------------------------------------------------------------------- text, vocabulary -- */
typedef enum sl_level { SL_LEVEL_CHAR /* UTF-8 code points */, SL_LEVEL_WORD, SL_LEVEL_BYTE } sl_level;
typedef struct sl_vocabulary sl_vocabulary;

/* The files' bytes, one after the other, with nothing between them and without a byte order mark that a later one begins with; "-" is
 * standard input. *text is terminated by 0; free it with sl_text_free. A path that cannot be read is SL_ERR_FILE, a text of no bytes SL_ERR_INPUT. */
SL_API sl_status sl_text_read(const sl_allocator *allocator, const char *const *paths, int count, char **text,
                              size_t *bytes);
SL_API void sl_text_free(char *text);

/* Counts the tokens of `text` (UTF-8 at char and word level, without a byte order mark; else SL_ERR_INPUT with the byte) and keeps the
 * `limit` most frequent (0 = all, else at least 3; ties by first appearance). Word level: split at ASCII white space, "<eos>" for every line
 * end, "<unk>" for what is not kept or unknown; it comes last, unless the text holds it as a word (Penn Treebank's plain format: its words and
 * <eos> are 10,000). Both count within `limit`. Char level: U+FFFD stands for what is not kept. Byte level: always the 256 bytes. */
SL_API sl_status sl_vocabulary_new(const sl_allocator *allocator, sl_level level, const char *text, size_t bytes,
                                   int limit, sl_vocabulary **vocabulary);
SL_API sl_status sl_vocabulary_from_json(const sl_allocator *allocator, const char *json, sl_vocabulary **vocabulary);
SL_API const char *sl_vocabulary_to_json(sl_vocabulary *vocabulary); /* owned by the vocabulary; NULL: memory */
SL_API void sl_vocabulary_free(sl_vocabulary *vocabulary);
SL_API int sl_vocabulary_size(const sl_vocabulary *vocabulary);
SL_API sl_level sl_vocabulary_level(const sl_vocabulary *vocabulary);
/* Bytes of token `id` (not terminated by 0); "<eos>" decodes to a line end. */
SL_API const char *sl_vocabulary_token(const sl_vocabulary *vocabulary, int id, size_t *bytes);
/* *tokens is allocated with the vocabulary's allocator; free with sl_tokens_free. What is not in the vocabulary becomes
 * <unk> (U+FFFD at char level), or is SL_ERR_INPUT where the vocabulary has none. */
SL_API sl_status sl_vocabulary_encode(const sl_vocabulary *vocabulary, const char *text, size_t bytes, int32_t **tokens,
                                      size_t *count);
SL_API void sl_tokens_free(const sl_vocabulary *vocabulary, int32_t *tokens, size_t count);

/* ----------------------------------------------------------------------------------------------------- training -- */
typedef enum sl_schedule_kind {
    SL_SCHEDULE_CONSTANT,
    SL_SCHEDULE_STEP,        /* lr * factor^(floor(step / every)) */
    SL_SCHEDULE_EXPONENTIAL, /* lr * factor^(step / every) */
    SL_SCHEDULE_COSINE,      /* linear warm-up over `warmup` steps, then a half cosine down to `minimum` at `total` */
    SL_SCHEDULE_EPOCH_DECAY, /* constant for `hold` epochs, then * factor every epoch (PTB, char-rnn) */
    SL_SCHEDULE_PLATEAU      /* / factor when the validation loss did not improve (PyTorch word_language_model) */
} sl_schedule_kind;
typedef struct sl_schedule {
    sl_schedule_kind kind;
    double factor;
    int64_t every, warmup, total;
    int hold;
    double minimum;
} sl_schedule;

typedef enum sl_split {
    SL_SPLIT_TAIL,  /* the last part of the text validates, as one stream */
    SL_SPLIT_BLOCKS /* char-rnn: text cut to a multiple of B*T, B streams, the last T-blocks of every stream validate */
} sl_split;

typedef struct sl_training {
    int batch, steps, epochs; /* steps: T, the truncation of BPTT */
    uint64_t seed;
    sl_optimizer optimizer;
    double learning_rate;
    sl_schedule schedule;
    sl_clip clip;
    sl_loss loss;
    sl_reduction reduction;
    int accumulate; /* micro-batches a step, 0 = 1: rows of the batch in equal parts; the same step */
    int patience;   /* stop after so many epochs without improvement; 0 = never */
    double min_delta;
    double valid_fraction;
    sl_split split;
    int shuffle; /* array data: new order every epoch */
    sl_masking masking;
    double init_scale; /* > 0: every parameter U(-scale, scale), before forget biases are set */
    sl_dtype dtype;    /* this and the next six: as in sl_plan_options */
    const char *device, *require;
    size_t memory_limit;
    int threads;
    int no_graph, recompute_gates;
    double max_minutes;   /* 0 = no limit */
    const char *task;     /* "lm" or "array"; what sl_training_from_json found */
    sl_level level;       /* lm: how a text becomes tokens, */
    int vocabulary_limit; /* and how many are kept, 0 = all */
    int drop_partial;     /* token streams, tail split: leave out a last block of less than T steps (PTB scripts) */
    int keep_state;       /* token streams: the state also survives the end of an epoch (char-rnn) */
    sl_tune tune;         /* this and the next two: as in sl_plan_options */
    const char *choices;
    const sl_thread_pool *thread_pool; /* must live as long as the trainer */
} sl_training;

/* A description with its training options, as `sluice train --print-model` prints it: model JSON with a top-level key
 * "sluice": {"task": "lm" | "array", "text": {...}, "training": {...}}. It holds what decides the numbers; where and how
 * long to run (device, require, memory_limit, threads, no_graph, recompute_gates, max_minutes, tune, choices) is left 0. A text without "sluice" gives zeros. */
SL_API sl_status sl_training_from_json(const char *text, size_t bytes,
                                       sl_training *training); /* strings: static names */
/* The whole document; *text as in sl_model_to_json. `task` NULL: training->task, or "array" if that is NULL too. */
SL_API sl_status sl_training_to_json(sl_model *model, const sl_training *training, const char *task, const char **text);
/* The options that a model file was trained with, as its metadata "training" holds them; SL_ERR_INPUT if it has none. */
SL_API sl_status sl_file_training(const sl_file *file, sl_training *training);
/* A published configuration: "char-rnn", "ptb-small", "ptb-medium", "ptb-large" for a vocabulary of V tokens. */
SL_API sl_status sl_preset(const sl_allocator *allocator, const char *name, int vocabulary, sl_model **model,
                           sl_training *training);

/* Data to fit: arrays or one token stream; borrowed, must outlive the trainer. */
typedef struct sl_dataset {
    const int32_t *tokens;
    size_t token_count;      /* a language model's stream, or NULL */
    const sl_array *x, *y;   /* x [N][T][F], [N][F] or tokens [N][T]; y labels or targets */
    const sl_array *lengths; /* int32 or int64 [N], or NULL; floats beyond may be anything, tokens and labels not */
} sl_dataset;

typedef struct sl_progress {   /* borrowed for the call */
    const char *event;         /* "step", "epoch" (loss: its mean), "evaluation", "checkpoint", "early_stop", "stop" */
    int64_t step, total_steps; /* optimizer steps done; in all */
    int epoch;                 /* epochs done */
    /* loss: mean over the tokens (elements) of the last step, nats; perplexity: its exponential, softmax only, else NaN;
     * gradient_norm: as in sl_result, not finite in a step that f16 left out */
    double loss, perplexity, learning_rate, gradient_norm, tokens_per_second, seconds, eta_seconds;
    size_t memory_bytes;
    const char *kernel;
    double valid_loss, best_loss; /* per token; NaN before the first evaluation */
    int total_epochs;
    int64_t tokens;                   /* trained on (rows x steps) since sl_trainer_fit was called */
    double accuracy;                  /* correct / count of this step or evaluation; NaN where the loss has none */
    int improved;                     /* evaluation: the best so far */
    const char *path;                 /* checkpoint: the file written; NULL otherwise */
    double loss_scale, skipped_steps; /* f16 training, as in sl_result; else 0 */
} sl_progress;
typedef enum sl_answer {
    SL_CONTINUE,
    SL_STOP_SAVING /* finish the steps under way (sl_run_depth), save, evaluate, return SL_OK */,
    SL_ABORT /* SL_ERR_CANCELLED at once */
} sl_answer;

typedef struct sl_trainer sl_trainer;
/* Plans, allocates, initialises. `path`: the model file (best so far; PATH.last is the resume point), NULL = write none.
 * `valid` may be NULL: then training.valid_fraction of a token stream validates, or nothing does: then PATH is
 * the resume point, and the first save removes a PATH.last of an earlier training. `metadata`: extra key, value, ..., NULL of the
 * file (vocabulary). */
SL_API sl_status sl_trainer_new(sl_model *model, const sl_training *training, const sl_dataset *train,
                                const sl_dataset *valid, const char *path, const char *const *metadata,
                                sl_trainer **trainer);
SL_API void sl_trainer_free(sl_trainer *trainer);
SL_API const sl_plan *sl_trainer_plan(const sl_trainer *trainer);
SL_API sl_params *sl_trainer_params(sl_trainer *trainer);
/* Parameters only, from another model file (--init-from). */
SL_API sl_status sl_trainer_init_from(sl_trainer *trainer, const char *path);
/* Everything from PATH.last: goes on to the same bits as an uninterrupted run. SL_ERR_FILE if there is none. It holds the choices
 * of the first run's plan (sl_plan_choices), which count instead of what training.choices, tune and predictions say: plan and
 * params may be others than before. On another kind of device, in another dtype, or where a kernel cannot be had any more, kernels
 * are chosen as for a new training, and sl_trainer_note says so. */
SL_API sl_status sl_trainer_resume(sl_trainer *trainer);
/* What resuming could not keep, one sentence; NULL: nothing. */
SL_API const char *sl_trainer_note(const sl_trainer *trainer);
SL_API sl_status sl_trainer_fit(sl_trainer *trainer, sl_answer (*progress)(void *context, const sl_progress *progress),
                                void *context);

/* The profile of the training calls: begin, fit, end; then what its run's sl_run_step_time says. */
SL_API sl_status sl_trainer_profile_begin(sl_trainer *trainer);
SL_API sl_status sl_trainer_profile_end(sl_trainer *trainer, sl_profile_part parts[SL_PROFILE_PARTS]);
SL_API int sl_trainer_step_time(const sl_trainer *trainer, int index, sl_step_time *time);

/* Evaluation of a language model: one stream, state carried, tokens 2..N. options->steps: tokens a call, 0 = 64. `model`
 * NULL: the file's. */
SL_API sl_status sl_evaluate_tokens(sl_model *model, const sl_file *file, const int32_t *tokens, size_t count,
                                    const sl_plan_options *options, sl_result *result);

/* Evaluation of array data: every row once, options->batch rows a call, 0 = 32. options->loss SL_LOSS_NONE: the loss that the
 * file's model was trained with. */
SL_API sl_status sl_evaluate_arrays(const sl_file *file, const sl_dataset *data, const sl_plan_options *options,
                                    sl_result *result);

/* Sampling. top_k 0 and top_p 0 or 1 = off; temperature 0 = greedy (1 if the struct is NULL). */
typedef struct sl_sampling {
    double temperature;
    int top_k;
    double top_p;
    uint64_t seed;
} sl_sampling;
typedef struct sl_generator sl_generator;
SL_API sl_status sl_generator_new(const sl_file *file, const sl_plan_options *options, const sl_sampling *sampling,
                                  sl_generator **generator);
SL_API void sl_generator_free(sl_generator *generator);
SL_API sl_status sl_generator_feed(sl_generator *generator, int32_t token); /* prime */
/* Samples one and feeds it. Without any prime the first token is drawn uniformly. */
SL_API sl_status sl_generator_next(sl_generator *generator, int32_t *token);

/* ------------------------------------------------------------------------------------------------------ proofs --
 * Parity of every eligible kernel with the double reference and, on the CPU, gradients by finite differences. options->dtype
 * replaces the problem's where it is given. One line per finding goes to `line`. SL_ERR_CHECK if any fails; the detail holds
 * the command that repeats it. */
SL_API sl_status sl_check_problem(const char *problem, const sl_plan_options *options, uint64_t seed,
                                  void (*line)(void *context, const char *text), void *context);
typedef struct sl_finding {
    const char *kernel, *what;
    double error, tolerance; /* 0 in a note */
    int passed;
    const char *note; /* no finding but a remark, such as why a kernel was refused; else NULL */
    unsigned long long
        digest; /* hash of the kernel's results in the finding that it gives the same bits again; else 0 */
} sl_finding;
/* The same, one sl_finding at a time. */
SL_API sl_status sl_check_findings(const char *problem, const sl_plan_options *options, uint64_t seed,
                                   void (*finding)(void *context, const sl_finding *finding), void *context);
typedef struct sl_timing {
    const char *kernel;
    double median, minimum, maximum; /* seconds */
    double gflops;
    const char *refusal; /* or NULL */
    int repeats;
    int steps;        /* time steps of a call; 0: nothing recurs */
    double predicted; /* seconds of a call; negative: no prediction */
    /* Its numbers from those of the first kernel that took the problem, as a multiple of what rounding explains: above 1 one of both is
     * wrong; negative: there was nothing to compare with, or no memory to do it. */
    double apart;
} sl_timing;
/* Times every eligible kernel, alternating, each for at least min_seconds (0 to 3600); `timing` is called once per kernel row, refused ones
 * with their reason. On a GPU the inputs are there before the clock starts, and a repeat is one of a burst of calls. After it all
 * each computes once more for `apart`: SL_ERR_CHECK, with all timings told, where kernels differ by more than rounding. */
SL_API sl_status sl_bench_problem(const char *problem, const sl_plan_options *options, double min_seconds,
                                  void (*timing)(void *context, const sl_timing *timing), void *context);

#ifdef __cplusplus
}
#endif

#endif
