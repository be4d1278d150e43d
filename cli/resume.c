/* Reads a resume point: options and position from the metadata, the model options from its tensors and description. */
#include "resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --------------------------------------------------------------------------------------------------------- file -- */
int resume_open(resume_point *point, const char *out) {
    if (asprintf(&point->path, "%s.last", out) < 0) {
        point->path = NULL;
        return report_memory();
    }
    if (access(point->path, F_OK) != 0 && access(out, F_OK) == 0) point->path[strlen(out)] = 0;
    int code = report(sl_file_open(NULL, point->path, &point->file));
    if (!code) code = report(sl_file_training(point->file, &point->training));
    if (code) return code;
    const char *state = sl_file_metadata(point->file, "training");
    point->step = training_number(state, "step");
    point->epoch = (int)training_number(state, "epoch");
    return 0;
}

void resume_close_file(resume_point *point) {
    sl_file_close(point->file);
    point->file = NULL;
}

void resume_free(resume_point *point) {
    resume_close_file(point);
    free(point->path);
    point->path = NULL;
}

const char *resume_valid(const resume_point *point) {
    return sl_file_metadata(point->file, "valid");
}

/* ---------------------------------------------------------------------------------------------------- conflicts -- */
static int conflict(const resume_point *point, const char *name) {
    return report_as(SL_ERR_INPUT,
                     "--%s: %s was trained otherwise; leave the option out to go on, or start anew with --overwrite in "
                     "place of --resume",
                     name, point->path);
}

static bool same_schedule(const sl_schedule *a, const sl_schedule *b) {
    return a->kind == b->kind && a->factor == b->factor && a->every == b->every && a->warmup == b->warmup &&
           a->total == b->total && a->hold == b->hold && a->minimum == b->minimum;
}

/* An option of the command line, and whether two trainings have it alike. */
typedef struct option_row {
    const char *name;
    bool same;
} option_row;
enum { FIXED_OPTIONS = 22, OTHER_OPTIONS = 8, OPTION_ROWS = FIXED_OPTIONS + OTHER_OPTIONS };

/* rows[FIXED_OPTIONS]: what a training keeps. */
static void fixed_options(const sl_training *then, const sl_training *now, option_row *rows) {
    bool text = strcmp(then->task, "lm") == 0; /* of arrays, batch and steps are cut to the data */
    bool clip = now->clip.kind == then->clip.kind && now->clip.value == then->clip.value;
    const option_row all[FIXED_OPTIONS] = {
        {"level", now->level == then->level},
        {"vocab-size", now->vocabulary_limit == then->vocabulary_limit},
        {"valid-split", now->valid_fraction == then->valid_fraction},
        {"split", now->split == then->split},
        {"loss", now->loss == then->loss},
        {"batch", !text || now->batch == then->batch},
        {"steps", !text || now->steps == then->steps},
        {"optimizer", now->optimizer.kind == then->optimizer.kind},
        {"lr", now->learning_rate == then->learning_rate},
        {"momentum", now->optimizer.momentum == then->optimizer.momentum},
        {"nesterov", now->optimizer.nesterov == then->optimizer.nesterov},
        {"weight-decay", now->optimizer.weight_decay == then->optimizer.weight_decay},
        {"schedule", same_schedule(&now->schedule, &then->schedule)},
        {"clip-norm", clip},
        {"clip-value", clip},
        {"clip-tensor", clip},
        {"reduction", now->reduction == then->reduction},
        {"init-scale", now->init_scale == then->init_scale},
        {"accumulate", now->accumulate == then->accumulate},
        {"no-shuffle", now->shuffle == then->shuffle},
        {"seed", now->seed == then->seed},
        {"dtype", (now->dtype == SL_F64) == (then->dtype == SL_F64)}, /* the file's numbers are double or float */
    };
    memcpy(rows, all, sizeof all);
}

int resume_check_training(const resume_point *point, const arguments *a, const sl_training *now) {
    option_row rows[OPTION_ROWS];
    fixed_options(&point->training, now, rows);
    for (size_t i = 0; i < FIXED_OPTIONS; i++)
        if (!rows[i].same && arguments_given(a, rows[i].name)) return conflict(point, rows[i].name);
    return 0;
}

