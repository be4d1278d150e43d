/* The model of one problem string: a recurrent problem becomes its stack of layers, any other the smallest model whose plan
 * holds that problem. */
#include "proof/problem_model.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 48, STATES = 4, MOST_LAYERS = 1000, MOST_ELEMENTS = 1 << 24 };

/* Inputs of layer `index` (from 1): the layer below or x, then its initial states, which it also adds to the model. */
static sl_status add_states(sl_model *model, const sli_problem *p, int index, char names[STATES][NAME]) {
    int per_direction = p->op == SLI_OP_LSTM ? 2 : 1, count = per_direction * (p->bidirectional ? 2 : 1);
    for (int k = 0; k < count; k++) {
        bool cell = k % per_direction == 1;
        snprintf(names[k], NAME, "rnn%d_%s%s", index, k >= per_direction ? "back_" : "", cell ? "c0" : "h0");
        SLI_TRY(sl_model_add_input(model, names[k], cell ? p->units : sli_problem_output(p), 1));
    }
    return SL_OK;
}

static sl_recurrent layer_options(const sli_problem *p) {
    return (sl_recurrent){.units = p->units,
                          .activation = p->act,
                          .recurrent_activation = p->recurrent_act,
                          .bias = p->bias,
                          .forget_bias_mode = p->forget_at_run ? SL_FORGET_AT_RUN : SL_FORGET_DEFAULT,
                          .forget_bias = p->forget_at_run ? p->forget_bias : 0,
                          .return_sequences = 1,
                          .return_state = 1,
                          .go_backwards = p->reverse,
                          .bidirectional = p->bidirectional ? p->direction_merge : SL_UNIDIRECTIONAL,
                          .reset_before = p->reset_before,
                          .projection = p->projection,
                          .peephole = p->peephole,
                          .cell_clip = p->cell_clip,
                          .recurrent_dropout = p->recurrent_dropout,
                          .zoneout_h = p->zoneout_h,
                          .zoneout_c = p->zoneout_c,
                          .masked_output = p->masked_repeat ? SL_MASKED_REPEAT : SL_MASKED_ZERO};
}

static sl_status set_recurrent_outputs(sl_model *model, const sli_problem *p, const char *last) {
    static const char *const one[] = {"h", "c"}, *const two[] = {"forward.h", "backward.h"};
    static const char *const four[] = {"forward.h", "forward.c", "backward.h", "backward.c"};
    bool lstm = p->op == SLI_OP_LSTM;
    const char *const *suffixes = !p->bidirectional ? one : lstm ? four : two;
    int count = (lstm ? 2 : 1) * (p->bidirectional ? 2 : 1);
    char names[STATES][NAME + 16];
    const char *outputs[STATES + 2] = {last};
    for (int k = 0; k < count; k++) {
        snprintf(names[k], sizeof names[k], "%s.%s", last, suffixes[k]);
        outputs[1 + k] = names[k];
    }
    return sl_model_set_outputs(model, outputs);
}

sl_status sli_problem_leave_states(sl_model *model, const sli_problem *p) {
    char last[NAME];
    const char *outputs[] = {last, NULL};
    snprintf(last, sizeof last, "rnn%d", p->layers);
    return sl_model_set_outputs(model, outputs);
}

static sl_status build_recurrent(sl_model *model, const sli_problem *p, bool states) {
    static const sl_cell cells[] = {[SLI_OP_LSTM] = SL_LSTM, [SLI_OP_GRU] = SL_GRU, [SLI_OP_RNN] = SL_RNN};
    sl_recurrent options = layer_options(p);
    char below[NAME] = "x", name[NAME], given[STATES][NAME];
    SLI_FAIL_IF(p->layers > MOST_LAYERS, SL_ERR_INPUT,
                "problem %s:l%d: a model of more than %d layers is not made for it; give fewer layers",
                sli_op_name(p->op), p->layers, MOST_LAYERS);
    SLI_TRY(sl_model_add_input(model, "x", p->inputs, 0));
    for (int layer = 1; layer <= p->layers; layer++) {
        memset(given, 0, sizeof given);
        if (layer > 1 && p->dropout > 0) {
            const char *inputs[] = {below, NULL};
            snprintf(name, NAME, "drop%d", layer - 1);
            SLI_TRY(sl_model_add_dropout(model, name, p->dropout, inputs));
            memcpy(below, name, NAME);
        }
        if (states) SLI_TRY(add_states(model, p, layer, given));
        const char *inputs[STATES + 2] = {below};
        for (int k = 0; k < STATES && given[k][0]; k++) inputs[1 + k] = given[k];
        snprintf(name, NAME, "rnn%d", layer);
        SLI_TRY(sl_model_add_recurrent(model, name, cells[p->op], &options, inputs));
        memcpy(below, name, NAME);
    }
    return set_recurrent_outputs(model, p, name);
}

