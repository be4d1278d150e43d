/* sluice train: makes or reads a description with its training options, and runs the one fit loop on text or on arrays. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "files.h"
#include "progress.h"
#include "resume.h"
#include "train_options.h"

/* One call of the command. Every pointer is NULL until it is made; job_free frees all. */
typedef struct train_job {
    train_options options;
    arguments a;
    char *document; /* MODEL.json as read */
    size_t document_bytes;
    sl_model *model;
    sl_training training;
    sl_vocabulary *vocabulary;
    char *text, *valid_text;
    size_t text_bytes, valid_bytes;
    int32_t *tokens, *valid_tokens;
    size_t count, valid_count;
    sl_array arrays[6]; /* x, y, lengths, valid x, valid y, valid lengths */
    sl_dataset train, valid;
    bool has_valid;
    resume_point resume; /* path NULL: a new training */
    char *valid_path;    /* remembered by the resume point, --valid not given */
    sl_trainer *trainer;
    file_lock lock, lock_last; /* of --out and its resume point */
    char *command;             /* as typed, for the log */
} train_job;

static void free_texts(train_job *job) {
    sl_text_free(job->text);
    sl_text_free(job->valid_text);
    job->text = job->valid_text = NULL;
}

static void job_free(train_job *job) {
    sl_trainer_free(job->trainer);
    for (int i = 0; i < 6; i++)
        if (job->arrays[i].data) sl_array_free(&job->arrays[i]);
    if (job->tokens) sl_tokens_free(job->vocabulary, job->tokens, job->count);
    if (job->valid_tokens) sl_tokens_free(job->vocabulary, job->valid_tokens, job->valid_count);
    free_texts(job);
    sl_vocabulary_free(job->vocabulary);
    sl_model_free(job->model);
    sl_text_free(job->document);
    resume_free(&job->resume);
    free(job->valid_path);
    free(job->command);
    unlock_file(&job->lock_last);
    unlock_file(&job->lock);
}

/* ----------------------------------------------------------------------------------------------------- the fit -- */
static double parameter_count(const sl_params *params) {
    double sum = 0;
    int rows, columns;
    for (int i = 0; sl_params_name(params, i, &rows, &columns); i++) sum += (double)rows * columns;
    return sum;
}

static void print_summary(const train_job *job) {
    if (job->resume.path) printf("resume %s, after step %lld\n", job->resume.path, (long long)job->resume.step);
    if (sl_trainer_note(job->trainer)) printf("note   %s\n", sl_trainer_note(job->trainer));
    const sl_plan *plan = sl_trainer_plan(job->trainer);
    const sl_training *t = &job->training;
    sl_memory m;
    sl_plan_memory(plan, &m);
    char a[BYTES_TEXT], b[BYTES_TEXT], c[BYTES_TEXT];
    if (job->vocabulary) {
        static const char *const levels[] = {"characters", "words", "bytes"};
        printf("data   %s %s, vocabulary %s", count_text((long long)job->count, a),
               levels[sl_vocabulary_level(job->vocabulary)], count_text(sl_vocabulary_size(job->vocabulary), b));
        if (job->has_valid)
            printf("; %s validate\n", count_text((long long)job->valid_count, a));
        else if (t->valid_fraction > 0)
            printf("; %.3g%% of them validate\n", t->valid_fraction * 100);
        else
            printf("; none validate\n");
    } else {
        printf("data   %s rows; %s validate\n", count_text((long long)job->arrays[0].shape[0], a),
               job->has_valid ? count_text((long long)job->arrays[3].shape[0], b) : "none");
    }
    const char *device = sl_plan_device(plan);
    bool gpu = strncmp(device, "cuda", 4) == 0;
    char place[64];
    if (gpu)
        snprintf(place, sizeof place, "%s", device);
    else
        snprintf(place, sizeof place, "%d thread%s", sl_plan_threads(plan), sl_plan_threads(plan) == 1 ? "" : "s");
    printf("plan   %s parameters; kernel %s; %s; %.3g MFLOP a step\n",
           count_text((long long)parameter_count(sl_trainer_params(job->trainer)), a), sl_plan_kernels(plan), place,
           sl_plan_flops(plan) / 1e6);
    printf("memory %s: parameters and optimizer %s, run %s",
           bytes_text((double)m.params_block + (double)m.run_block, a), bytes_text((double)m.params_block, b),
           bytes_text((double)m.run_block, c));
    if (m.segments > 1) printf(" (activations recomputed in %d segments)", m.segments);
    if (gpu)
        printf("; beside it CUDA's own, about half a GiB\n");
    else
        printf("; BLAS about %s more\n", bytes_text((double)m.blas_buffers, a));
    print_notes(plan);
    flush_output();
}

