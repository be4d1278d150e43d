/* The plan: steps in forward order, each with its problem, kernel, tensors and place in memory. Immutable once made. */
#ifndef SLI_PLAN_H
#define SLI_PLAN_H

#include "device.h"
#include "model.h"

/* A piece of the run block. It is live in up to two intervals of the timeline, and shares memory with pieces that are never
 * live at the same time. Timeline: forward of step i at i; outputs' gradients arrive at S; then, group by group from the
 * last, the group's repeated forward (used only with segments) and its backward. */
typedef struct sli_buffer {
    size_t bytes, offset;
    size_t used;        /* bytes without rounding and guard */
    int from[2], to[2]; /* inclusive; from[1] < 0: one interval */
} sli_buffer;

typedef struct sli_tensor {
    const char *name;
    sli_shape shape;
    int producer;      /* step, or -1: a model input */
    int group;         /* of the producer, or -1 */
    int input;         /* index among the model's inputs, or -1 */
    int output;        /* index among the model's outputs, or -1 */
    int state;         /* >= 0: it is the final value of this state and lives there */
    bool crossing;     /* read outside its group: kept for all steps, not for one segment */
    bool has_gradient; /* a gradient is computed for it */
    bool seeded;       /* its gradient starts as the caller's (outputs of plans without a loss) */
    bool in_place;     /* its gradient takes its memory */
    int consumers;
    int buffer, gradient_buffer; /* -1 = none */
} sli_tensor;

typedef struct sli_state {
    const char *name; /* "LAYER.h" */
    int step, slot;   /* emit.state slot of the step */
    int features;
    int initial, final; /* tensors or -1 */
    bool stateful;
    bool initial_accumulates; /* somebody wrote the initial tensor's gradient before */
    size_t boundary; /* offset in the run block of entry 0; entry s [B][features] enters processed segment s, */
    size_t stride;   /* entries are so many bytes apart */
    size_t carried;  /* offset, [B][features]; only if stateful */
    size_t gradient; /* offset, [B][features]; train */
} sli_state;

typedef struct sli_refusal {
    const sli_kernel *kernel; /* NULL: the planner itself did not offer it */
    const char *problem, *reason;
    bool slower; /* it was eligible: another is predicted to be faster, */
    bool passed; /* or the choices name another, or it is not compared with the one that is taken */
    struct sli_refusal *next;
} sli_refusal;

/* A line of sl_plan_options.choices. */
typedef struct sli_choice {
    const char *problem; /* as plans print it */
    const char *row;     /* or "parts": a wide problem is not to be one step; ROW@CUT: one of the row's cuts */
    int cut;             /* sli_problem.cut, once a row was chosen by it */
    double seconds;      /* of a call, timed; negative: not known */
    bool obeyed;
    const char *reason; /* why it could not be obeyed, or its cut could not; NULL */
} sli_choice;

typedef struct sli_step {
    sli_emit emit;          /* emit.layer is NULL: the model may be gone */
    const char *layer_name; /* "" for the loss; "first..last" of a stack */
    int layer_index;
    bool backward;       /* a gradient reaches it, and something before it wants one */
    sli_problem problem; /* batch = B, steps = T (0: no time) */
    const sli_kernel *kernel;
    const char *text; /* the problem string */
    sli_refusal *refusals;
    sli_cost cost;
    double seconds;           /* predicted; negative: no prediction */
    const sli_choice *choice; /* that names the kernel; NULL: chosen by prediction or order */
    int group;
    int states[SLI_MAX_STATES]; /* indices, -1 = none */
    sli_booking booking;
    int saved, scratch_forward, scratch_backward; /* buffers, -1 = none */
    size_t packed;                                /* offset in the params block */
    unsigned gradient_in;                         /* bit k: the gradient of in[k] is wanted */
    unsigned accumulate;                          /* bit k: somebody wrote it before */
    bool late;                    /* backward's sums go on beside a recurrence that follows: sli_call.late */
    uint8_t fresh[SLI_MAX_PARTS]; /* sli_call.fresh in a whole training step */
    bool copied;                  /* updates write copies of its parameters: sli_call.copied */
    sli_slices
        early; /* of its parameters' gradients: their squares are summed behind late sums; first == end: none are */
} sli_step;

