/* Kernels: one row = one way to compute one op, forward and backward, with saved data private to the row.
 * The planner walks the rows of a device in order, keeps every refusal as text, and takes the first that is eligible. */
#ifndef SLI_KERNEL_H
#define SLI_KERNEL_H

#include <math.h>
#include <string.h>

#include "problem.h"
#include "rng.h"
#include "threads.h"

/* ------------------------------------------------------------------------------------------------ capabilities -- */
typedef enum sli_device_kind { SLI_DEVICE_CPU, SLI_DEVICE_CUDA } sli_device_kind;
/* x86-64 in order, each with all below it; NEON is arm64's. BASE: what every processor of the build's kind has, in portable C
 * where that is not x86-64. */
typedef enum sli_isa {
    SLI_ISA_BASE,
    SLI_ISA_NEON,
    SLI_ISA_AVX2,
    SLI_ISA_AVX512,
    SLI_ISA_AVX512BF16,
    SLI_ISA_AMX
} sli_isa;
enum { SLI_ISA_WHY = 128 }; /* bytes of a sentence about one */

enum { SLI_CLUSTER_MOST = 16 };
typedef struct sli_caps {
    char name[32]; /* as the user wrote it, resolved: "cpu", "cpu:avx2", "cuda:sm_90" */
    sli_device_kind kind;
    sli_isa isa;               /* cpu */
    char isa_why[SLI_ISA_WHY]; /* cpu: why this one: "this CPU has no AVX-512 ...", "forced by SLUICE_CPU_ISA" */
    int threads;               /* cpu: threads a run will use */
    sl_thread_pool pool;       /* cpu: the program's, parallel_for NULL: a run makes its own */
    bool have_blas;            /* cpu: a BLAS library was loaded */
    bool invented;             /* can be planned for, not run on */
    int compute_capability;    /* cuda: 90 */
    int multiprocessors;
    int index;          /* cuda: the GPU's number among the visible ones */
    int driver;         /* cuda: 13000; 0 for an invented one */
    int cudnn;          /* cuda: 91900; 0 = not there, see sli_cudnn_missing; invented: 91900 */
    bool no_compiler;   /* cuda: NVRTC is missing: of what it compiles only what is built in can be used */
    bool graphs;        /* full-sized calls are recorded once and replayed: a row must not read host memory then */
    bool recomputes;    /* set by the planner for the second try: only problems that can be cut into segments */
    size_t free_memory; /* cuda: when the plan was made; 0 where not known */
    size_t memory, shared_memory, l2_bytes;
    size_t l3_bytes; /* cpu: of the cores that share one; 0: not known */
    bool half_width; /* cpu: vectors of 512 bits pass in two halves */
    /* cuda: clusters of so many blocks, a multiprocessor each, that are resident at once, as the driver says; [0]: it was asked. */
    int resident[SLI_CLUSTER_MOST + 1];
} sli_caps;

const char *sli_isa_name(sli_isa isa);

/* Fixed chunk of time steps of a device: a GPU wants more rows in a product than a CPU. */
static inline int sli_caps_chunk(const sli_caps *caps, int batch, int steps) {
    enum { GPU_ROWS = 4096 };
    return caps->kind == SLI_DEVICE_CUDA ? sli_chunk_steps_of(batch, steps, GPU_ROWS) : sli_chunk_steps(batch, steps);
}

/* ----------------------------------------------------------------------------------------- one call of a kernel -- */
/* A wide recurrent problem (layers > 1, bidirectional, or both) has one *part* a layer and direction: part = layer * directions
 * + direction, backward direction second. Parameter k of a part is param[part * SLI_PART_PARAMS + k]; its states are
 * in[SLI_RNN_STATE_IN(part, k)], out[SLI_RNN_STATE_OUT(part, k)], k = 0: h, 1: c. A plain problem is part 0 alone. */
enum { SLI_MAX_PARTS = 12, SLI_PART_PARAMS = 6 };
enum {
    SLI_MAX_IN = 5 + 2 * (SLI_MAX_PARTS - 1),
    SLI_MAX_OUT = 2 + 2 * SLI_MAX_PARTS,
    SLI_MAX_STATES = 2 * SLI_MAX_PARTS
};
enum { SLI_MAX_PARAM = SLI_PART_PARAMS * SLI_MAX_PARTS };
#define SLI_RNN_STATE_IN(part, k) ((part) == 0 ? 1 + (k) : 3 + 2 * (part) + (k))
#define SLI_RNN_STATE_OUT(part, k) (1 + 2 * (part) + (k))