/* Only what this call wrote. */
static void print_files(const train_job *job, const progress_view *view) {
    const char *out = job->options.fit.out, *hint = view->stopped ? "; go on with --resume" : "";
    const bool there = view->wrote_out || access(out, F_OK) == 0;
    if (view->wrote_last && view->wrote_out)
        printf("wrote %s (the best so far) and %s.last (the resume point)%s\n", out, out, hint);
    else if (view->wrote_last)
        printf("wrote %s.last (the resume point); %s %s%s\n", out, out,
               there ? "keeps the best so far" : "held the best so far and is not there", hint);
    else if (view->wrote_out)
        printf("wrote %s%s\n", out, hint);
    if (there && view->stopped && view->wrote_last && view->evaluated && view->valid_loss < view->best_loss)
        printf("%s.last has the better validation loss: the best is kept at the ends of epochs\n", out);
    if (!job->vocabulary || view->stopped || !there) return;
    fputs("next: sluice generate ", stdout);
    print_path_word(out);
    puts(" --length 400");
}

static void print_end(const train_job *job, const progress_view *view) {
    char seconds[BYTES_TEXT];
    printf("%s after %lld of %lld steps in %s", view->stopped ? "stopped" : "done", (long long)view->last.step,
           (long long)view->last.total_steps, seconds_text(view->last.seconds, seconds));
    if (view->evaluated && view->perplexity)
        printf("; best validation loss %.4f (perplexity %.2f)", view->best_loss, exp(view->best_loss));
    else if (view->evaluated)
        printf("; best validation loss %.6g", view->best_loss);
    putchar('\n');
    print_files(job, view);
}

/* Resumed, and there was no step to do. */
static int nothing_left(const train_job *job) {
    if (job->resume.epoch < job->training.epochs)
        puts("nothing left to do: training stopped early for want of improvement; give more --patience");
    else
        printf("nothing left to do: %d epochs are done; give more --epochs\n", job->resume.epoch);
    return 0;
}

static int make_trainer(train_job *job) {
    const train_options *o = &job->options;
    const char *metadata[] = {NULL, NULL, NULL, NULL, NULL};
    int count = 0;
    if (job->vocabulary) {
        metadata[count++] = "vocabulary";
        metadata[count++] = sl_vocabulary_to_json(job->vocabulary);
        if (!metadata[1]) return report_memory();
    }
    const char *valid = job->vocabulary ? o->text.valid : o->array.valid_x;
    if (valid) {
        metadata[count++] = "valid";
        metadata[count++] = valid;
    }
    int code = report(sl_trainer_new(job->model, &job->training, &job->train, job->has_valid ? &job->valid : NULL,
                                     o->fit.out, metadata, &job->trainer));
    if (!code && o->fit.init_from) code = report(sl_trainer_init_from(job->trainer, o->fit.init_from));
    if (!code && o->fit.resume) code = report(sl_trainer_resume(job->trainer));
    return code;
}

