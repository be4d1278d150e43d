/* Options of `sluice train`: the tables, the defaults, and their way into sl_training and sl_model. */
#include "train_options.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------- tables -- */
static const option text_table[] = {
    {OPTION_CHOICE, "level", offsetof(text_options, level), "char|word|byte", 0, 0,
     "what a token is: a UTF-8 character, a word between white space, or a byte (default char)"},
    {OPTION_INT, "vocab-size", offsetof(text_options, vocab_size), "N", 3, 0,
     "keep the N most frequent tokens; <unk> and <eos> count (default: all)"},
    {OPTION_TEXT, "valid", offsetof(text_options, valid), "FILE", 0, 0, "validation text"},
    {OPTION_REAL, "valid-split", offsetof(text_options, valid_split), "X", 0, 0.9,
     "without --valid, this part of the text validates; 0: none (default 0.05)"},
    {OPTION_CHOICE, "split", offsetof(text_options, split), "tail|blocks", 0, 0,
     "which part: the end of the text, or the last blocks of each of the B streams as char-rnn does (default tail)"},
    {0}};
const option_group text_group = {"text", text_table};

static const option model_table[] = {
    {OPTION_TEXT, "preset", offsetof(model_options, preset), "NAME", 0, 0,
     "a published configuration, exactly: char-rnn, ptb-small, ptb-medium or ptb-large; training options may still be "
     "given"},
    {OPTION_CHOICE, "cell", offsetof(model_options, cell), "lstm|gru|rnn", 0, 0,
     "kind of recurrent layer (default lstm)"},
    {OPTION_INT, "layers", offsetof(model_options, layers), "N", 1, 64, "recurrent layers (default 2)"},
    {OPTION_INT, "units", offsetof(model_options, units), "H", 1, 1048576, "units of each (default 256)"},
    {OPTION_INT, "embed", offsetof(model_options, embed), "E", 0, 1048576,
     "features of the embedding; 0: one-hot vectors instead (default: as many as units)"},
    {OPTION_FLAG, "tie", offsetof(model_options, tie), NULL, 0, 0,
     "the output layer uses the embedding's table; needs --embed equal to --units"},
    {OPTION_REAL, "dropout", offsetof(model_options, dropout), "P", 0, 0.99,
     "drop this part of the inputs, between layers and before the output (default 0)"},
    {0}};
const option_group model_group = {"model, for train lm", model_table};

static const option array_table[] = {
    {OPTION_TEXT, "x", offsetof(array_options, x), "X.npy", 0, 0,
     "inputs: numbers [N][T][F] or [N][F], or whole numbers (tokens) [N][T]"},
    {OPTION_TEXT, "y", offsetof(array_options, y), "Y.npy", 0, 0,
     "targets: class labels [N] or [N][T], or numbers shaped like the output"},
    {OPTION_TEXT, "lengths", offsetof(array_options, lengths), "L.npy", 0, 0,
     "steps of each row [N]; the rest is masked, and may be NaN"},
    {OPTION_CHOICE, "loss", offsetof(array_options, loss), "softmax|binary|mse", 0, 0,
     "softmax or binary cross-entropy, both from logits, or mean squared error"},
    {OPTION_TEXT, "valid-x", offsetof(array_options, valid_x), "X.npy", 0, 0, "validation inputs"},
    {OPTION_TEXT, "valid-y", offsetof(array_options, valid_y), "Y.npy", 0, 0, "validation targets"},
    {OPTION_TEXT, "valid-lengths", offsetof(array_options, valid_lengths), "L.npy", 0, 0, "validation lengths"},
    {0}};
const option_group array_group = {"arrays, for train MODEL.json", array_table};