/* Indices into sli_call.in / out / param, per op. Shapes: t, b are the call's steps and batch.
 * Tensors are dense [t][b][features], element type float (double in f64 problems) unless said otherwise; parameters and their gradients
 * are of the problem's dtype where it is narrow, x and y of all steps and their gradients where narrow_io. */
enum {                      /* recurrent; O = projection or units */
       SLI_RNN_X = 0,       /* [t][b][I] */
       SLI_RNN_H0 = 1,      /* [b][O], never NULL */
       SLI_RNN_C0 = 2,      /* [b][H], LSTM */
       SLI_RNN_LENGTHS = 3, /* int32 [b], absolute steps; with SLI_MASK_LENGTHS */
       SLI_RNN_MASK = 4,    /* uint8 [t][b], 0 = masked; with the other masks */
       SLI_RNN_Y = 0,       /* out [t][b][O], with masked_output applied; the last layer's of a stack. Bidirectional:
                             * [t][b][2 O], forward then backward, if direction_merge is SL_BI_CONCAT, else forward's */
       SLI_RNN_Y_BACK =
           SLI_MAX_OUT - 1, /* out [t][b][O], bidirectional with another merge: backward's, in order of time */
       SLI_RNN_HT = 1,     /* out [b][O]: state after the last step; may alias in H0 only if the kernel's row says so */
       SLI_RNN_CT = 2,     /* out [b][H] */
       SLI_RNN_KERNEL = 0, /* [G*H][I] */
       SLI_RNN_RECURRENT = 1,      /* [G*H][O] */
       SLI_RNN_BIAS = 2,           /* [G*H], NULL without */
       SLI_RNN_RECURRENT_BIAS = 3, /* [G*H], NULL without */
       SLI_RNN_PEEPHOLE = 4,       /* [3][H] i f o */
       SLI_RNN_PROJECTION = 5      /* [P][H] */
};
enum {
    SLI_DENSE_X = 0 /* [t][b][I] */,
    SLI_DENSE_Y = 0 /* [t][b][H] */,
    SLI_DENSE_KERNEL = 0 /* [H][I] */,
    SLI_DENSE_BIAS = 1 /* [H] or NULL */
};
enum { SLI_EMBED_TOKENS = 0 /* int32 [t][b] */, SLI_EMBED_Y = 0 /* [t][b][H] */, SLI_EMBED_TABLE = 0 /* [I][H] */ };
enum { SLI_UNARY_X = 0, SLI_UNARY_Y = 0 }; /* onehot (int32 in), dropout, flip */
enum { SLI_MERGE_PART0 = 0 /* in 0..parts-1: [t][b][units of the part] */, SLI_MERGE_Y = 0 };
enum {                      /* losses */
       SLI_LOSS_Z = 0,      /* [t][b][H] logits or predictions; d_in may alias it (sli_kernel.gradient_in_place) */
       SLI_LOSS_TARGET = 1, /* int32 [t][b], -1 = ignored; or float [t][b][H] */
       SLI_LOSS_LENGTHS = 3,
       SLI_LOSS_MASK = 4 /* as for recurrent problems; NULL where the output has no time */
};
enum {
    SLI_NORM_GRAD = 0 /* out [n]: clipped by value in place where asked */,
    SLI_NORM_SQUARES = 1 /* out double: = sum of squares, before clipping by value */
};
enum {
    SLI_OPTIM_PARAM = 0 /* out [n] */,
    SLI_OPTIM_GRAD = 1 /* out [n]: read, then zeroed unless call.keep_gradient */,
    SLI_OPTIM_SLOT0 = 2,
    SLI_OPTIM_SLOT1 = 3 /* out [n] */,
    SLI_OPTIM_SQUARES = 0 /* in double: sum of squares that the norm clips compare with; NULL without */
};