/* Shares of the time on the device, the largest first; what the recurrent layers took of a time step. */
static int print_profile(const train_job *job) {
    sl_profile_part parts[SL_PROFILE_PARTS];
    int code = report(sl_trainer_profile_end(job->trainer, parts));
    double sum = 0;
    for (int i = 0; !code && i < SL_PROFILE_PARTS; i++) sum += parts[i].seconds;
    for (int i = 0; !code && i < SL_PROFILE_PARTS; i++)
        printf("%s %-18s %6.2f %%  %9.3f s\n", i == 0 ? "profile" : "       ", parts[i].name,
               sum > 0 ? 100 * parts[i].seconds / sum : 0, parts[i].seconds);
    sl_step_time time;
    for (int i = 0; !code && sl_trainer_step_time(job->trainer, i, &time); i++) {
        if (time.forward < 0) continue;
        printf("%s %s %s %s: %.3f us a time step, forward %.3f, backward %.3f", i == 0 ? "layer  " : "       ",
               time.layer, time.problem, time.kernel, 1e6 * (time.forward + time.backward), 1e6 * time.forward,
               1e6 * time.backward);
        if (time.predicted >= 0) printf("; predicted %.3f", 1e6 * time.predicted);
        putchar('\n');
    }
    return code;
}

static int fit(train_job *job) {
    const train_options *o = &job->options;
    static const char *const units[] = {"chars", "words", "bytes"};
    resume_close_file(&job->resume);
    int code = make_trainer(job);
    if (code) return code;
    bool resumed = job->resume.path != NULL;
    if (resumed && job->resume.epoch >= job->training.epochs) return nothing_left(job);
    progress_view view = {.terminal = progress_is_terminal(),
                          .perplexity = job->training.loss == SL_LOSS_SOFTMAX,
                          .validates = job->has_valid || (job->vocabulary && job->training.valid_fraction > 0),
                          .out = o->fit.out,
                          .unit = job->vocabulary ? units[sl_vocabulary_level(job->vocabulary)] : "rows x steps"};
    if (o->fit.profile) code = report(sl_trainer_profile_begin(job->trainer));
    if (!code) code = progress_open(&view, o->fit.log, resumed ? job->resume.step : -1);
    if (code) return code;
    print_summary(job);
    progress_start(&view, sl_trainer_plan(job->trainer), job->command, parameter_count(sl_trainer_params(job->trainer)),
                   sl_trainer_note(job->trainer));
    progress_catch_signals();
    sl_status status = sl_trainer_fit(job->trainer, progress_show, &view);
    code = progress_close(&view);
    if (status != SL_OK) return report(status);
    if (o->fit.profile && !code) code = print_profile(job);
    if (view.events == 0 && resumed) return nothing_left(job);
    print_end(job, &view);
    flush_output();
    if (output_failed() == EPIPE && view.stopped)
        return report_as(SL_ERR_IO, "nobody reads the output any more: stopped after step %lld; go on with --resume",
                         (long long)view.last.step);
    return code;
}

/* ------------------------------------------------------------------------------------------------------ document -- */
/* Puts the given options into job->training, which holds the defaults, a description's or the resume point's. Gives
 * PARSE_GO_ON or an exit code. */
static int apply_options(train_job *job) {
    int code = train_apply(&job->options, &job->a, &job->training);
    if (code != PARSE_GO_ON || !job->resume.path) return code;
    code = resume_check_training(&job->resume, &job->a, &job->training);
    /* f32 and the default are the same, but not the same word. */
    if (job->training.dtype == SL_F32 && job->resume.training.dtype == SL_DTYPE_DEFAULT)
        job->training.dtype = SL_DTYPE_DEFAULT;
    return code ? code : PARSE_GO_ON;
}