/* Neighbouring steps that can run segment by segment of time. */
typedef struct sli_group {
    int first, count;
    bool time;    /* its tensors have steps */
    bool reverse; /* segments run from the last to the first */
    bool whole;   /* must see the whole sequence at once */
} sli_group;

typedef struct sli_param_place {
    sli_param param;
    size_t offset; /* elements from the start of parameters, gradients and each slot array */
    bool fresh;    /* in a whole training step the first to come to its gradient writes it: nobody zeroes it */
    int packer;    /* the step in whose pack the optimizer updates it: sli_call.packer; -1: none */
} sli_param_place;

/* What a plan that does not fit a memory limit tries: layers of stacks and directions one by one; the step engine alone. */
typedef enum sli_lean { SLI_LEAN_NOT, SLI_LEAN_APART, SLI_LEAN_STEP } sli_lean;

struct sl_plan {
    sl_allocator allocator;
    sli_arena arena;
    sl_plan_options options; /* resolved: every default filled in */
    sli_caps caps;
    const sli_device_ops *ops;
    sli_device *device;   /* NULL for an invented one */
    size_t memory_limit;  /* that holds: options.memory_limit, on a GPU at most what is free; 0 = none */
    sli_refusal *unready; /* rows that were chosen, and whose needs could not be had then: not chosen again */
    bool train;
    size_t element; /* bytes of a number: 4, or 8 in f64 plans; */
    size_t weight;  /* of one in parameters and their gradients: as much, or 2 where options.narrow_parameters */
    int chunk, segment_steps, segments;
    sli_lean lean;  /* of plans for a memory limit */
    bool no_late;   /* late sums keep memory longer than a limit allows */
    size_t guard;   /* proofs: bytes left free behind every piece of memory, none of which is shared then; 0 */
    size_t *guards; /* their offsets in the run block */
    int guard_count, guard_capacity;
    sl_dtype operands; /* proofs: see sli_call.operands, */
    int moved;         /* and sli_call.moved */

    sli_layer_outputs *shapes; /* per layer */
    int *layer_tensor;         /* [layer][SLI_LAYER_MAX_OUT] tensor of each output */
    int layer_count;
    sli_tensor *tensors;
    int tensor_count, tensor_capacity;
    sli_step *steps;
    int step_count, step_capacity;
    sli_state *states;
    int state_count, state_capacity;
    sli_group *groups;
    int group_count, group_capacity;
    sli_param_place *params;
    int param_count, param_capacity;
    bool any_fresh;
    int sparse; /* the parameter whose gradient sli_call.touched is about; -1: none */
    sli_slices sparse_slices;
    sli_slices rest[SLI_NORM_PARTS]; /* slices that no step's `early` has */
    int rest_count;
    sli_buffer *buffers;
    int buffer_count, buffer_capacity;
    int *inputs, *outputs;     /* tensors */
    const char **output_names; /* as the model names them: a layer's output may be another's tensor */
    int input_count, output_count;
    int loss_step;  /* -1 without a loss */
    int loss_taker; /* the step in whose backward its gradient is made: sli_call.loss; -1: in its own */
    const sli_kernel *norm, *optimizer; /* NULL unless training with an update */
    const sli_kernel *adder;            /* sums gradients of initial states; NULL where none is shared */
    sli_problem norm_problem, optimizer_problem;
    sli_booking norm_booking, optimizer_booking;

    size_t param_elements; /* of one array of parameters, padding included */
    int slots;
    size_t packed_bytes;
    /* Offsets in the run block, before the overlapped part. */
    size_t scalars, metrics, gradients, touched, lengths, mask, targets, update_scratch, overlapped;
    size_t state_bytes; /* blob of carried states, [B][features] each, in order */
    /* Where all states are carried and time is not cut, the states' entries 0 lie side by side, so do entries 1, the carried
     * ones and the gradients, of these bytes each: one copy moves all of them. 0: they do not. */
    size_t together;
    sl_memory memory;
    double flops;
    const char *explanation, *explanation_json, *kernels, *notes_text;
    sli_refusal *norm_refusals, *optimizer_refusals;
    sli_refusal *offers; /* wider problems nobody took */
    sli_choice *choices; /* given */
    int choice_count, choice_capacity;
    const char *chosen; /* sl_plan_choices */
    const char **notes; /* sentences that the explanation ends with: what tuning did, choices that were not taken */
    int note_count, note_capacity;
    int notes_given; /* the first ones, that planning anew keeps */
};