/* Lives in device memory; uploaded before each call of a run, or advanced on the device. */
typedef struct sli_scalars {
    uint64_t seed;
    uint32_t step, micro_step; /* keys of the random masks */
    double loss_scale;         /* d loss / d loss_sum: 1/denominator, times the accumulation scale */
    double learning_rate;
    double optimizer_step; /* 1, 2, ...: Adam's bias correction, which takes off the updates that the device skipped */
} sli_scalars;

/* Automatic loss scaling of f16 training; lives in device memory beside the parameters and goes into checkpoints. Losses
 * multiply their gradient by `scale`. The norm row that writes metrics->squares, which comes before any other norm and the
 * optimizer of an update, divides squares by its square, sets `carried` to it and decides the next scale: where the squares
 * are not finite it halves and the update counts as skipped; after 2000 good updates it doubles. Norms of single tensors and
 * optimizer rows divide by `carried`; optimizers leave the parameters alone where metrics->squares are not finite. */
typedef struct sli_scaling {
    double scale;   /* 65536 at first */
    double good;    /* updates since the last change */
    double skipped; /* updates left out so far; Adam's bias correction counts optimizer_step - skipped */
    double carried; /* the scale that the gradients of the current update carry */
} sli_scaling;

/* Lives in device memory: losses add (+=), in the order of time. */
typedef struct sli_metrics {
    double loss_sum, count, correct;
    double squares;        /* = global sum of squares of the gradients */
    double tensor_squares; /* scratch of clipping by each tensor's norm */
    /* += 1 by the norm row that writes `squares`, where they are not finite; never zeroed: updates that this run left out, which
     * Adam's bias correction does not count. With loss scaling sli_scaling.skipped counts instead. */
    double skipped;
    double reserved[2];
} sli_metrics;

typedef struct sli_queue sli_queue; /* device.h */

/* Some of the slices that the array of all gradients is cut into, sli_kernel.norm_slice elements each. */
typedef struct sli_slices {
    int64_t first, end;
} sli_slices;
enum { SLI_NORM_PARTS = 8 }; /* of sli_call.slices, at most */

/* A copy of a parameter in the type of its products' operands, element by element: rows of `columns` elements, `row` apart. `at`: bytes
 * from the start of the row's packed copies; in a call of an optimizer `to` is where it is, and its parameter's elements are
 * [first, end) of the call's. */
typedef struct sli_copy {
    size_t at;
    void *to;
    int64_t first, end, columns, row;
} sli_copy;
enum { SLI_COPIES = 8 };

/* What a pack inside an optimizer's call does first, on any thread, with each number of the parameters that it packs, once: `count` of them,
 * from `values` on, get their new values. */
typedef struct sli_update {
    void (*apply)(void *context, const float *values, int64_t count);
    void *context;
} sli_update;

/* The plan's batch and steps, which packed copies were laid out for; 0: the problem's. */
typedef struct sli_planned {
    int batch, steps;
} sli_planned;