/* Parses job->document; gives PARSE_GO_ON or an exit code. `task` is what the words on the command line ask for. */
static int read_document(train_job *job, const char *task) {
    const char *name = name_texts(job->a.positional, 1);
    int code = report_at(name, sl_model_from_json(NULL, job->document, job->document_bytes, &job->model));
    if (!code) code = report_at(name, sl_training_from_json(job->document, job->document_bytes, &job->training));
    if (code) return code;
    const sl_training document = job->training;
    if (!job->training.task) train_defaults(&job->options, &job->a, task, &job->training);
    if (job->resume.path) job->training = job->resume.training;
    if (strcmp(job->training.task, task) != 0)
        return usage_error(job->a.command, "the description is for %s, which needs %s",
                           task[0] == 'l' ? "arrays" : "text", task[0] == 'l' ? "--x and --y" : "TEXT files, not --x");
    if (job->resume.path && document.task && !job->options.fit.print_model)
        resume_tell_document(&job->resume, &job->a, name, &document);
    return apply_options(job);
}

/* Prints the document of job->model and job->training, or replaces both by what it says. */
static int write_document(train_job *job) {
    const char *text;
    int code = report(sl_training_to_json(job->model, &job->training, NULL, &text));
    if (code) return code;
    if (job->options.fit.print_model) {
        fputs(text, stdout);
        return 0;
    }
    size_t bytes = strlen(text);
    /* Read back like any other file: `train lm` is `train MODEL.json`, so that both compute the same bits. */
    sl_model *parsed = NULL;
    code = report(sl_model_from_json(NULL, text, bytes, &parsed));
    if (!code) code = report(sl_training_from_json(text, bytes, &job->training));
    sl_model_free(job->model);
    job->model = parsed;
    if (code) return code;
    code = apply_options(job);
    return code == PARSE_GO_ON ? 0 : code;
}

/* --------------------------------------------------------------------------------------------------------- text -- */
typedef struct vocabulary_wish {
    sl_level level;
    int limit;
    sl_vocabulary **vocabulary;
} vocabulary_wish;

static sl_status new_vocabulary(void *context, const char *text, size_t bytes) {
    const vocabulary_wish *wish = context;
    return sl_vocabulary_new(NULL, wish->level, text, bytes, wish->limit, wish->vocabulary);
}

static void forget_vocabulary(void *context) {
    const vocabulary_wish *wish = context;
    sl_vocabulary_free(*wish->vocabulary);
    *wish->vocabulary = NULL;
}

/* The vocabulary of the text, or that of the model to start from or of the resume point. */
static int make_vocabulary(train_job *job, sl_level level, int limit) {
    const char *from = job->options.fit.init_from;
    int code = 0;
    if (job->resume.path) {
        job->vocabulary = file_vocabulary(job->resume.file, job->resume.path, &code);
        return code;
    }
    if (!from) {
        vocabulary_wish wish = {level, limit, &job->vocabulary};
        return use_texts(job->a.positional + 1, job->a.positionals - 1, job->text, job->text_bytes, new_vocabulary,
                         forget_vocabulary, &wish);
    }
    sl_file *file;
    code = report(sl_file_open(NULL, from, &file));
    if (!code) job->vocabulary = file_vocabulary(file, from, &code);
    sl_file_close(file);
    return code;
}

/* A description is made for one vocabulary; with another, tokens would mean something else. */
static int check_vocabulary(const train_job *job) {
    int wanted = 0, size = sl_vocabulary_size(job->vocabulary);
    if (!sl_model_input(job->model, 0, &wanted, NULL, NULL) || wanted == 0)
        return report_as(SL_ERR_INPUT, "%s describes no model of tokens; give arrays with --x and --y",
                         job->a.positional[0]);
    if (wanted == size) return 0;
    return report_as(
        SL_ERR_INPUT,
        "%s: its vocabulary has %d tokens, the description is for %d; give the text it was made for, or make "
        "another with train lm --print-model",
        name_texts(job->a.positional + 1, job->a.positionals - 1), size, wanted);
}

