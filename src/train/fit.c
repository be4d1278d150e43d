/* The fit loop: batches, micro-batches, steps, epochs, evaluations, checkpoints; events for the caller. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/run.h"
#include "train/training.h"
#include "train/trainer.h"

/* A long epoch is saved now and then, so that a power cut costs minutes. */
enum { SAVE_EVERY_SECONDS = 600 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------------- events -- */
static double per_token(double sum, double count) {
    return count > 0 ? sum / count : NAN;
}

static void fill_progress(const sl_trainer *t, const char *event, sl_progress *p) {
    sl_memory memory;
    sl_plan_memory(t->plan, &memory);
    int64_t total = (int64_t)t->blocks * t->training.epochs;
    memset(p, 0, sizeof *p);
    p->event = event;
    p->step = t->at.step;
    p->total_steps = total;
    p->epoch = t->at.epoch;
    p->total_epochs = t->training.epochs;
    p->loss = t->have_last ? per_token(t->last.loss_sum, t->last.count) : NAN;
    p->gradient_norm = t->last.gradient_norm;
    p->learning_rate = t->last_rate;
    p->seconds = now() - t->started;
    p->tokens = t->session_tokens;
    p->tokens_per_second = t->train_seconds > 0 ? (double)t->session_tokens / t->train_seconds : 0;
    p->eta_seconds = t->session_steps > 0 ? p->seconds / (double)t->session_steps * (double)(total - t->at.step) : 0;
    p->memory_bytes = memory.params_block + memory.run_block;
    p->kernel = sl_plan_kernels(t->plan);
    p->valid_loss = t->have_valid ? per_token(t->valid.loss_sum, t->valid.count) : NAN;
    p->best_loss = isfinite(t->at.best) ? t->at.best : NAN;
    const sl_result *r = strcmp(event, "evaluation") == 0 ? &t->valid : &t->last;
    p->accuracy = t->training.loss == SL_LOSS_MSE ? NAN : per_token(r->correct, r->count);
    p->loss_scale = t->last.loss_scale;
    p->skipped_steps = t->last.skipped_steps;
}

static sl_status tell(sl_trainer *t, const sl_progress *progress) {
    sl_answer answer = t->progress ? t->progress(t->context, progress) : SL_CONTINUE;
    if (answer == SL_STOP_SAVING) t->stop = true;
    SLI_FAIL_IF(answer == SL_ABORT, SL_ERR_CANCELLED, "training was cancelled after step %lld", (long long)t->at.step);
    return SL_OK;
}

static sl_status tell_event(sl_trainer *t, const char *event) {
    sl_progress p;
    fill_progress(t, event, &p);
    p.perplexity = t->training.loss == SL_LOSS_SOFTMAX ? exp(p.loss) : NAN;
    return tell(t, &p);
}

/* --------------------------------------------------------------------------------------------------------- steps -- */
static double rate_of(const sl_trainer *t, int64_t step) {
    sli_schedule_point point = {step, (int64_t)t->blocks * t->training.epochs, t->at.epoch, t->at.plateaus};
    return sli_schedule_rate(&t->training.schedule, t->training.learning_rate, &point);
}

/* Rows of the whole batch `block`. */
static int batch_rows(const sl_trainer *t, size_t block) {
    if (t->tokens) return t->training.batch;
    size_t left = t->arrays.rows - block * (size_t)t->training.batch;
    return left < (size_t)t->training.batch ? (int)left : t->training.batch;
}

/* Rows [row, row + rows) of batch `block` into the buffers; returns steps. */
static int fill_batch(sl_trainer *t, size_t block, int row, int rows) {
    if (t->tokens) return sli_streams_fill(&t->streams, block, row, rows, t->inputs, t->targets);
    size_t first = block * (size_t)t->training.batch + (size_t)row;
    sli_array_fill(&t->arrays, t->order, first, rows, t->inputs, t->targets, t->lengths);
    return t->arrays.steps;
}

/* Steps that follow one with bad numbers are worth nothing. */
static void drop_queued(sl_trainer *t) {
    sl_result result;
    for (; t->queued_count > 0; t->queued_count--) (void)sl_run_step_result(t->run, &result);
}

/* The batch of the step that is not done again: those queued behind it took its place. Carried states are the later ones. */
static void load_again(sl_trainer *t) {
    const void *inputs[1] = {t->inputs};
    sl_batch batch = {
        .batch = batch_rows(t, t->at.block), .inputs = inputs, .lengths = t->lengths, .targets = t->targets};
    batch.steps = fill_batch(t, t->at.block, 0, batch.batch);
    if (sli_run_upload_batch(t->run, &batch) != SL_OK) return;
    t->run->scalars.step = (uint32_t)t->at.step;
    t->run->scalars.loss_scale = t->run->scale;
    (void)sli_run_send_scalars(t->run);
}

/* `step`: the one whose numbers they are. */
static sl_status fail_numbers(sl_trainer *t, int64_t step, const char *what, double value) {
    bool behind = t->queued_count > 0;
    drop_queued(t);
    if (behind) load_again(t);
    const char *layer = sl_run_first_nonfinite(t->run), *from = "; the first such numbers come out of layer ";
    char saved[48] = "";
    if (!layer && t->run->training) {
        layer = sli_run_first_bad_gradient(t->run);
        from = "; the first such gradient is of layer ";
    }
    /* The step's numbers come of the parameters of at.step updates, and so do a validation's: those of a checkpoint, maybe. */
    const bool good = t->good_step < t->at.step;
    const char *kept =
        good ? "; the last good checkpoint is " : "; the last checkpoint, which may be of such numbers already, is ";
    if (t->have_good) snprintf(saved, sizeof saved, " (of step %lld)", (long long)t->good_step);
    char cure[160];
    if (t->at.step > 0)
        snprintf(cure, sizeof cure,
                 "(learning rate %g): lower the learning rate (--lr), or clip the gradients (--clip-norm)",
                 t->last_rate);
    else
        snprintf(cure, sizeof cure,
                 "(before the first update): look at the data, and at what parameters begin with (--init-scale, "
                 "--init-from)");
    return sli_fail(SL_ERR_NUMBERS, "step %lld: the %s is %g%s%s %s%s%s%s", (long long)step, what,
                    isnan(value) ? (double)NAN : value, layer ? from : "", layer ? layer : "", cure,
                    t->have_good ? kept : "", t->have_good ? t->last_path : "", saved);
}

/* Nats that are finite still may be worth nothing: no update leads back from such a loss. Squares are as large as the data make them. */
static bool has_diverged(const sl_trainer *t, double loss_sum, double count) {
    const bool nats = t->training.loss != SL_LOSS_MSE;
    return !isfinite(loss_sum) || (nats && per_token(loss_sum, count) > 1e30);
}

/* What a mean over rows [row, row + rows) of the batch counts in the mean over all: by what has a loss in them, so that parts make
 * the step of the whole. A sum over steps is divided by the rows. */
static double weight_of(const sl_trainer *t, int row, int rows) {
    if (t->tokens || t->training.reduction == SL_REDUCE_SUM_TIME) return rows;
    size_t first = t->at.block * (size_t)t->training.batch + (size_t)row;
    return (double)sli_array_counted(&t->arrays, t->order, first, (size_t)rows);
}

/* One micro-batch: rows [row, row + rows); its gradient counts by its share of the whole batch's weight. */
static sl_status micro_step(sl_trainer *t, int index, int row, int rows, double whole, sl_result *sums) {
    double share = whole > 0 ? weight_of(t, row, rows) / whole : 0;
    char *state = t->state_bytes > 0 ? t->states + (size_t)index * t->state_bytes : NULL;
    sl_result result = {0};
    int steps = fill_batch(t, t->at.block, row, rows);
    const void *inputs[1] = {t->inputs};
    sl_batch batch = {.batch = rows, .steps = steps, .inputs = inputs, .lengths = t->lengths, .targets = t->targets};
    if (state) SLI_TRY(sl_run_set_state(t->run, state, t->state_bytes));
    SLI_TRY(sl_run_gradients(t->run, &batch, NULL, (uint32_t)t->at.step, (uint32_t)index, share, &result));
    if (state) SLI_TRY(sl_run_get_state(t->run, state, t->state_bytes));
    sums->loss_sum += result.loss_sum;
    sums->count += result.count;
    sums->correct += result.correct;
    t->session_tokens += (int64_t)rows * steps;
    if (has_diverged(t, result.loss_sum, result.count))
        return fail_numbers(t, t->at.step + 1, "loss", per_token(result.loss_sum, result.count));
    return SL_OK;
}

/* Scaled gradients overflow now and then, and the device lets such an update be; but not for ever. */
static bool may_overflow(const sl_result *result) {
    return result->loss_scale >= 1.0 / 16384;
}

/* Squares of such gradients are beyond f32, and an optimizer that keeps them stands still for ever. */
static bool squares_overflow(const sl_trainer *t, double norm) {
    const sl_optimizer_kind kind = t->training.optimizer.kind;
    const bool keeps = kind == SL_ADAM || kind == SL_ADAMW || kind == SL_RMSPROP;
    return keeps && t->training.clip.kind == SL_CLIP_NONE && norm > 1e19;
}

/* The step that comes next after those that count is done. */
static sl_status count_step(sl_trainer *t, const sl_result *result, double rate) {
    t->last_rate = rate;
    if (has_diverged(t, result->loss_sum, result->count))
        return fail_numbers(t, t->at.step + 1, "loss", per_token(result->loss_sum, result->count));
    if ((!isfinite(result->gradient_norm) && !may_overflow(result)) || squares_overflow(t, result->gradient_norm))
        return fail_numbers(t, t->at.step + 1, "gradient's norm", result->gradient_norm);
    t->last = *result;
    t->have_last = true;
    t->at.step++;
    t->at.block++;
    t->at.epoch_loss += result->loss_sum;
    t->at.epoch_count += result->count;
    t->session_steps++;
    double end = now(), minutes = t->training.max_minutes;
    t->train_seconds += end - t->step_began;
    t->step_began = end;
    if (minutes > 0 && end - t->started > minutes * 60) t->stop = true;
    if (t->at.step >= sli_most_steps) t->stop = true; /* what a later step saves could not be resumed */
    return SL_OK;
}

/* A step in micro-batches, one after the other. */
static sl_status accumulated_step(sl_trainer *t) {
    sl_result sums = {0}, updated = {0};
    int rows = batch_rows(t, t->at.block), index = 0;
    t->step_began = now();
    t->last_rate = rate_of(t, t->at.step);
    double whole = weight_of(t, 0, rows);
    for (int row = 0; row < rows; row += t->rows, index++)
        SLI_TRY(micro_step(t, index, row, rows - row < t->rows ? rows - row : t->rows, whole, &sums));
    SLI_TRY(sl_run_update(t->run, t->last_rate, &updated));
    sums.gradient_norm = updated.gradient_norm;
    sums.loss_scale = updated.loss_scale;
    sums.skipped_steps = updated.skipped_steps;
    return count_step(t, &sums, t->last_rate);
}

/* Hands the next batch of the epoch to the run. */
static sl_status queue_step(sl_trainer *t) {
    size_t block = t->at.block + (size_t)t->queued_count;
    int64_t step = t->at.step + t->queued_count;
    const void *inputs[1] = {t->inputs};
    if (t->queued_count == 0) t->step_began = now();
    sl_batch batch = {.batch = batch_rows(t, block), .inputs = inputs, .lengths = t->lengths, .targets = t->targets};
    batch.steps = fill_batch(t, block, 0, batch.batch);
    sli_queued_step queued = {rate_of(t, step), (int64_t)batch.batch * batch.steps};
    SLI_TRY(sl_run_step(t->run, &batch, (uint32_t)step, queued.rate));
    t->queued[t->queued_count++] = queued;
    return SL_OK;
}

static sl_status collect_step(sl_trainer *t) {
    sl_result result;
    sli_queued_step oldest = t->queued[0];
    t->queued_count--;
    memmove(t->queued, t->queued + 1, sizeof *t->queued * (size_t)t->queued_count);
    SLI_TRY(sl_run_step_result(t->run, &result));
    t->session_tokens += oldest.tokens;
    return count_step(t, &result, oldest.rate);
}

static bool out_of_time(const sl_trainer *t) {
    return t->training.max_minutes > 0 && now() - t->started > t->training.max_minutes * 60;
}

/* While the device computes a step, the next one is prepared and queued; then the first one's result is looked at. */
static sl_status next_step(sl_trainer *t) {
    if (t->training.accumulate > 1) return accumulated_step(t);
    if (t->queued_count == 0) SLI_TRY(queue_step(t));
    int depth = sl_run_depth(t->run);
    while (t->queued_count < depth && t->queued_count < SLI_TRAINER_DEPTH && !t->stop && !out_of_time(t) &&
           t->at.block + (size_t)t->queued_count < t->blocks)
        SLI_TRY(queue_step(t));
    return collect_step(t);
}

/* After a failure or an abort: what is under way is done, and counts if it is good. */
static sl_status finish_quietly(sl_trainer *t, sl_status status) {
    char detail[1024];
    if (status == SL_OK || t->queued_count == 0) return status;
    snprintf(detail, sizeof detail, "%s", sl_error_detail());
    while (t->queued_count > 0) (void)collect_step(t);
    return sli_fail(status, "%s", detail);
}

/* The steps under way, each with its event. */
static sl_status finish_queued(sl_trainer *t) {
    while (t->queued_count > 0) {
        SLI_TRY(collect_step(t));
        SLI_TRY(tell_event(t, "step"));
    }
    return SL_OK;
}

/* ------------------------------------------------------------------------------------------------------ saving -- */
/* PATH.last is of an earlier training, with validation: --resume, which looks for it first, would go on with that one. What else
 * is called so stays, and what PATH links to: that was written just now. */
static bool is_stale(const sl_trainer *t) {
    struct stat last, saved;
    sl_file *file = NULL;
    if (stat(t->stale_path, &last) != 0 || !S_ISREG(last.st_mode) || stat(t->path, &saved) != 0) return false;
    if (last.st_dev == saved.st_dev && last.st_ino == saved.st_ino) return false;
    sl_training training;
    bool stale = sl_file_open(&t->allocator, t->stale_path, &file) == SL_OK &&
                 sli_file_training(file, &training) == SL_OK &&
                 (training.valid_fraction > 0 || sl_file_metadata(file, "valid") ||
                  strstr(sl_file_metadata(file, "training"), "\"best\": "));
    sl_file_close(file);
    sli_clear_error();
    return stale;
}

static void remove_stale(sl_trainer *t) {
    if (t->stale_path && is_stale(t)) (void)unlink(t->stale_path);
    t->stale_path = NULL;
}

static sl_status save(sl_trainer *t, const char *path, bool resumable) {
    if (!path) return SL_OK;
    sl_progress p;
    SLI_TRY(sli_checkpoint_save(t, path, resumable));
    t->saved_at = now();
    if (resumable) {
        t->good_step = t->at.step;
        t->have_good = true;
        remove_stale(t);
    }
    fill_progress(t, "checkpoint", &p);
    p.path = path;
    return tell(t, &p);
}

/* Loss of the validation data. *improved: these parameters belong into the model file. After a stop in mid-epoch they do so
 * only while it holds none of an epoch's end: resumed, training ends with the file of a training without the stop. */
static sl_status evaluate(sl_trainer *t, bool epoch_end, double *loss, bool *improved) {
    sl_progress p;
    SLI_TRY(sli_trainer_evaluate(t, &t->valid));
    t->have_valid = true;
    *loss = per_token(t->valid.loss_sum, t->valid.count);
    const bool overflows = t->training.loss == SL_LOSS_SOFTMAX && isinf(exp(*loss)); /* the perplexity */
    if (overflows || has_diverged(t, *loss, 1)) return fail_numbers(t, t->at.step, "validation loss", *loss);
    *improved = epoch_end ? *loss < t->at.best : isinf(t->at.best);
    fill_progress(t, "evaluation", &p);
    if (*improved) p.best_loss = *loss;
    p.perplexity = t->training.loss == SL_LOSS_SOFTMAX ? exp(*loss) : NAN;
    p.improved = *improved;
    return tell(t, &p);
}

/* Schedule and early stopping look at the loss at the end of epochs only. */
static void judge_epoch(sl_trainer *t, double loss) {
    sli_position *at = &t->at;
    if (loss < at->best)
        at->best = loss;
    else
        at->plateaus++;
    if (loss < at->patience_best - t->training.min_delta) {
        at->patience_best = loss;
        at->waiting = 0;
    } else {
        at->waiting++;
    }
    at->finished = t->training.patience > 0 && at->waiting >= t->training.patience;
}

/* The model file, the best so far, then the resume point: a kill between the two is made good by doing the epoch again. But for a
 * training's first one, of which the model file alone could not go on: with the resume point alone sli_trainer_resume writes it. */
static sl_status save_best(sl_trainer *t, double before) {
    if (!t->have_good) {
        t->best_is_here = true;
        const sl_status first = save(t, t->last_path, true);
        t->best_is_here = false;
        if (first != SL_OK) t->at.best = before;
        SLI_TRY(first);
    }
    const sl_status status = save(t, t->path, false);
    /* The best that is kept: a caller may go on after a full disk. */
    if (status != SL_OK && status != SL_ERR_CANCELLED) t->at.best = before;
    return status;
}

static sl_status end_epoch(sl_trainer *t) {
    sl_progress p;
    t->at.epoch++;
    t->at.block = 0;
    fill_progress(t, "epoch", &p);
    p.loss = per_token(t->at.epoch_loss, t->at.epoch_count);
    p.perplexity = t->training.loss == SL_LOSS_SOFTMAX ? exp(p.loss) : NAN;
    t->at.epoch_loss = t->at.epoch_count = 0;
    SLI_TRY(tell(t, &p));
    if (t->valid_kind != SLI_VALID_NONE) {
        double loss = 0;
        bool improved = false;
        SLI_TRY(evaluate(t, true, &loss, &improved));
        const double before = t->at.best;
        judge_epoch(t, loss);
        if (improved) SLI_TRY(save_best(t, before));
    }
    if (t->at.finished) SLI_TRY(tell_event(t, "early_stop"));
    return save(t, t->last_path, true);
}

/* Asked to stop in mid-epoch: the resume point first, so that a second signal loses nothing. */
static sl_status stop_here(sl_trainer *t) {
    SLI_TRY(save(t, t->last_path, true));
    if (t->valid_kind != SLI_VALID_NONE) {
        double loss = 0;
        bool improved = false;
        SLI_TRY(evaluate(t, false, &loss, &improved));
        if (improved) SLI_TRY(save(t, t->path, false));
    }
    return tell_event(t, "stop");
}

/* ---------------------------------------------------------------------------------------------------- the loop -- */
static sl_status begin_epoch(sl_trainer *t) {
    if (t->order) sli_shuffle(t->training.seed, (uint32_t)t->at.epoch, t->arrays.rows, t->order);
    bool keep = t->at.block > 0 || (t->training.keep_state && t->at.step > 0);
    if (keep || t->state_bytes == 0) return SL_OK;
    memset(t->states, 0, (size_t)t->training.accumulate * t->state_bytes);
    return sl_run_reset_state(t->run);
}

static sl_status run_epoch(sl_trainer *t) {
    SLI_TRY(begin_epoch(t));
    while (t->at.block < t->blocks) {
        SLI_TRY(next_step(t));
        SLI_TRY(tell_event(t, "step"));
        bool due = now() - t->saved_at > SAVE_EVERY_SECONDS;
        if (t->stop || due) SLI_TRY(finish_queued(t));
        if (t->at.block == t->blocks) break;
        if (t->stop) return stop_here(t);
        if (due) SLI_TRY(save(t, t->last_path, true));
    }
    SLI_TRY(end_epoch(t));
    return t->stop && t->at.epoch < t->training.epochs && !t->at.finished ? tell_event(t, "stop") : SL_OK;
}

sl_status sli_trainer_fit(sl_trainer *trainer, sl_answer (*progress)(void *context, const sl_progress *progress),
                          void *context) {
    sl_trainer *t = trainer;
    SLI_FAIL_IF(!t->run, SL_ERR_USAGE, "the trainer has no memory to run in since resuming failed; make another");
    SLI_FAIL_IF(t->at.step >= sli_most_steps && t->at.epoch < t->training.epochs, SL_ERR_INPUT,
                "training has done %lld steps, and more cannot be numbered: start another one from its parameters "
                "(--init-from)",
                (long long)t->at.step);
    t->progress = progress;
    t->context = context;
    t->stop = false;
    t->started = t->saved_at = now();
    t->train_seconds = 0;
    t->session_steps = t->session_tokens = 0;
    sl_status status = SL_OK;
    while (status == SL_OK && t->at.epoch < t->training.epochs && !t->at.finished && !t->stop)
        status = finish_quietly(t, run_epoch(t));
    return status;
}
