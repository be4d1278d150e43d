/* Training options: defaults and checks. 0 means the default; what cannot work is refused by name. */
#include "train/training.h"

#include <math.h>

static double default_rate(sl_optimizer_kind kind) {
    return kind == SL_SGD ? 0.01 : 0.001; /* Keras */
}

static sl_status check_number(const char *name, double value, double low, double high) {
    SLI_FAIL_IF(!(value >= low && value <= high), SL_ERR_INPUT, "training: %s is %g, it must be in [%g, %g]", name,
                value, low, high);
    return SL_OK;
}

static sl_status check_count(const char *name, int64_t value) {
    SLI_FAIL_IF(value < 0, SL_ERR_INPUT, "training: %s is %lld, it cannot be negative", name, (long long)value);
    return SL_OK;
}

static sl_status resolve_schedule(sl_schedule *s) {
    bool needs_factor = s->kind != SL_SCHEDULE_CONSTANT && s->kind != SL_SCHEDULE_COSINE;
    if (needs_factor && s->factor == 0) s->factor = s->kind == SL_SCHEDULE_PLATEAU ? 4 : 0.5;
    SLI_FAIL_IF(needs_factor && !(s->factor > 0 && isfinite(s->factor)), SL_ERR_INPUT,
                "training: schedule factor is %g, it must be positive", s->factor);
    SLI_FAIL_IF(s->kind == SL_SCHEDULE_PLATEAU && s->factor <= 1, SL_ERR_INPUT,
                "training: schedule plateau divides by its factor: %g must be more than 1", s->factor);
    SLI_TRY(check_count("schedule every", s->every));
    SLI_TRY(check_count("schedule warmup", s->warmup));
    SLI_TRY(check_count("schedule total", s->total));
    SLI_TRY(check_count("schedule hold", s->hold));
    SLI_TRY(check_number("schedule minimum", s->minimum, 0, 1e30));
    SLI_FAIL_IF(s->total > 0 && s->warmup > s->total, SL_ERR_INPUT,
                "training: schedule warmup of %lld steps is longer than its total of %lld", (long long)s->warmup,
                (long long)s->total);
    SLI_FAIL_IF((s->kind == SL_SCHEDULE_STEP || s->kind == SL_SCHEDULE_EXPONENTIAL) && s->every == 0, SL_ERR_INPUT,
                "training: this schedule needs `every`, the number of steps after which the factor applies");
    return SL_OK;
}

static sl_status check_counts(const sl_training *t) {
    SLI_TRY(check_count("batch", t->batch));
    SLI_TRY(check_count("steps", t->steps));
    SLI_TRY(check_count("epochs", t->epochs));
    SLI_TRY(check_count("accumulate", t->accumulate));
    SLI_TRY(check_count("patience", t->patience));
    SLI_TRY(check_count("threads", t->threads));
    return check_count("vocabulary_limit", t->vocabulary_limit);
}

static sl_status check_numbers(const sl_training *t) {
    const sl_optimizer *o = &t->optimizer;
    SLI_TRY(check_number("learning_rate", t->learning_rate, 0, 1e30));
    SLI_TRY(check_number("momentum", o->momentum, 0, 1));
    SLI_TRY(check_number("beta1", o->beta1, 0, 1));
    SLI_TRY(check_number("beta2", o->beta2, 0, 1));
    SLI_TRY(check_number("rho", o->rho, 0, 1));
    SLI_TRY(check_number("epsilon", o->epsilon, 0, 1e30));
    SLI_TRY(check_number("weight_decay", o->weight_decay, 0, 1e6)); /* beyond, squares leave f32 in silence */
    SLI_TRY(check_number("clip value", t->clip.value, 0, 1e30));
    SLI_TRY(check_number("min_delta", t->min_delta, 0, 1e30));
    SLI_TRY(check_number("init_scale", t->init_scale, 0, 1e30));
    SLI_TRY(check_number("max_minutes", t->max_minutes, 0, 1e30));
    SLI_TRY(check_number("valid_fraction", t->valid_fraction, 0, 1));
    SLI_FAIL_IF(t->valid_fraction == 1, SL_ERR_INPUT, "training: valid_fraction 1 leaves nothing to train on");
    SLI_FAIL_IF(t->clip.kind != SL_CLIP_NONE && t->clip.value == 0, SL_ERR_INPUT,
                "training: clipping needs a value above 0");
    SLI_FAIL_IF(o->nesterov && o->momentum == 0, SL_ERR_INPUT, "training: nesterov needs a momentum above 0");
    return SL_OK;
}

/* Numbers of the optimizer that its kind does not read. */
static sl_status check_optimizer_read(const sl_optimizer *o) {
    const bool adam = o->kind == SL_ADAM || o->kind == SL_ADAMW;
    SLI_FAIL_IF(o->kind != SL_SGD && (o->momentum != 0 || o->nesterov), SL_ERR_INPUT,
                "training: momentum and nesterov belong to sgd: leave them out, or choose it");
    SLI_FAIL_IF(!adam && (o->beta1 != 0 || o->beta2 != 0), SL_ERR_INPUT,
                "training: beta1 and beta2 belong to adam and adamw: leave them out, or choose one of these");
    SLI_FAIL_IF(o->kind != SL_RMSPROP && o->rho != 0, SL_ERR_INPUT,
                "training: rho belongs to rmsprop: leave it out, or choose it");
    SLI_FAIL_IF(o->kind == SL_SGD && o->epsilon != 0, SL_ERR_INPUT,
                "training: epsilon belongs to adam, adamw and rmsprop: leave it out, or choose one of these");
    return SL_OK;
}