static int encode(train_job *job) {
    int code = encode_texts(job->vocabulary, job->a.positional + 1, job->a.positionals - 1, job->text, job->text_bytes,
                            &job->tokens, &job->count);
    char *valid = (char *)job->options.text.valid;
    if (!code && job->valid_path && strcmp(job->valid_path, "-") != 0 && access(job->valid_path, R_OK) != 0)
        return report_as(SL_ERR_FILE,
                         "%s, which the resume point remembers as --valid, cannot be opened (%s); give --valid anew",
                         job->valid_path, strerror(errno));
    if (!code && valid) {
        code = read_texts(&valid, 1, &job->valid_text, &job->valid_bytes);
        if (!code)
            code = report_at(name_texts(&valid, 1),
                             sl_vocabulary_encode(job->vocabulary, job->valid_text, job->valid_bytes,
                                                  &job->valid_tokens, &job->valid_count));
    }
    free_texts(job);
    job->train = (sl_dataset){.tokens = job->tokens, .token_count = job->count};
    job->valid = (sl_dataset){.tokens = job->valid_tokens, .token_count = job->valid_count};
    job->has_valid = valid != NULL;
    return code;
}

static int describe_preset(train_job *job, sl_training *base) {
    sl_model *sketch;
    const char *name = job->options.model.preset;
    /* Twice: first for the level of the text, then for the size of its vocabulary. */
    int code = report(sl_preset(NULL, name, 2, &sketch, base));
    if (code) return code;
    sl_model_free(sketch);
    sl_training wanted = *base;
    code = train_apply(&job->options, &job->a, &wanted);
    if (code != PARSE_GO_ON) return code;
    code = make_vocabulary(job, wanted.level, wanted.vocabulary_limit);
    if (code) return code;
    return report(sl_preset(NULL, name, sl_vocabulary_size(job->vocabulary), &job->model, base));
}

/* The resume point has the model; options that are given again must say the same. */
static int describe_resumed(train_job *job) {
    const train_options *o = &job->options;
    const char *then = sl_file_metadata(job->resume.file, "model"), *now;
    if (strcmp(job->resume.training.task, "lm") != 0)
        return report_as(SL_ERR_INPUT, "%s is no language model; give its MODEL.json, --x and --y", job->resume.path);
    int code = make_vocabulary(job, SL_LEVEL_CHAR, 0);
    if (!code && !o->model.preset) code = resume_check_model(&job->resume, &o->model, &job->a);
    if (!code && !o->model.preset) code = report(sl_file_model(job->resume.file, &job->model));
    if (!code && o->model.preset) {
        sl_training unused;
        code = report(sl_preset(NULL, o->model.preset, sl_vocabulary_size(job->vocabulary), &job->model, &unused));
        if (!code) code = report(sl_model_to_json(job->model, &now));
        if (!code && (!then || strcmp(then, now) != 0))
            code = report_as(SL_ERR_INPUT, "--preset: %s holds another model; leave the option out to go on",
                             job->resume.path);
    }
    if (code) return code;
    job->training = job->resume.training;
    code = apply_options(job);
    return code == PARSE_GO_ON ? 0 : code;
}

/* `train lm`: options -> description and training options. */
static int describe_lm(train_job *job) {
    const train_options *o = &job->options;
    const char *given = o->model.preset ? arguments_first_other(&job->a, GROUP_MODEL, "preset") : NULL;
    if (given) return usage_error(job->a.command, "--preset fixes the model: leave out --%s", given);
    if (job->resume.path) return describe_resumed(job);
    int code;
    if (o->model.preset) {
        code = describe_preset(job, &job->training);
        if (code) return code;
        code = train_apply(o, &job->a, &job->training);
        return code == PARSE_GO_ON ? 0 : code;
    }
    train_defaults(o, &job->a, "lm", &job->training);
    code = train_apply(o, &job->a, &job->training);
    if (code != PARSE_GO_ON) return code;
    code = make_vocabulary(job, job->training.level, job->training.vocabulary_limit);
    return code ? code : train_describe(o, &job->a, sl_vocabulary_size(job->vocabulary), &job->model);
}

