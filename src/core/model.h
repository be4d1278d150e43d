/* A model: the list of layers that sl_model_* builds, and what a kind of layer has to say of itself. Core names no kind: the
 * kinds are rows of sli_registry.layer_kinds. */
#ifndef SLI_MODEL_H
#define SLI_MODEL_H

#include <stddef.h>
#include "kernel.h"

typedef struct sli_planner sli_planner;

/* ------------------------------------------------------------------------------------------------------ config --
 * A kind's options struct as a table, so that reading and writing JSON is generic. */
typedef enum sli_field_type {
    SLI_FIELD_INT,
    SLI_FIELD_NUMBER,    /* double */
    SLI_FIELD_BOOL,      /* int 0/1 */
    SLI_FIELD_NOT_BOOL,  /* int 0/1, the key is the negation: use_bias <-> no_bias */
    SLI_FIELD_ENUM,      /* int enum by `names` */
    SLI_FIELD_BOOL_ENUM, /* int enum: JSON true = `when_true`, false = `when_false` (use_bias, unit_forget_bias) */
    SLI_FIELD_STRING,    /* const char *, in the model's arena; null allowed */
    SLI_FIELD_INIT,      /* sl_init: Keras initializer, a name or {"class_name", "config"} */
    SLI_FIELD_IGNORED,   /* any value is accepted and dropped: it cannot change a number (unroll, seed...) */
    SLI_FIELD_NEUTRAL    /* accepted only as null, false, 0 or absent: `reason` says why else not */
} sli_field_type;

typedef struct sli_enum_name {
    const char *name;
    int value;
} sli_enum_name; /* table ends with NULL */

typedef struct sli_field {
    const char *key;
    sli_field_type type;
    size_t offset;              /* in the options struct */
    const sli_enum_name *names; /* ENUM */
    int when_true, when_false;  /* BOOL_ENUM */
    bool in_sluice;             /* lives in config.sluice, not in config */
    bool required;
    const char *reason; /* NEUTRAL */
} sli_field;
#define SLI_FIELDS_END \
    { 0 }

/* ------------------------------------------------------------------------------------------------------ layers -- */
typedef struct sli_shape {
    bool time;    /* [T][B][features], else [B][features] */
    bool integer; /* int32 tokens [T][B] (features = 1) */
    int features;
    int vocabulary; /* of tokens */
} sli_shape;

typedef struct sli_layer {
    const char *name;
    const sli_layer_kind *kind;
    int index;           /* in the model */
    const char **inputs; /* tensor names, NULL-terminated, resolved (never NULL) */
    int input_count;
    void *options; /* kind->options_bytes */
    bool frozen;   /* its parameters are not to be trained: such a model is planned for inference only */
} sli_layer;

/* What Keras's variable counts as inputs and outputs ("fans"): a matrix [outputs][inputs]; an embedding's table [inputs][outputs]; a bias [n], n and n; a bias that
 * is one of a GRU's two, whose variable is [2][n], 2 and n. */
typedef enum sli_fans { SLI_FANS_MATRIX, SLI_FANS_TABLE, SLI_FANS_BIAS, SLI_FANS_TWO_BIASES } sli_fans;

typedef struct sli_param {
    const char *name;          /* "LAYER.kernel" */
    int rows, columns;         /* a vector: rows 1 */
    sl_init init;              /* resolved: never SL_INIT_DEFAULT */
    int pytorch_fan;           /* n of SL_INIT_PYTORCH */
    int layer;                 /* layer->index */
    int set_offset, set_count; /* elements set to set_value after the initialiser: the forget slice of a bias */
    double set_value;
    sli_fans fans;
    int identity_row; /* rows of a gate where Keras has the first two the other way round, which its Identity tells apart: z and r of a GRU; else 0 */
} sli_param;

enum { SLI_LAYER_MAX_IN = 5 };  /* x and the states of both directions, or parts */
enum { SLI_LAYER_MAX_OUT = 5 }; /* "NAME", "NAME.h", "NAME.c", or "NAME", "NAME.forward.h", ... */

typedef struct sli_layer_outputs {
    int count;
    sli_shape shape[SLI_LAYER_MAX_OUT];
    const char *suffix[SLI_LAYER_MAX_OUT]; /* "", ".h", ... static */
} sli_layer_outputs;

struct sli_layer_kind {
    const char *class_name; /* Keras: "LSTM" */
    size_t options_bytes;
    const sli_field *fields;
    bool has_params; /* its own, or those of another layer */
    /* Names of the outputs beyond the first (count and suffix only); NULL: there is one output. */
    void (*suffixes)(const sli_layer *layer, sli_layer_outputs *outputs);
    /* Checks options and input shapes, gives output shapes. SL_ERR_SHAPE, SL_ERR_INPUT with "layer NAME: ...". */
    sl_status (*shape)(const sli_layer *layer, const sli_shape *inputs, int input_count, sli_layer_outputs *outputs);
    /* Declares parameters through sli_planner_param, emits steps through sli_planner_emit. */
    sl_status (*emit)(sli_planner *planner, const sli_layer *layer, const int *inputs, int *outputs);
};