static const option fit_table[] = {
    {OPTION_TEXT, "out", offsetof(fit_options, out), "MODEL", 0, 0,
     "the model file: the best so far; MODEL.last is the resume point"},
    {OPTION_INT, "batch", offsetof(fit_options, batch), "B", 1, 0, "streams or rows a step (default 32)"},
    {OPTION_INT, "steps", offsetof(fit_options, steps), "T", 1, 0,
     "tokens of each stream a step: back-propagation is cut there, the state is carried (default 64)"},
    {OPTION_INT, "epochs", offsetof(fit_options, epochs), "N", 1, 0, "passes over the data (default 10)"},
    {OPTION_CHOICE, "optimizer", offsetof(fit_options, optimizer), "sgd|adam|adamw|rmsprop", 0, 0, "(default adam)"},
    {OPTION_REAL, "lr", offsetof(fit_options, lr), "X", 1e-12, 1e30,
     "learning rate (default 0.002, for arrays 0.001; sgd: 1 and 0.01)"},
    {OPTION_REAL, "momentum", offsetof(fit_options, momentum), "X", 0, 1, "of sgd (default 0)"},
    {OPTION_FLAG, "nesterov", offsetof(fit_options, nesterov), NULL, 0, 0, "Nesterov's momentum"},
    {OPTION_REAL, "weight-decay", offsetof(fit_options, weight_decay), "X", 0, 1e6, "(default 0; adamw: 0.01)"},
    {OPTION_TEXT, "schedule", offsetof(fit_options, schedule), "S", 0, 0,
     "learning rate over time: constant, step:EVERY:FACTOR, exponential:EVERY:FACTOR, cosine:WARMUP:TOTAL:MINIMUM "
     "(TOTAL 0: "
     "the whole training), epoch-decay:HOLD:FACTOR or plateau:DIVISOR (default constant)"},
    {OPTION_REAL, "clip-norm", offsetof(fit_options, clip_norm), "X", 0, 1e30,
     "scale all gradients so that their global norm is at most X; 0: off (default for train lm: 5)"},
    {OPTION_REAL, "clip-value", offsetof(fit_options, clip_value), "X", 0, 1e30, "clip each gradient to +-X instead"},
    {OPTION_REAL, "clip-tensor", offsetof(fit_options, clip_tensor), "X", 0, 1e30,
     "clip the norm of each tensor instead"},
    {OPTION_CHOICE, "reduction", offsetof(fit_options, reduction), "mean|sum-time", 0, 0,
     "loss whose gradient is taken: the mean, or the sum over steps and mean over rows (default mean)"},
    {OPTION_REAL, "init-scale", offsetof(fit_options, init_scale), "X", 1e-12, 1e30,
     "start every parameter from U(-X, X) instead of the initialisers"},
    {OPTION_INT, "accumulate", offsetof(fit_options, accumulate), "N", 1, 0,
     "take each batch in N parts, one after the other: the same step in less memory (default 1)"},
    {OPTION_INT, "patience", offsetof(fit_options, patience), "N", 0, 0,
     "stop after N epochs without improvement; 0: never (default 0)"},
    {OPTION_REAL, "min-delta", offsetof(fit_options, min_delta), "X", 0, 1e30,
     "what counts as improvement (default 0)"},
    {OPTION_FLAG, "no-shuffle", offsetof(fit_options, no_shuffle), NULL, 0, 0, "take array rows in their order"},
    {OPTION_SEED, "seed", offsetof(fit_options, seed), "N", 0, 0,
     "seed of every random number (default 1; with a preset 0)"},
    {OPTION_REAL, "max-minutes", offsetof(fit_options, max_minutes), "M", 1e-9, 1e30,
     "stop after M minutes as Ctrl-C does"},
    {OPTION_TEXT, "log", offsetof(fit_options, log), "FILE", 0, 0,
     "write one JSON object a line for every step and event"},
    {OPTION_FLAG, "profile", offsetof(fit_options, profile), NULL, 0, 0,
     "say at the end where the time of the training steps went, and what each recurrent layer took of a time step"},
    {OPTION_FLAG, "resume", offsetof(fit_options, resume), NULL, 0, 0,
     "go on from MODEL.last, to the same bits as without the interruption; it remembers the options"},
    {OPTION_FLAG, "overwrite", offsetof(fit_options, overwrite), NULL, 0, 0,
     "replace MODEL and MODEL.last, where they are there, by those of a new training"},
    {OPTION_TEXT, "init-from", offsetof(fit_options, init_from), "MODEL", 0, 0,
     "start from the parameters and the vocabulary of another model file"},
    {OPTION_FLAG, "print-model", offsetof(fit_options, print_model), NULL, 0, 0,
     "print the description as JSON instead of training; `sluice train` takes it in place of lm"},
    {0}};
const option_group fit_group = {"training", fit_table};

int train_options_parse(train_options *o, arguments *a, const command *command, int count, char **words) {
    a->values[GROUP_TEXT] = &o->text;
    a->values[GROUP_MODEL] = &o->model;
    a->values[GROUP_ARRAY] = &o->array;
    a->values[GROUP_FIT] = &o->fit;
    a->values[GROUP_WHERE] = &o->where;
    o->model.layers = 2;
    o->model.units = 256;
    return arguments_parse(a, command, count, words);
}