/* Options that nothing would read here. Gives 0 or exit code 2. */
static int refuse_for_text(const train_job *job) {
    const arguments *a = &job->a;
    const char *given = arguments_first_other(a, GROUP_ARRAY, NULL);
    if (given) return usage_error(a->command, "--%s goes with arrays, not with text", given);
    if (arguments_given(a, "no-shuffle"))
        return usage_error(a->command, "--no-shuffle goes with arrays; text is always read in its order");
    if (job->options.text.valid && job->options.text.valid_split > 0)
        return usage_error(a->command, "--valid and --valid-split exclude each other");
    static const char *const vocabulary[] = {"level", "vocab-size"};
    for (int i = 0; i < 2; i++)
        if (job->options.fit.init_from && arguments_given(a, vocabulary[i]))
            return usage_error(a->command, "--%s: the vocabulary is that of --init-from; leave it out", vocabulary[i]);
    return 0;
}

/* The validation text of the resume point, unless one is given: it may have moved. */
static int take_valid(train_job *job) {
    const char *then = resume_valid(&job->resume);
    if (job->options.text.valid && !then)
        return report_as(
            SL_ERR_INPUT,
            "--valid: %s was trained without it; leave it out, or start anew with --overwrite in place of --resume",
            job->resume.path);
    if (job->options.text.valid || !then) return 0;
    job->valid_path = strdup(then);
    job->options.text.valid = job->valid_path;
    return job->valid_path ? 0 : report_memory();
}

static int train_text(train_job *job, bool lm) {
    int code = refuse_for_text(job);
    if (!code && job->resume.path) code = take_valid(job);
    if (!code) code = read_texts(job->a.positional + 1, job->a.positionals - 1, &job->text, &job->text_bytes);
    if (code) return code;
    if (lm) {
        code = describe_lm(job);
    } else {
        code = read_document(job, "lm");
        code = code == PARSE_GO_ON ? make_vocabulary(job, job->training.level, job->training.vocabulary_limit) : code;
    }
    if (!code) code = check_vocabulary(job);
    if (!code) job->training.level = sl_vocabulary_level(job->vocabulary); /* --init-from's may be another */
    if (!code) code = write_document(job);
    if (code || job->options.fit.print_model) return code;
    code = encode(job);
    return code ? code : fit(job);
}

/* ------------------------------------------------------------------------------------------------------- arrays -- */
/* Options that nothing would read here, and what goes together. Gives 0 or exit code 2. */
static int refuse_for_arrays(const train_job *job) {
    const array_options *o = &job->options.array;
    const command *command = job->a.command;
    const char *given = arguments_first_other(&job->a, GROUP_TEXT, NULL);
    if (given) return usage_error(command, "--%s goes with text, not with arrays", given);
    if (arguments_given(&job->a, "steps"))
        return usage_error(command, "--steps goes with text; sequences of arrays are run whole");
    if (!job->options.fit.print_model && (!o->x || !o->y))
        return usage_error(command, "training on arrays needs --x X.npy and --y Y.npy");
    if (!o->valid_x != !o->valid_y) return usage_error(command, "--valid-x and --valid-y go together");
    if (o->valid_lengths && !o->valid_x) return usage_error(command, "--valid-lengths goes with --valid-x");
    bool arrays = job->resume.path && strcmp(job->resume.training.task, "array") == 0;
    if (!arrays || !o->valid_x == !resume_valid(&job->resume)) return 0;
    return usage_error(command, "%s was trained with%s validation arrays: %s --valid-x and --valid-y", job->resume.path,
                       o->valid_x ? "out" : "", o->valid_x ? "leave out" : "give");
}

static int train_arrays(train_job *job) {
    const array_options *o = &job->options.array;
    int code = refuse_for_arrays(job);
    if (code) return code;
    code = read_document(job, "array");
    if (code != PARSE_GO_ON) return code;
    if (job->training.loss == SL_LOSS_NONE)
        return usage_error(job->a.command, "no loss: give --loss softmax, binary or mse");
    code = write_document(job);
    if (code || job->options.fit.print_model) return code;
    const char *const paths[6] = {o->x, o->y, o->lengths, o->valid_x, o->valid_y, o->valid_lengths};
    for (int i = 0; i < 6; i++) {
        if (paths[i]) code = report(sl_npy_read(NULL, paths[i], &job->arrays[i]));
        if (code) return code;
    }
    sl_array *at = job->arrays;
    job->train = (sl_dataset){.x = &at[0], .y = &at[1], .lengths = o->lengths ? &at[2] : NULL};
    job->valid = (sl_dataset){.x = &at[3], .y = &at[4], .lengths = o->valid_lengths ? &at[5] : NULL};
    job->has_valid = o->valid_x != NULL;
    return fit(job);
}