typedef struct sli_call {
    sli_problem problem; /* batch and steps are those of this call: t, b above; steps 0 where there is no time */
    int chunk;           /* fixed chunk of steps, counted from step 0 of the sequence; t0 is a multiple of it */
    int t0;              /* absolute step of the tensors' first step */
    int total_steps;     /* of the sequence in this call */
    sli_planned planned;
    bool training;  /* dropout and zoneout draw; saved data will be used */
    bool recompute; /* the segment's forward is being repeated: write no metrics */
    /* Backward: sums into d_param may go on beside the calls that follow, up to the next one with this bit or to the device's
     * `settle`. The call's scratch, saved, in and d_out stay as they are until then, and nobody else looks at d_param. */
    bool late;
    bool
        beside; /* independent of the calls with this bit before and after it: they may run side by side, up to `settle` */
    sl_dtype
        operands; /* the reference rounds what enters products to it: bf16, i8, and f64 in proofs; SL_DTYPE_DEFAULT: nothing */
    int moved; /* proofs: the reference's recurrent products are off by what rounding may be, number `moved` of such draws; 0: they are not */
    /* layer << 8 | direction bit, to be or-ed with a purpose: see sli_call_rng. Of a bidirectional problem it is the forward
     * direction's; the backward direction's is rng_layer | SLI_PURPOSE_BACKWARD_DIRECTION. A stack has only its first
     * layer's (the others' need not follow): a row refuses stacks with recurrent dropout or zoneout. */
    int rng_layer;
    const void *in[SLI_MAX_IN];
    void *out[SLI_MAX_OUT];
    const void *param[SLI_MAX_PARAM];
    void *saved;   /* private to the row (a loss's, and to the row that takes it): written forward, read backward */
    void *scratch; /* private to the call */
    void *packed;  /* written by pack, read by forward and backward; NULL without */
    size_t saved_bytes, scratch_bytes; /* what the row booked for them */
    /* Backward. d_out NULL = that output's gradient is zero. d_in NULL = not wanted. */
    const void *d_out[SLI_MAX_OUT];
    void *d_in[SLI_MAX_IN];
    unsigned accumulate;          /* bit k: d_in[k] += ; else d_in[k] = */
    void *d_param[SLI_MAX_PARAM]; /* += , or = where fresh */
    bool
        borrowed; /* some of d_param, or of a narrow_io problem of `in`, are the caller's own arrays, and lie in any order */
    /* Bit k of a part's (of other ops' the first): what d_param[part * SLI_PART_PARAMS + k] holds is of no use; all of it is to be
     * written, whatever there is to add. Only of rows with writes_fresh. */
    uint8_t fresh[SLI_MAX_PARTS];
    bool keep_gradient; /* optimizers: leave the gradient as it is, else zero it */
    /* The norm of all gradients, of rows with norm_slice: `parts` of slices to be summed, NULL: all. `part`: their sums stay in
     * scratch, and that is all; the call without it does its own and adds up. */
    const sli_slices *slices;
    int parts;
    bool part;
    /* A byte a slice, of a table whose gradient is summed by rows: the row with marks_touched sets those that it adds to. Slices
     * `sparse` whose byte is 0 hold zeros: whatever else should ever write gradients, as sums over ranks would, has to set them all.
     * NULL: not known. `first_element`: of the gradient (d_param[0]) in the array of all. */
    uint8_t *touched;
    int64_t first_element;
    sli_slices sparse;
    /* Optimizers with writes_copies: what they write beside the parameters. `copied`, of packs: it is there already, or what packs_updated
     * names is. */
    sli_copy copies[SLI_COPIES];
    int copy_count;
    bool copied;
    /* Optimizers with updates_in_pack: the row whose pack updates all of their parameters, which are in `param`, and its problem; what else
     * pack needs is there as well. NULL: there is none. */
    const struct sli_kernel *packer;
    const sli_problem *packer_problem;
    const sli_update *update; /* packs inside an optimizer's call: packs_updated; NULL */
    /* Backward of rows with takes_loss: the call of the loss of out[0], whose gradient has not been made: d_out[0] holds what out[0] held. Valid
     * while the call is submitted. NULL: d_out[0] is the gradient. */
    const struct sli_call *loss;
    const sli_scalars *scalars;  /* device memory */
    sli_metrics *metrics;        /* device memory */
    sli_scaling *scaling;        /* device memory; NULL unless the plan trains in f16 */
    const int32_t *host_lengths; /* [b] host copy of the lengths; NULL where caps.graphs */
    sli_queue *queue;            /* set by submit: a device's rows reach their stream through it */
    sli_threads *threads;        /* cpu */
    const struct sli_cpu *cpu;   /* cpu: instruction set and BLAS, set by the queue; NULL = base, own loops */
} sli_call;

typedef void (*sli_kernel_fn)(const sli_call *call);

/* Device code: the generator of a purpose for this call. */
static inline sli_rng sli_call_rng(const sli_call *call, enum sli_purpose purpose) {
    sli_rng rng = {call->scalars->seed, call->scalars->step, call->scalars->micro_step,
                   (uint32_t)call->rng_layer | (uint32_t)purpose};
    return rng;
}

/* Device code of norm and optimizer rows on the CPU: *squares is known; how many updates the step's number is to be less. */
static inline void sli_call_count_skipped(const sli_call *call) {
    const double *squares = (const double *)call->out[SLI_NORM_SQUARES];
    if (call->metrics && squares == &call->metrics->squares && !isfinite(*squares)) call->metrics->skipped += 1;
}
static inline double sli_call_optimizer_step(const sli_call *call) {
    return call->scalars->optimizer_step - (call->metrics ? call->metrics->skipped : 0);
}