/* ----------------------------------------------------------------------------------------------------- training -- */
void train_defaults(const train_options *o, const arguments *a, const char *task, sl_training *training) {
    bool text = strcmp(task, "lm") == 0;
    bool sgd = arguments_given(a, "optimizer") && o->fit.optimizer == 0;
    *training = (sl_training){.batch = 32, .epochs = 10, .seed = 1, .shuffle = 1};
    training->optimizer.kind = SL_ADAM;
    training->learning_rate = text ? (sgd ? 1 : 0.002) : (sgd ? 0.01 : 0.001);
    training->task = text ? "lm" : "array";
    if (!text) return;
    training->steps = 64;
    training->loss = SL_LOSS_SOFTMAX;
    training->valid_fraction = 0.05;
    training->clip = (sl_clip){SL_CLIP_GLOBAL_NORM, 5};
}

/* Numbers of a schedule that would be read as something else: parts of steps, and a factor that is the library's default. */
static int check_schedule(const command *command, const char *text, sl_schedule_kind kind, const double *values,
                          int count) {
    static const int wholes[] = {0, 1, 1, 2, 1, 0}; /* the first so many count steps or epochs */
    for (int i = 0; i < count && i < wholes[kind]; i++)
        if (values[i] != floor(values[i]) || values[i] > INT_MAX)
            return usage_error(command, "--schedule %s: %.10g is no number of steps or epochs", text, values[i]);
    if ((kind == SL_SCHEDULE_STEP || kind == SL_SCHEDULE_EXPONENTIAL) && values[0] < 1)
        return usage_error(command, "--schedule %s: EVERY must be at least 1", text);
    if (kind == SL_SCHEDULE_PLATEAU && count && values[0] <= 1)
        return usage_error(command, "--schedule %s: DIVISOR must be more than 1", text);
    if (kind != SL_SCHEDULE_COSINE && count == 2 && values[1] == 0)
        return usage_error(command, "--schedule %s: FACTOR must be above 0", text);
    return PARSE_GO_ON;
}

/* "NAME:A:B:C" -> *schedule. */
static int parse_schedule(const command *command, const char *text, sl_schedule *schedule) {
    static const char names[] = "constant step exponential cosine epoch-decay plateau";
    static const char *const kinds[] = {"constant", "step", "exponential", "cosine", "epoch-decay", "plateau"};
    static const int least[] = {0, 2, 2, 0, 2, 0}, most[] = {0, 2, 2, 3, 2, 1};
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
    int kind = 0;
    while (kind < 6 && strcmp(kinds[kind], name) != 0) kind++;
    if (kind == 6) return usage_error(command, "--schedule has no '%s', it takes %s", name, names);
    double values[3] = {0};
    int count = 0;
    for (const char *at = text + strlen(name); *at == ':';) {
        char *end;
        double value = strtod(at + 1, &end);
        if (end == at + 1 || (*end && *end != ':') || count == 3 || !(value >= 0 && value <= 1e30))
            return usage_error(command, "--schedule %s: '%s' is not a number from 0 to 1e30", text, at + 1);
        values[count++] = value;
        at = end;
    }
    if (count < least[kind] || count > most[kind])
        return usage_error(command, "--schedule %s takes from %d to %d numbers, each after a colon, got %d", name,
                           least[kind], most[kind], count);
    int code = check_schedule(command, text, (sl_schedule_kind)kind, values, count);
    if (code != PARSE_GO_ON) return code;
    *schedule = (sl_schedule){.kind = (sl_schedule_kind)kind};
    if (kind == SL_SCHEDULE_STEP || kind == SL_SCHEDULE_EXPONENTIAL) schedule->every = (int64_t)values[0];
    if (kind == SL_SCHEDULE_EPOCH_DECAY) schedule->hold = (int)values[0];
    if (least[kind] == 2) schedule->factor = values[1];
    if (kind == SL_SCHEDULE_PLATEAU) schedule->factor = count ? values[0] : 4;
    if (kind == SL_SCHEDULE_COSINE) {
        schedule->warmup = (int64_t)values[0];
        schedule->total = (int64_t)values[1];
        schedule->minimum = values[2];
    }
    return PARSE_GO_ON;
}