/* ------------------------------------------------------------------------------------------------------ command -- */
/* Nothing that is read may be written over, nor two outputs be one. Texts may be many; a description and arrays are few. The
 * resume point, open already, is read to be replaced. */
static int refuse_overwriting(const train_job *job) {
    const arguments *a = &job->a;
    const train_options *o = &job->options;
    const array_options *arrays = &o->array;
    char last[4096] = "";
    if (!o->fit.out) return 0;
    snprintf(last, sizeof last, "%s.last", o->fit.out);
    file_use uses[] = {{o->fit.out, "--out", FILE_WRITTEN},
                       {last, "the resume point of --out", FILE_WRITTEN},
                       {o->fit.log, "--log", FILE_APPENDED},
                       {NULL, "the text or description", FILE_READ},
                       {o->text.valid ? o->text.valid : resume_valid(&job->resume), "--valid", FILE_READ},
                       {o->fit.init_from, "--init-from", FILE_READ},
                       {arrays->x, "--x", FILE_READ},
                       {arrays->y, "--y", FILE_READ},
                       {arrays->lengths, "--lengths", FILE_READ},
                       {arrays->valid_x, "--valid-x", FILE_READ},
                       {arrays->valid_y, "--valid-y", FILE_READ},
                       {arrays->valid_lengths, "--valid-lengths", FILE_READ}};
    int code = 0;
    for (int i = strcmp(a->positional[0], "lm") == 0; i < a->positionals && !code; i++) {
        uses[3].path = a->positional[i];
        code = refuse_same_files(a->command, uses, (int)(sizeof uses / sizeof *uses));
    }
    if (!code) code = refuse_other_lines(a->command, "--log", o->fit.log, "event");
    if (code || o->fit.resume) return code;
    const bool replaces = o->fit.overwrite || o->fit.print_model; /* which writes neither */
    return refuse_models(a->command, o->fit.out, last, replaces);
}

/* Another training's model may have the name of this one's resume point. */
static int lock_models(train_job *job) {
    char *last;
    if (asprintf(&last, "%s.last", job->options.fit.out) < 0) return report_memory();
    int code = lock_file(job->options.fit.out, &job->lock);
    if (!code) code = lock_file(last, &job->lock_last);
    free(last);
    return code;
}

static int run_job(train_job *job) {
    const arguments *a = &job->a;
    const char *what = a->positional[0];
    bool lm = strcmp(what, "lm") == 0;
    if (!job->options.fit.out && !job->options.fit.print_model)
        return usage_error(a->command, "train needs --out MODEL, the file to write");
    if (job->options.fit.resume && (job->options.fit.init_from || job->options.fit.overwrite))
        return usage_error(a->command, "--resume and --%s exclude each other",
                           job->options.fit.init_from ? "init-from" : "overwrite");
    struct stat about;
    if (job->options.fit.init_from && stat(job->options.fit.init_from, &about) == 0 && !S_ISREG(about.st_mode))
        return usage_error(a->command,
                           "--init-from %s is no file, and is read more than once; give a model file's name",
                           job->options.fit.init_from);
    if (job->options.fit.init_from && arguments_given(a, "init-scale"))
        return usage_error(a->command, "--init-scale: the parameters are those of --init-from; leave it out");
    if (lm && a->positionals < 2) return usage_error(a->command, "train lm needs a TEXT file, or - for standard input");
    if (job->options.fit.resume && !job->options.fit.out)
        return usage_error(a->command, "--resume needs --out MODEL, the file to go on with");
    int code = job->options.fit.print_model ? 0 : lock_models(job);
    if (!code && job->options.fit.resume) code = resume_open(&job->resume, job->options.fit.out);
    if (!code) code = refuse_overwriting(job);
    if (code) return code;
    if (lm) return train_text(job, true);
    const char *given = arguments_first_other(a, GROUP_MODEL, NULL);
    if (given)
        return usage_error(a->command, "--%s goes with train lm and texts; %s would describe its model itself", given,
                           what);
    code = read_texts(job->a.positional, 1, &job->document, &job->document_bytes);
    if (code) return code;
    if (!begins_as_json(job->document))
        return report_as(
            SL_ERR_INPUT,
            "%s is no description (model JSON); give one, or `lm` and texts; --init-from and --resume go on "
            "from a model file",
            name_texts(job->a.positional, 1));
    return a->positionals > 1 ? train_text(job, false) : train_arrays(job);
}