/* Numbers of the schedule that its kind does not read. */
static sl_status check_schedule_read(const sl_schedule *s) {
    enum {
        CONSTANT = 1 << SL_SCHEDULE_CONSTANT,
        COSINE = 1 << SL_SCHEDULE_COSINE,
        EPOCH_DECAY = 1 << SL_SCHEDULE_EPOCH_DECAY,
        BY_STEPS = 1 << SL_SCHEDULE_STEP | 1 << SL_SCHEDULE_EXPONENTIAL,
        WITH_FACTOR = BY_STEPS | EPOCH_DECAY | 1 << SL_SCHEDULE_PLATEAU
    };
    const struct {
        const char *name;
        bool given;
        int kinds;
        const char *owners;
    } numbers[] = {{"factor", s->factor != 0, WITH_FACTOR, "step, exponential, epoch_decay and plateau"},
                   {"every", s->every != 0, BY_STEPS, "step and exponential"},
                   {"warmup", s->warmup != 0, COSINE, "cosine"},
                   {"total", s->total != 0, COSINE, "cosine"},
                   {"hold", s->hold != 0, EPOCH_DECAY, "epoch_decay"},
                   {"minimum", s->minimum != 0, ~CONSTANT, "all but constant"}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        SLI_FAIL_IF(numbers[i].given && !(numbers[i].kinds >> s->kind & 1), SL_ERR_INPUT,
                    "training: schedule %s belongs to %s: leave it out, or choose another schedule", numbers[i].name,
                    numbers[i].owners);
    return SL_OK;
}

/* What only a stream of tokens has. */
static sl_status check_array_read(const sl_training *t) {
    const struct {
        const char *name;
        bool given;
    } of_text[] = {{"split", t->split != SL_SPLIT_TAIL},
                   {"drop_partial", t->drop_partial != 0},
                   {"keep_state", t->keep_state != 0}};
    for (size_t i = 0; i < sizeof of_text / sizeof *of_text; i++)
        SLI_FAIL_IF(of_text[i].given, SL_ERR_INPUT, "training: %s belongs to text: leave it out for arrays",
                    of_text[i].name);
    SLI_FAIL_IF(
        t->valid_fraction > 0, SL_ERR_INPUT,
        "training: valid_fraction is a share of a text: leave it out; validation arrays are --valid-x and --valid-y");
    return SL_OK;
}

/* What would be left out without a word. */
static sl_status check_read(const sl_training *t, bool tokens) {
    SLI_TRY(check_optimizer_read(&t->optimizer));
    SLI_TRY(check_schedule_read(&t->schedule));
    SLI_FAIL_IF(t->patience == 0 && t->min_delta != 0, SL_ERR_INPUT,
                "training: min_delta belongs to early stopping: leave it out, or give a patience");
    SLI_FAIL_IF(t->clip.kind == SL_CLIP_NONE && t->clip.value != 0, SL_ERR_INPUT,
                "training: a clip value of %g, but clip is none: name what is clipped (value, norm or global_norm)",
                t->clip.value);
    return tokens ? SL_OK : check_array_read(t);
}

sl_status sli_training_resolve(const sl_training *training, bool tokens, sl_training *out) {
    sl_training t = *training;
    SLI_TRY(sli_training_check_names(&t));
    SLI_TRY(check_counts(&t));
    SLI_TRY(check_numbers(&t));
    SLI_TRY(check_read(&t, tokens));
    SLI_TRY(resolve_schedule(&t.schedule));
    if (t.batch == 0) t.batch = 32;
    if (t.steps == 0 && tokens) t.steps = 50;
    if (t.epochs == 0) t.epochs = 1;
    if (t.accumulate == 0) t.accumulate = 1;
    if (t.learning_rate == 0) t.learning_rate = default_rate(t.optimizer.kind);
    SLI_FAIL_IF(t.schedule.minimum > t.learning_rate, SL_ERR_INPUT,
                "training: schedule minimum is %g, above the learning rate of %g that it ends", t.schedule.minimum,
                t.learning_rate);
    if (tokens && t.loss == SL_LOSS_NONE) t.loss = SL_LOSS_SOFTMAX;
    SLI_FAIL_IF(tokens && t.loss != SL_LOSS_SOFTMAX, SL_ERR_INPUT, "training: a language model's loss is softmax");
    SLI_FAIL_IF(tokens && t.masking != SL_MASK_NONE, SL_ERR_INPUT, "training: a token stream has nothing to mask");
    SLI_FAIL_IF(!tokens && t.masking == SL_MASK_STEPS, SL_ERR_INPUT,
                "training: array data are masked by lengths, not by steps");
    SLI_FAIL_IF(!tokens && t.loss == SL_LOSS_NONE, SL_ERR_INPUT, "training: no loss: give softmax, binary or mse");
    SLI_FAIL_IF(t.batch % t.accumulate != 0, SL_ERR_INPUT,
                "training: a batch of %d cannot be split into %d equal micro-batches: change batch or accumulate",
                t.batch, t.accumulate);
    t.task = tokens ? "lm" : "array";
    *out = t;
    return SL_OK;
}