static int apply_clip(const train_options *o, const arguments *a, sl_training *training) {
    static const char *const names[] = {"clip-value", "clip-tensor", "clip-norm"};
    const double values[] = {o->fit.clip_value, o->fit.clip_tensor, o->fit.clip_norm};
    static const sl_clip_kind kinds[] = {SL_CLIP_VALUE, SL_CLIP_NORM, SL_CLIP_GLOBAL_NORM};
    int used = -1;
    for (int i = 0; i < 3; i++) {
        if (!arguments_given(a, names[i])) continue;
        if (used >= 0) return usage_error(a->command, "--%s and --%s exclude each other", names[used], names[i]);
        used = i;
        training->clip = (sl_clip){values[i] > 0 ? kinds[i] : SL_CLIP_NONE, values[i]};
    }
    return PARSE_GO_ON;
}

static void apply_optimizer(const train_options *o, const arguments *a, sl_training *training) {
    static const sl_optimizer_kind kinds[] = {SL_SGD, SL_ADAM, SL_ADAMW, SL_RMSPROP};
    if (arguments_given(a, "optimizer") && training->optimizer.kind != kinds[o->fit.optimizer])
        training->optimizer = (sl_optimizer){.kind = kinds[o->fit.optimizer]};
    if (arguments_given(a, "lr")) training->learning_rate = o->fit.lr;
    if (arguments_given(a, "momentum")) training->optimizer.momentum = o->fit.momentum;
    if (o->fit.nesterov) training->optimizer.nesterov = 1;
    if (arguments_given(a, "weight-decay")) training->optimizer.weight_decay = o->fit.weight_decay;
}

/* Numbers that do not go with what else is asked for. Of a document alone they are bad input, which the library refuses. */
static int refuse_contradictions(const arguments *a, const sl_training *training) {
    const int batch = training->batch ? training->batch : 32, parts = training->accumulate ? training->accumulate : 1;
    if ((arguments_given(a, "batch") || arguments_given(a, "accumulate")) && batch % parts != 0)
        return usage_error(a->command,
                           "a batch of %d cannot be split into %d equal parts: change --batch or --accumulate", batch,
                           parts);
    const sl_schedule *s = &training->schedule;
    if (arguments_given(a, "schedule") && s->total > 0 && s->warmup > s->total)
        return usage_error(a->command, "--schedule: a WARMUP of %lld steps is longer than the TOTAL of %lld",
                           (long long)s->warmup, (long long)s->total);
    if (arguments_given(a, "schedule") && training->learning_rate > 0 && s->minimum > training->learning_rate)
        return usage_error(a->command, "--schedule: a MINIMUM of %g is above the learning rate of %g (--lr)",
                           s->minimum, training->learning_rate);
    if (arguments_given(a, "momentum") && training->optimizer.momentum >= 1)
        return usage_error(a->command, "--momentum must be below 1: with it, steps are added up for ever");
    return PARSE_GO_ON;
}

/* Options that what they belong to does not read. */
static int refuse_useless(const arguments *a, const sl_training *training) {
    static const char *const of_sgd[] = {"momentum", "nesterov"};
    for (int i = 0; i < 2; i++)
        if (arguments_given(a, of_sgd[i]) && training->optimizer.kind != SL_SGD)
            return usage_error(a->command, "--%s goes with --optimizer sgd; the others have none", of_sgd[i]);
    if (arguments_given(a, "nesterov") && training->optimizer.momentum == 0)
        return usage_error(a->command, "--nesterov needs --momentum above 0");
    if (arguments_given(a, "min-delta") && training->patience == 0)
        return usage_error(a->command, "--min-delta goes with --patience");
    if (arguments_given(a, "weight-decay") && training->optimizer.kind == SL_ADAMW &&
        training->optimizer.weight_decay == 0)
        return usage_error(a->command, "--weight-decay 0: adamw without it is --optimizer adam");
    return refuse_contradictions(a, training);
}