/* A word as a shell takes it again: in quotes where it has more than letters, digits and a few signs. */
static char *put_word(char *to, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_^";
    if (*word && strspn(word, plain) == strlen(word)) return stpcpy(to, word);
    *to++ = '\'';
    for (; *word; word++) {
        if (*word == '\'')
            to = stpcpy(to, "'\\''");
        else
            *to++ = *word;
    }
    return stpcpy(to, "'");
}

/* NULL: no memory. */
static char *join_words(int count, char **words) {
    static const char begin[] = "sluice train";
    size_t bytes = sizeof begin;
    for (int i = 0; i < count; i++) bytes += 4 * strlen(words[i]) + sizeof " ''";
    char *const text = malloc(bytes), *end = text ? stpcpy(text, begin) : NULL;
    for (int i = 0; text && i < count; i++) end = put_word(stpcpy(end, " "), words[i]);
    return text;
}

static int run(const command *command, int count, char **words) {
    train_job job;
    memset(&job, 0, sizeof job);
    int code = train_options_parse(&job.options, &job.a, command, count, words);
    if (code != PARSE_GO_ON) return code;
    job.command = join_words(count, words);
    code = job.command ? run_job(&job) : report_memory();
    job_free(&job);
    return code;
}

const command command_train = {
    .name = "train",
    .summary = "train a language model on text, or any description on arrays",
    .synopsis = "sluice train lm TEXT... [options] --out MODEL\n"
                "       sluice train lm --preset NAME TEXT... [options] --out MODEL\n"
                "       sluice train MODEL.json TEXT... [options] --out MODEL\n"
                "       sluice train MODEL.json --x X.npy --y Y.npy --loss NAME [options] --out MODEL",
    .text =
        "Trains and writes MODEL, one file that evaluates and generates without anything else. `train lm` writes a\n"
        "description of a language model from the options (--print-model shows it) and runs it; MODEL.json is any\n"
        "description: Keras Sequential JSON with our extra keys. - is standard input. Options given here override\n"
        "those in MODEL.json.\n"
        "\n"
        "Ctrl-C or SIGTERM finishes the step, saves, evaluates and exits 0; another, a second later or more, leaves\n"
        "at once with 130. A kill at any moment leaves the previous MODEL and MODEL.last whole.",
    .groups = {&text_group, &model_group, &array_group, &fit_group, &where_group},
    .examples = "  sluice train lm book.txt --out book.safetensors --max-minutes 5\n"
                "  sluice train lm book.txt --out book.safetensors --max-minutes 5 --resume\n"
                "  sluice train lm --preset char-rnn tinyshakespeare.txt --out shakespeare.safetensors\n"
                "  cat *.txt | sluice train lm - --level word --vocab-size 10000 --units 200 --out words.safetensors\n"
                "  sluice train model.json --x x.npy --y y.npy --loss softmax --out classes.safetensors\n",
    .least = 1,
    .most = -1,
    .missing = "train needs lm and a TEXT, or a MODEL.json",
    .run = run};