/* A stack's call as one layer's, without tensors and with its parameters; the problem is the stack's still. */
static inline sli_call sli_call_of_layer(const sli_call *call, int layer) {
    sli_call own = *call;
    memset(own.in, 0, sizeof own.in);
    memset(own.out, 0, sizeof own.out);
    memset(own.d_out, 0, sizeof own.d_out);
    memset(own.d_in, 0, sizeof own.d_in);
    memset(own.fresh, 0, sizeof own.fresh);
    own.accumulate = 0;
    own.fresh[0] = call->fresh[layer];
    for (int k = 0; k < SLI_MAX_PARAM; k++) {
        const bool is_own = k < SLI_PART_PARAMS;
        own.param[k] = is_own ? call->param[layer * SLI_PART_PARAMS + k] : NULL;
        own.d_param[k] = is_own ? call->d_param[layer * SLI_PART_PARAMS + k] : NULL;
    }
    return own;
}

/* -------------------------------------------------------------------------------------------------------- rows -- */
typedef struct sli_why {
    char text[256];
} sli_why; /* a refusal */
/* Writes the reason, returns false. */
bool sli_refuse(sli_why *why, const char *format, ...) SLI_PRINTF(2, 3);
#define NEED(condition, ...)                                   \
    do {                                                       \
        if (!(condition)) return sli_refuse(why, __VA_ARGS__); \
    } while (0)

/* What rows need that run the layers of a stack side by side, a piece of time behind each other, on whatever device. */
bool sli_takes_stack(const sli_problem *problem, sli_why *why);

typedef struct sli_cost {
    double flops, bytes;
} sli_cost; /* of one forward (+ backward if train) call */

typedef struct sli_booking {
    size_t saved, scratch_forward, scratch_backward, packed;
} sli_booking; /* bytes, any size */

/* What a plan knows of a step's calls beside its problem. */
typedef struct sli_calls {
    int chunk;
    bool backward, y, dy,
        d_states; /* is called; is given; has a gradient; gradients of the entering states are wanted */
} sli_calls;

enum { SLI_CUTS = 4, SLI_CUT_NAME = 96 }; /* cuts of one pass that have names, and such a name's room */