int train_apply(const train_options *o, const arguments *a, sl_training *training) {
    static const sl_level levels[] = {SL_LEVEL_CHAR, SL_LEVEL_WORD, SL_LEVEL_BYTE};
    static const sl_loss losses[] = {SL_LOSS_SOFTMAX, SL_LOSS_BINARY, SL_LOSS_MSE};
    const fit_options *fit = &o->fit;
    if (arguments_given(a, "level")) training->level = levels[o->text.level];
    if (arguments_given(a, "vocab-size"))
        training->vocabulary_limit = o->text.vocab_size;
    else if (arguments_given(a, "level") && training->level == SL_LEVEL_BYTE && training->vocabulary_limit != 256)
        training->vocabulary_limit = 0; /* a preset's: bytes have no limit */
    if (arguments_given(a, "valid-split")) training->valid_fraction = o->text.valid_split;
    if (arguments_given(a, "split")) training->split = o->text.split ? SL_SPLIT_BLOCKS : SL_SPLIT_TAIL;
    if (arguments_given(a, "loss")) training->loss = losses[o->array.loss];
    if (o->array.lengths) training->masking = SL_MASK_LENGTHS;
    if (fit->batch) training->batch = fit->batch;
    if (fit->steps) training->steps = fit->steps;
    if (fit->epochs) training->epochs = fit->epochs;
    if (arguments_given(a, "reduction")) training->reduction = fit->reduction ? SL_REDUCE_SUM_TIME : SL_REDUCE_MEAN;
    if (arguments_given(a, "init-scale")) training->init_scale = fit->init_scale;
    if (fit->accumulate) training->accumulate = fit->accumulate;
    if (arguments_given(a, "patience")) training->patience = fit->patience;
    if (arguments_given(a, "patience") && fit->patience == 0)
        training->min_delta = 0; /* of a document, a resume point */
    if (arguments_given(a, "min-delta")) training->min_delta = fit->min_delta;
    if (fit->no_shuffle) training->shuffle = 0;
    if (arguments_given(a, "seed")) training->seed = fit->seed;
    if (arguments_given(a, "max-minutes")) training->max_minutes = fit->max_minutes;
    if (arguments_given(a, "dtype")) training->dtype = where_dtype(&o->where, a);
    if (o->where.device) training->device = o->where.device;
    if (o->where.require) training->require = o->where.require;
    if (o->where.threads) training->threads = o->where.threads;
    if (o->where.recompute_gates) training->recompute_gates = 1;
    if (o->where.no_graph) training->no_graph = 1;
    if (o->where.tune) training->tune = (sl_tune)o->where.tune;
    if (arguments_given(a, "memory-limit")) training->memory_limit = o->where.memory_limit;
    apply_optimizer(o, a, training);
    int code = apply_clip(o, a, training);
    if (code == PARSE_GO_ON && fit->schedule) code = parse_schedule(a->command, fit->schedule, &training->schedule);
    return code == PARSE_GO_ON ? refuse_useless(a, training) : code;
}

/* ------------------------------------------------------------------------------------------------ the lm's model -- */
/* tokens -> embedding (or one-hot) -> dropout -> rnn1 -> dropout -> ... -> output: logits over the vocabulary. */
static sl_status describe(const model_options *m, int embed, int vocabulary, sl_model *model) {
    static const sl_cell cells[] = {SL_LSTM, SL_GRU, SL_RNN};
    char name[32];
    sl_status status = sl_model_add_tokens(model, "tokens", vocabulary);
    if (status == SL_OK && embed > 0) {
        sl_embedding options = {.vocabulary = vocabulary, .units = embed};
        status = sl_model_add_embedding(model, "embedding", &options, NULL);
    } else if (status == SL_OK) {
        status = sl_model_add_one_hot(model, "one_hot", vocabulary, NULL);
    }
    for (int i = 0; i <= m->layers && status == SL_OK; i++) {
        snprintf(name, sizeof name, "dropout%d", i + 1);
        if (m->dropout > 0) status = sl_model_add_dropout(model, name, m->dropout, NULL);
        if (i == m->layers || status != SL_OK) break;
        sl_recurrent options = {.units = m->units, .return_sequences = 1, .stateful = 1};
        snprintf(name, sizeof name, "rnn%d", i + 1);
        status = sl_model_add_recurrent(model, name, cells[m->cell], &options, NULL);
    }
    sl_dense output = {.units = vocabulary, .tied_to = m->tie ? "embedding" : NULL};
    return status == SL_OK ? sl_model_add_dense(model, "output", &output, NULL) : status;
}

int train_describe(const train_options *o, const arguments *a, int size, sl_model **model) {
    const model_options *m = &o->model;
    int embed = arguments_given(a, "embed") ? m->embed : m->units;
    if (m->tie && embed != m->units)
        return usage_error(a->command, "--tie needs --embed equal to --units, got %d and %d", embed, m->units);
    sl_status status = sl_model_new(NULL, model);
    if (status == SL_OK) status = describe(m, embed, size, *model);
    if (status != SL_OK) {
        sl_model_free(*model);
        *model = NULL;
    }
    return report(status);
}