struct sl_model {
    sl_allocator allocator;
    sli_arena arena;
    sli_layer **layers; /* inputs are layers of kind InputLayer */
    int layer_count, layer_capacity;
    const char **outputs; /* NULL until set */
    int output_count;
    sli_text json;
};

/* Adds a layer of `kind` with a copy of options (NULL: zeros). inputs as in sluice.h. Checks name (unique, no blanks, no '.'),
 * input names exist. Shapes are checked by sli_model_shapes and when planned. */
sl_status sli_model_add(sl_model *model, const char *name, const char *class_name, const void *options,
                        const char *const *inputs);
const sli_layer_kind *sli_layer_kind_find(const char *class_name); /* NULL if none */
/* Index of the layer that writes tensor `name`, or -1; *output = which of its outputs. */
int sli_model_find_tensor(const sl_model *model, const char *name, int *output);
/* Outputs of every layer, in the arena of the caller: shapes[layer_count]. */
sl_status sli_model_shapes(const sl_model *model, sli_layer_outputs *shapes);
/* Options of the InputLayer kind. */
typedef struct sli_input_options {
    int features;
    int no_steps;
    int vocabulary;
} sli_input_options;

/* -------------------------------------------------------------------------------- what layers use when planned -- */
/* Declares a parameter; the returned index goes into sli_emit.param. Names must be unique. -1 on failure is not possible:
 * failure is the status. */
sl_status sli_planner_param(sli_planner *planner, const sli_param *param, int *index);
int sli_planner_find_param(const sli_planner *planner, const char *name); /* -1 if none (tied weights) */
const sli_param *sli_planner_param_at(const sli_planner *planner, int index);
sli_shape sli_planner_shape(const sli_planner *planner, int tensor);
const sl_plan_options *sli_planner_options(const sli_planner *planner); /* resolved */
/* A new activation tensor; `gradient`: it can carry one. */
sl_status sli_planner_tensor(sli_planner *planner, sli_shape shape, const char *name, int *tensor);

/* One step. Tensors and params by index, -1 = none. */
typedef struct sli_emit {
    const sli_layer *layer;
    const sli_layer *last; /* of a stack; NULL: the same */
    sli_problem problem;   /* batch, steps, dtype, train and mask are filled in by the planner */
    int in[SLI_MAX_IN], out[SLI_MAX_OUT], param[SLI_MAX_PARAM];
    bool takes_mask; /* wants lengths / mask in the op's slots */
    /* Carried states: state s is number s % n of part s / n, n = 2 for LSTM (h, c), else 1 (h); its places are
     * in[SLI_RNN_STATE_IN(part, k)] and out[SLI_RNN_STATE_OUT(part, k)]. */
    int state_count;
    int state_features[SLI_MAX_STATES];
    int state_initial[SLI_MAX_STATES];      /* tensor with the initial state, or -1: zeros or carried */
    int state_final[SLI_MAX_STATES];        /* tensor that gets the final state, or -1 */
    const char *state_name[SLI_MAX_STATES]; /* "LAYER.h" for files and blobs */
    bool stateful;
    bool backward_direction; /* random masks of the second direction */
} sli_emit;
void sli_emit_init(sli_emit *emit, const sli_layer *layer, sli_op op); /* all indices -1 */
sl_status sli_planner_emit(sli_planner *planner, const sli_emit *emit);
/* Wide steps: a stack of layers, both directions of a layer, or both are offered to the kernels as one problem first.
 * The layer that is the only reader of the first output of `layer`, as its first input, with nothing but inputs of the model
 * between the two; NULL if there is none, or if a stack with `layer` was offered and refused before. */
const sli_layer *sli_planner_next(const sli_planner *planner, const sli_layer *layer);
/* Tensor of input k of a layer; -1 while it is not known. */
int sli_planner_input(const sli_planner *planner, const sli_layer *layer, int k);
/* The tensors of a layer's outputs, to be filled in by the step of a stack: the layer will not be asked to emit. */
int *sli_planner_outputs(sli_planner *planner, const sli_layer *layer);
/* Predicted seconds of a problem on the row that would compute it; negative: no row does, or it makes no prediction. */
double sli_planner_seconds(sli_planner *planner, const sli_layer *layer, const sli_problem *problem);
/* Offers the problem of the layers first..last. `parts`: predicted seconds of what else would compute them, negative if not
 * known. Not *taken: the reasons are kept for the explanation. */
sl_status sli_planner_offer(sli_planner *planner, const sli_layer *first, const sli_layer *last,
                            const sli_problem *problem, double parts, bool *taken);

#endif