typedef struct sli_kernel {
    const char *name; /* "cpu:fused" */
    sli_op op;
    sli_device_kind device;
    /* One NEED per line. */
    bool (*eligible)(const sli_problem *problem, const sli_caps *caps, sli_why *why);
    void (*cost)(const sli_problem *problem, const sli_caps *caps, sli_cost *cost);
    /* problem->steps is the length of a segment. NULL: nothing to book. */
    void (*book)(const sli_problem *problem, const sli_caps *caps, int chunk, sli_booking *booking);
    /* Predicted seconds of one call; the least wins among eligible rows. NULL: rows are taken in order. All rows of one op and
     * device have it, or none; but the reference, which comes last, has none. On a CPU predictions depend on the number of
     * threads, which must change no bit: there they decide between rows of the same bits alone. */
    double (*seconds)(const sli_problem *problem, const sli_caps *caps);
    /* Rows that can cut the work over a device in several ways, which give different bits: the name of the one that problem->cut
     * means, in which there is neither a blank nor an @; false: there are fewer. problem->cut = forward + SLI_CUTS backward, places
     * in the order of what is predicted. NULL: there is one way, without a name. */
    bool (*cut)(const sli_problem *problem, const sli_caps *caps, char *name, size_t capacity);
    const char *bits_of; /* the row of another name with the same bits, part by part if this one is of wide problems */
    /* For explain: how this row computes the problem, one line without its end. NULL, or "": there is nothing to say. */
    void (*describe)(const sli_problem *problem, const sli_caps *caps, char *text, size_t capacity);
    /* Asked once a plan has taken the row, on a device that is there: has what calls need (compiled kernels, room for blocks that must be
     * resident at once). *refused: it cannot be had, for the reason in *why, and the plan takes another row. problem->steps is the
     * length of a segment. NULL: there is nothing to ask for. */
    sl_status (*ready)(const sli_problem *problem, const sli_caps *caps, const sli_calls *calls, bool *refused,
                       sli_why *why);
    sli_kernel_fn pack; /* param -> packed; NULL without packed copies */
    sli_kernel_fn forward;
    sli_kernel_fn backward; /* NULL where there is nothing to do (onehot, norm, optim) */
    /* What backward reads, so that other memory can be reused. */
    unsigned backward_reads_in;  /* bit k: backward reads in[k] */
    unsigned backward_reads_out; /* bit k: backward reads out[k] */
    bool gradient_in_place;      /* d_in[0] may be the same memory as in[0] */
    bool gradient_by_taker; /* losses whose gradient rows with takes_loss can make, in place, if nobody else wants it */
    bool (*takes_loss)(const sli_problem *problem,
                       const sli_caps *caps); /* backward obeys sli_call.loss; NULL: of no problem */
    /* Relative error of activations in f32 beyond rounding, measured. Such a row is not what f32 asks for: the planner takes it
     * there only if it is required by its name. */
    double f32_error;
    /* Parameters' gradients are summed over the whole call at once: segments of time would change their last bits, so the
     * planner does not take the row where a memory limit wants segments, unless it is required by its name. */
    bool whole_sums;
    /* What it carries or sums is of the whole sequence, in inference as well: it refuses segments (caps.recomputes). */
    bool whole;
    /* Problems whose weights it multiplies with each other beforehand: what it carries from step to step is no state, so that it refuses
     * segments (caps.recomputes), and what it rounds the reference does not. NULL: none. */
    bool (*folds)(const sli_problem *problem);
    /* Rows whose backward can leave its sums to sli_call.late; and the share of the device that a recurrent row's backward leaves
     * idle for such sums, if any: where there is none nothing is late. `fills`: where nothing is late beside it, products of its own fill that
     * part; then only a recurrent layer's sums, which are like them, are late there. */
    bool sums_late;
    double (*idle)(const sli_problem *problem, const sli_caps *caps);
    bool (*fills)(const sli_problem *problem, const sli_caps *caps);
    /* Forward of this problem begins with a single launch, not with two side by side. NULL: not known to. */
    bool (*begins_alone)(const sli_problem *problem);
    bool null_states;   /* backward takes NULL for gradients of states: d_out of zeros, d_in that nobody wants */
    bool writes_fresh;  /* backward obeys sli_call.fresh; other rows find zeros, or what steps before them added */
    bool marks_touched; /* backward obeys sli_call.touched */
    bool writes_copies; /* optimizer rows that obey sli_call.copies */
    /* Of the first parameter the packed copies hold one element by element, which pack leaves out where sli_call.copied; false: of this
     * problem they do not. */
    bool (*copy_of)(const sli_problem *problem, const sli_caps *caps, sli_copy *copy);
    bool updates_in_pack; /* optimizer rows that obey sli_call.packer */
    /* Bit k of each part's: a parameter that pack updates where there is sli_call.update, right before it packs it. It then packs what is
     * made of those that the call has, the others are NULL, and nothing else; where sli_call.copied it leaves that out. */
    unsigned packs_updated;
    int64_t norm_slice; /* norm rows that obey sli_call.slices and .part: elements of a slice; 0: others */
    /* Takes problems with +recompute, for which it keeps no gates (the reference, which is the oracle, keeps what it always does). */
    bool takes_recompute;
    bool takes_narrow; /* problems with +narrow: param and d_param are of the problem's dtype */
    bool
        takes_narrow_io; /* problems with +narrow_io: tensors of in, out and their gradients that have steps are of that dtype */
    const char *only; /* rows of a test device: its name; they are unknown to all others. NULL: none */
} sli_kernel;

/* Rows of every device in order of preference, per op; reference rows last. NULL-terminated. */
typedef struct sli_layer_kind sli_layer_kind;
typedef struct sli_device_ops sli_device_ops;
typedef struct sli_registry {
    const sli_kernel *const *kernels;
    const sli_layer_kind *const *layer_kinds;
    const sli_device_ops *const *devices;
} sli_registry;
/* The tables of this build; defined in src/api/registry.c, the one place that names them all. */
const sli_registry *sli_registry_get(void);

/* Loss, norm and optimizer: number of slot arrays of an optimizer. */
int sli_optimizer_slots(const sl_optimizer *optimizer);
const char *sli_optimizer_slot_name(const sl_optimizer *optimizer, int slot); /* "momentum", "m", "v" */

#endif