static sl_status build_merge(sl_model *model, const sli_problem *p) {
    char names[4][NAME];
    const char *inputs[5] = {NULL};
    for (int k = 0; k < p->parts; k++) {
        snprintf(names[k], NAME, "x%d", k + 1);
        inputs[k] = names[k];
        SLI_TRY(sl_model_add_input(model, names[k], p->parts_units[k], p->steps == 0));
    }
    return sl_model_add_merge(model, "merge", p->merge, inputs);
}

/* A dense layer in front of what needs gradients to work on. */
static sl_status build_dense(sl_model *model, const sli_problem *p, int inputs, int units) {
    sl_dense dense = {.units = units, .activation = p->act, .no_bias = p->no_bias};
    SLI_TRY(sl_model_add_input(model, "x", inputs, p->steps == 0));
    return sl_model_add_dense(model, "dense", &dense, NULL);
}

static sl_status build_other(sl_model *model, const sli_problem *p) {
    sl_embedding embedding = {.vocabulary = p->inputs, .units = p->units};
    switch (p->op) {
    case SLI_OP_DENSE:
        return build_dense(model, p, p->inputs, p->units);
    case SLI_OP_EMBED:
        SLI_TRY(sl_model_add_tokens(model, "x", p->inputs));
        return sl_model_add_embedding(model, "embed", &embedding, NULL);
    case SLI_OP_ONEHOT:
        SLI_TRY(sl_model_add_tokens(model, "x", p->inputs));
        return sl_model_add_one_hot(model, "onehot", p->inputs, NULL);
    case SLI_OP_DROPOUT:
        SLI_TRY(sl_model_add_input(model, "x", p->units, p->steps == 0));
        return sl_model_add_dropout(model, "dropout", p->dropout, NULL);
    case SLI_OP_MERGE:
        return build_merge(model, p);
    case SLI_OP_XENT:
    case SLI_OP_BCE:
    case SLI_OP_MSE:
        return build_dense(model, p, 5, p->units);
    case SLI_OP_NORM:
    case SLI_OP_OPTIM: {
        sl_dense dense = {.units = (int)p->elements, .no_bias = 1};
        SLI_FAIL_IF(p->elements > MOST_ELEMENTS, SL_ERR_INPUT,
                    "problem %s:n%lld: a model of more than 2^24 parameters is not made for it; give a smaller n",
                    sli_op_name(p->op), (long long)p->elements);
        SLI_TRY(sl_model_add_input(model, "x", 1, 1));
        return sl_model_add_dense(model, "dense", &dense, NULL);
    }
    default:
        return sli_fail(SL_ERR_INPUT,
                        "problem %s: no layer of its own makes it; it is part of a recurrent layer that runs in "
                        "reverse, give such a problem (lstm:b2_t3_i4_h5+reverse)",
                        sli_op_name(p->op));
    }
}

static void fill_options(const sli_problem *p, sl_plan_options *options) {
    options->batch = p->batch > 0 ? p->batch : 1;
    options->steps = p->steps > 0 ? p->steps : 1;
    options->dtype = p->dtype;
    options->train = p->train;
    options->recompute_gates = p->recompute;
    options->narrow_parameters = p->narrow;
    options->narrow_tensors = p->narrow_io;
    options->masking = p->mask == SLI_MASK_NONE      ? SL_MASK_NONE
                       : p->mask == SLI_MASK_LENGTHS ? SL_MASK_LENGTHS
                                                     : SL_MASK_STEPS;
    if (p->op == SLI_OP_XENT) options->loss = SL_LOSS_SOFTMAX;
    if (p->op == SLI_OP_BCE) options->loss = SL_LOSS_BINARY;
    if (p->op == SLI_OP_MSE) options->loss = SL_LOSS_MSE;
    if (options->loss != SL_LOSS_NONE && !sli_op_is_recurrent(p->op)) options->reduction = p->reduction;
    if (p->op != SLI_OP_NORM && p->op != SLI_OP_OPTIM) return;
    options->train = 1;
    options->optimizer = p->optimizer;
    options->clip = p->clip;
}

sl_status sli_problem_model(const sl_allocator *allocator, const sli_problem *problem, bool states, sl_model **model,
                            sl_plan_options *options) {
    SLI_TRY(sl_model_new(allocator, model));
    sl_status status =
        sli_op_is_recurrent(problem->op) ? build_recurrent(*model, problem, states) : build_other(*model, problem);
    if (status != SL_OK) {
        sl_model_free(*model);
        *model = NULL;
    } else if (options) {
        fill_options(problem, options);
    }
    return status;
}

sl_status sl_model_from_problem(const sl_allocator *allocator, const char *problem, sl_model **model,
                                sl_plan_options *options) {
    sli_problem parsed;
    if (model) *model = NULL;
    SLI_FAIL_IF(!model || !problem, SL_ERR_USAGE, "sl_model_from_problem: problem and model must not be NULL");
    SLI_TRY(sli_problem_parse(problem, &parsed));
    return sli_problem_model(allocator, &parsed, false, model, options);
}