struct sli_planner {
    sl_plan *plan;
    const sl_model *model;
    bool *emitted; /* per layer: its outputs are known */
    int offered;   /* index of the last layer of stacks that nobody took */
};

static inline size_t sli_plan_tensor_elements(const sl_plan *plan, const sli_tensor *tensor, int steps, int batch) {
    (void)plan;
    return (size_t)(tensor->shape.time ? steps : 1) * (size_t)batch * (size_t)tensor->shape.features;
}
static inline size_t sli_plan_tensor_element_bytes(const sl_plan *plan, const sli_tensor *tensor) {
    if (tensor->shape.integer) return sizeof(int32_t);
    return plan->options.narrow_tensors && tensor->shape.time ? sizeof(uint16_t) : plan->element;
}
static inline size_t sli_plan_host_element_bytes(const sl_plan *plan, const sli_tensor *tensor) {
    return tensor->shape.integer ? sizeof(int32_t) : plan->element;
}

/* Automatic loss scaling: f16 training with a loss of the plan. */
static inline bool sli_plan_is_scaled(const sl_plan *plan) {
    return plan->train && plan->options.dtype == SL_F16 && plan->loss_step >= 0;
}

static inline bool sli_plan_is_segmented(const sl_plan *plan, const sli_group *group) {
    return plan->segments > 1 && group->time && !group->whole;
}

/* src/core/plan.c: sl_plan_new without tuning. `notes`: lines for the explanation, or NULL. */
sl_status sli_plan_new(const sl_model *model, const sl_plan_options *options, const char *notes, sl_plan **plan);
/* *list becomes a plan of `model` as far as the list of parameters, on the device of `like`; whatever is returned, it is freed by
 * sli_arena_free(&list->arena). */
sl_status sli_plan_list_params(const sl_plan *like, const sl_model *model, sl_plan *list);
sl_status sli_plan_note(sl_plan *plan, const char *format, ...) SLI_PRINTF(2, 3);
/* Why device "auto" is the CPU; false if it was not asked for, or is none. */
bool sli_plan_why_cpu(const sl_plan *plan, char *text, size_t capacity);
/* src/core/plan_choices.c: choices from outside. */
sl_status sli_choices_read(sl_plan *plan, const char *text);
/* NULL: none. A line of the problem with kept gates names the row of recomputed ones too. */
sli_choice *sli_choice_for(sl_plan *plan, const char *problem);
/* The same lines, of problems that keep their gates: a way to run, which files do not hold. NULL: no memory. */
char *sli_choices_of_kept_gates(sli_arena *arena, const char *choices);
bool sli_choice_is_parts(const sli_choice *choice);
bool sli_choice_is_of(const sli_choice *choice, const sli_kernel *row); /* whatever the cut */
/* The choice names this row; fills choice->cut, of a cut that the row has not with 0 and choice->reason. */
bool sli_choice_names(sl_plan *plan, sli_choice *choice, const sli_kernel *row, const sli_problem *problem);
void sli_choices_forget(sl_plan *plan);     /* before planning anew */
sl_status sli_choices_note(sl_plan *plan);  /* those that were not obeyed */
sl_status sli_choices_write(sl_plan *plan); /* fills plan->chosen */
/* src/core/plan_kernels.c: walks the rows; SL_ERR_NO_KERNEL with every reason if none fits options.require. */
sl_status sli_plan_choose(sl_plan *plan, const sli_problem *problem, const char *where, const sli_kernel **kernel,
                          sli_refusal **refusals);