/* rows[OPTION_ROWS]: all that a description says of a training. */
static void described_options(const sl_training *then, const sl_training *now, option_row *rows) {
    const sl_optimizer *a = &then->optimizer, *b = &now->optimizer;
    const option_row others[OTHER_OPTIONS] = {
        {"optimizer's constants",
         a->beta1 == b->beta1 && a->beta2 == b->beta2 && a->rho == b->rho && a->epsilon == b->epsilon},
        {"epochs", now->epochs == then->epochs},
        {"patience", now->patience == then->patience},
        {"min-delta", now->min_delta == then->min_delta},
        {"masking", now->masking == then->masking},
        {"drop_partial", now->drop_partial == then->drop_partial},
        {"keep_state", now->keep_state == then->keep_state},
        {"dtype", now->dtype == then->dtype || (now->dtype == SL_F64) != (then->dtype == SL_F64)}, /* else told above */
    };
    fixed_options(then, now, rows);
    memcpy(rows + FIXED_OPTIONS, others, sizeof others);
}

void resume_tell_document(const resume_point *point, const arguments *a, const char *name,
                          const sl_training *document) {
    char empty[64];
    sl_training nothing; /* what a description has that says nothing */
    snprintf(empty, sizeof empty, "{\"sluice\": {\"task\": \"%s\", \"training\": {}}}", point->training.task);
    if (sl_training_from_json(empty, strlen(empty), &nothing) != SL_OK) return;
    option_row rows[OPTION_ROWS], said[OPTION_ROWS];
    described_options(&point->training, document, rows);
    nothing.task = point->training.task;
    described_options(&nothing, document, said);
    int told = 0;
    for (size_t i = 0; i < OPTION_ROWS; i++) {
        if (rows[i].same || said[i].same || arguments_given(a, rows[i].name)) continue;
        if (told == 0) printf("note   %s says otherwise than this training began, which goes on as it did: ", name);
        printf("%s%s", told++ ? ", " : "", rows[i].name);
    }
    if (told) printf("\n");
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), n = strlen(end);
    return length >= n && strcmp(text + length - n, end) == 0;
}

/* The model options that would describe the file's model: what `train lm` was given. */
static void options_of_file(const sl_file *file, model_options *options) {
    const char *model = sl_file_metadata(file, "model"), *rate = model ? strstr(model, "\"rate\": ") : NULL;
    sl_tensor_info info;
    *options = (model_options){.dropout = rate ? strtod(rate + strlen("\"rate\": "), NULL) : 0,
                               .tie = model && strstr(model, "\"tied_to\": \"") != NULL};
    for (int i = 0; i < sl_file_tensor_count(file); i++) {
        if (sl_file_tensor(file, i, &info) != SL_OK || strncmp(info.name, "optim.", 6) == 0) continue;
        if (info.rank != 1 && info.rank != 2) continue;
        /* A parameter of one row has rank 1: an RNN of one unit, a vocabulary of one token. */
        const int64_t rows = info.rank == 2 ? info.shape[0] : 1, columns = info.shape[info.rank - 1];
        if (ends_with(info.name, ".embeddings")) options->embed = (int)columns;
        if (!ends_with(info.name, ".recurrent_kernel") || columns < 1) continue;
        int gates = (int)(rows / columns);
        options->cell = gates == 4 ? 0 : gates == 3 ? 1 : 2;
        options->units = (int)columns;
        options->layers++;
    }
}

int resume_check_model(const resume_point *point, const model_options *options, const arguments *a) {
    model_options then;
    options_of_file(point->file, &then);
    const struct {
        const char *name;
        bool same;
    } rows[] = {{"cell", options->cell == then.cell},    {"layers", options->layers == then.layers},
                {"units", options->units == then.units}, {"embed", options->embed == then.embed},
                {"tie", options->tie == then.tie},       {"dropout", options->dropout == then.dropout}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (!rows[i].same && arguments_given(a, rows[i].name)) return conflict(point, rows[i].name);
    return 0;
}