/* The row computes `op` on the device of `caps`. */
bool sli_kernel_serves(const sli_kernel *kernel, sli_op op, const sli_caps *caps);
/* Predicted seconds of one call; negative: the row makes no prediction. */
double sli_kernel_seconds(const sli_kernel *kernel, const sli_problem *problem, const sli_caps *caps);
bool sli_kernel_matches(const char *require, const char *kernel_name);
/* The row computes the problem; else the reason. */
bool sli_kernel_takes(const sli_kernel *kernel, const sli_problem *problem, const sli_caps *caps, sli_why *why);
/* The rows that could be chosen for the problem, in order; returns how many. */
bool sli_is_step_engine(const char *kernel);
enum { SLI_PLAN_CANDIDATES = 32 };
int sli_plan_candidates(const sl_plan *plan, const sli_problem *problem,
                        const sli_kernel *candidates[SLI_PLAN_CANDIDATES]);
sl_status sli_plan_choose_among(sl_plan *plan, const sli_kernel *const *rows, const sli_problem *problem,
                                const char *where, const sli_kernel **kernel, sli_refusal **refusals);
/* Offers a wide problem; not taken: the reasons are appended to plan->offers. `parts` as in sli_planner_offer. */
sl_status sli_plan_offer(sl_plan *plan, const sli_kernel *const *rows, const sli_problem *problem, double parts,
                         bool *taken);
/* Appends one reason why a wide problem is not one step. */
sl_status sli_plan_keep_out(sl_plan *plan, const sli_kernel *kernel, const sli_problem *problem, const char *reason,
                            bool slower);
/* src/core/plan_ready.c: asks the rows that were taken for what their calls need; *all: they have it. Else those that have not are in
 * plan->unready, and the plan is to be built anew. */
sl_status sli_plan_ready(sl_plan *plan, bool *all);
/* The step's row is not taken for its problem any more: in plan->unready, with the reason. */
sl_status sli_plan_leave_out(sl_plan *plan, const sli_step *step, const char *reason);
/* Why the row is not taken for this problem, of those in plan->unready; NULL. */
const char *sli_plan_unready(const sl_plan *plan, const sli_kernel *row, const sli_problem *problem);
/* src/core/plan_groups.c: cuts steps into groups, finds gradients wanted, crossing tensors. */
sl_status sli_plan_groups(sl_plan *plan);
sl_status sli_plan_gradients(sl_plan *plan);
/* Which parameters' gradients are fresh, once everything has its place. */
void sli_plan_fresh(sl_plan *plan);
/* The same without a look at whether a step updates them: of time in one segment. */
void sli_plan_mark_fresh(sl_plan *plan);
/* src/core/plan_update.c: what an update need not look at; slices of all gradients. */
void sli_plan_sparse(sl_plan *plan);
int64_t sli_plan_slices(const sl_plan *plan);
void sli_plan_early(sl_plan *plan);
void sli_plan_copies(sl_plan *plan); /* which packed copies the optimizer writes */
/* src/core/plan.c: steps, and their places in memory; the same anew. Try k: odd, only what can be cut into segments; k / 2: how lean. */
sl_status sli_plan_build(sl_plan *plan, const sl_model *model);
sl_status sli_plan_build_again(sl_plan *plan, const sl_model *model, int k);
/* src/core/plan_fit.c: ... so that the memory limit holds. */
sl_status sli_plan_build_to_fit(sl_plan *plan, const sl_model *model);
/* src/core/plan_memory.c: places everything for segments of `segment_steps`; fills plan->memory. */
sl_status sli_plan_place(sl_plan *plan, int segment_steps);
sl_status sli_plan_fit_memory(sl_plan *plan);
/* After a SL_ERR_MEMORY_LIMIT: what would fit with these rows. A plan of it may take others, and has to be asked. */
typedef struct sli_ways_out {
    size_t recomputed; /* bytes with gates recomputed; 0: does not fit either */
    int batch;         /* about the largest that fits; 0: none does */
} sli_ways_out;
sl_status sli_plan_ways_out(sl_plan *plan, sli_ways_out *ways);
/* The whole sentence. */
sl_status sli_plan_fail_over_limit(const sl_plan *plan, const sli_ways_out *ways);
size_t sli_plan_need(const sl_plan *plan); /* bytes of both blocks, as they are placed */
/* What a step books, of a segment where there are segments; of a recurrent one with recomputed gates or with kept ones. */
sli_booking sli_plan_booking(const sl_plan *plan, const sli_step *step, bool recompute);
/* src/core/plan_explain.c */
sl_status sli_plan_describe(sl_plan *plan);

#endif
