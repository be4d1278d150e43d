/* Model files: src/io/model_file.c, model_file_save.c and the bodies of sl_file_*. */
#include "io/model_file.h"
#include <signal.h>
#include <sys/resource.h>
#include "io/io_helpers.h"

typedef struct fixture {
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
} fixture;

/* tokens -> embedding -> LSTM (`units`) -> dense, planned to train with Adam. */
static fixture make(int units, sl_dtype dtype) {
    fixture f;
    REQUIRE_OK(sl_model_new(NULL, &f.model));
    REQUIRE_OK(sl_model_add_tokens(f.model, "tokens", 5));
    REQUIRE_OK(sl_model_add_embedding(f.model, "embed", &(sl_embedding){.vocabulary = 5, .units = 3}, NULL));
    REQUIRE_OK(
        sl_model_add_recurrent(f.model, "rnn", SL_LSTM, &(sl_recurrent){.units = units, .return_sequences = 1}, NULL));
    REQUIRE_OK(sl_model_add_dense(f.model, "logits", &(sl_dense){.units = 5}, NULL));
    sl_plan_options options = {.batch = 1,
                               .steps = 2,
                               .train = 1,
                               .dtype = dtype,
                               .device = test_device,
                               .loss = SL_LOSS_SOFTMAX,
                               .optimizer = {.kind = SL_ADAM}};
    REQUIRE_OK(sl_plan_new(f.model, &options, &f.plan));
    REQUIRE_OK(sl_params_new(f.plan, &f.params));
    REQUIRE_OK(sl_params_init(f.params, 7));
    return f;
}

static void drop(fixture *f) {
    sl_params_free(f->params);
    sl_plan_free(f->plan);
    sl_model_free(f->model);
}

enum { MOST = 1000 };

/* Number of values of parameter `index`. */
static size_t values_of(const sl_params *params, int index, const char **name, double *values) {
    int rows, columns;
    *name = sl_params_name(params, index, &rows, &columns);
    size_t count = (size_t)rows * (size_t)columns;
    REQUIRE(count <= MOST);
    REQUIRE_OK(sl_params_get(params, *name, values, count));
    return count;
}

static bool same_params(const sl_params *a, const sl_params *b) {
    static double x[MOST], y[MOST];
    for (int i = 0; i < sl_params_count(a); i++) {
        const char *name;
        size_t n = values_of(a, i, &name, x);
        if (values_of(b, i, &name, y) != n || memcmp(x, y, n * sizeof *x) != 0) return false;
    }
    return true;
}

static void round_trip(sl_dtype dtype, const char *stored) {
    const char *path = io_path(test_folder(), "m.sluice");
    fixture f = make(4, dtype);
    const char *metadata[] = {"vocabulary", "{\"level\": \"char\"}", NULL};
    REQUIRE_OK(sl_file_save(path, f.model, f.params, metadata));
    sl_file *file;
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    CHECK(!strcmp(sl_file_metadata(file, "format"), "sluice") && !strcmp(sl_file_metadata(file, "version"), "1"));
    CHECK(!strcmp(sl_file_metadata(file, "gate_order"), "lstm i f g o, gru r z n"));
    CHECK(!strcmp(sl_file_metadata(file, "vocabulary"), metadata[1]) && !sl_file_metadata(file, "none"));
    const char *value;
    CHECK(!strcmp(sl_file_metadata_at(file, 4, &value), "vocabulary") && !strcmp(value, metadata[1]));
    CHECK(!sl_file_metadata_at(file, 5, &value) && !value && !sl_file_metadata_at(file, -1, NULL));
    CHECK(sl_file_tensor_count(file) == sl_params_count(f.params));
    sl_tensor_info info;
    REQUIRE_OK(sl_file_tensor(file, sl_file_find(file, "rnn.recurrent_kernel"), &info));
    CHECK(!strcmp(info.dtype, stored) && info.rank == 2 && info.shape[0] == 16 && info.shape[1] == 4);
    CHECK_FAILS(sl_file_tensor(file, sl_file_tensor_count(file), &info), SL_ERR_USAGE, "tensors, from 0");
    /* The description comes back, and the numbers to the bit. */
    sl_model *model;
    REQUIRE_OK(sl_file_model(file, &model));
    const char *text, *again;
    REQUIRE_OK(sl_model_to_json(f.model, &text));
    REQUIRE_OK(sl_model_to_json(model, &again));
    CHECK(!strcmp(text, again));
    sl_model_free(model);
    fixture other = make(4, dtype);
    REQUIRE_OK(sl_params_init(other.params, 8));
    CHECK(!same_params(f.params, other.params));
    REQUIRE_OK(sl_file_load_params(file, other.params));
    CHECK(same_params(f.params, other.params));
    drop(&other);
    sl_file_close(file);
    drop(&f);
}

TEST(io_model_file_round_trip) {
    round_trip(SL_F32, "F32");
    if (!test_on_gpu()) round_trip(SL_F64, "F64");
}

/* Files of one precision load into plans of the other, and from memory at any address. */
TEST(io_model_file_other_precision) {
    if (test_on_gpu()) test_skip("GPUs have no kernels in f64");
    const char *path = io_path(test_folder(), "m.sluice");
    fixture single = make(4, SL_F32), wide = make(4, SL_F64), back = make(4, SL_F32);
    REQUIRE_OK(sl_file_save(path, single.model, single.params, NULL));
    size_t size;
    char *bytes = io_read_file(path, &size), *moved = malloc(size + 1);
    memcpy(moved + 1, bytes, size);
    sl_file *file;
    REQUIRE_OK(sl_file_open_memory(NULL, moved + 1, size, &file));
    REQUIRE_OK(sl_file_load_params(file, wide.params));
    CHECK(same_params(single.params, wide.params));
    sl_file_close(file);
    REQUIRE_OK(sl_file_save(path, wide.model, wide.params, NULL));
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    REQUIRE_OK(sl_params_init(back.params, 9));
    REQUIRE_OK(sl_file_load_params(file, back.params));
    CHECK(same_params(single.params, back.params));
    sl_file_close(file);
    free(bytes);
    free(moved);
    drop(&single);
    drop(&wide);
    drop(&back);
}

TEST(io_model_file_checkpoint) {
    const char *path = io_path(test_folder(), "m.last");
    fixture f = make(4, SL_F32), other = make(4, SL_F32);
    int slots = sli_params_slot_count(f.params);
    REQUIRE(slots == 2);
    double values[20], read[20];
    for (int i = 0; i < 20; i++) values[i] = i + 0.5;
    REQUIRE_OK(sli_params_slot_set(f.params, 1, "logits.kernel", values, 20));
    const float h[4] = {1, 2, 3, 4};
    const int32_t order[2] = {-5, 6};
    const sli_extra_tensor extra[] = {{"state.rnn.h", SL_ARRAY_F32, 2, {1, 4}, h},
                                      {"order", SL_ARRAY_I32, 1, {2}, order}};
    REQUIRE_OK(sli_model_file_save_checkpoint(path, f.model, f.params, extra, 2, NULL));
    sl_file *file;
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    CHECK(sl_file_tensor_count(file) == 3 * sl_params_count(f.params) + 2);
    sl_tensor_info info;
    REQUIRE_OK(sl_file_tensor(file, sl_file_find(file, "state.rnn.h"), &info));
    CHECK(info.bytes == sizeof h && !memcmp(info.data, h, sizeof h) && info.rank == 2);
    REQUIRE_OK(sl_file_tensor(file, sl_file_find(file, "order"), &info));
    CHECK(!strcmp(info.dtype, "I32") && !memcmp(info.data, order, sizeof order));
    REQUIRE_OK(sl_file_load_params(file, other.params));
    REQUIRE_OK(sli_file_load_optimizer(file, other.params));
    REQUIRE_OK(sli_params_slot_get(other.params, 1, "logits.kernel", read, 20));
    CHECK(!memcmp(values, read, sizeof values));
    sl_file_close(file);
    /* A file without them says so. */
    REQUIRE_OK(sli_model_file_save(path, f.model, f.params, extra, 2, NULL));
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    CHECK_FAILS(sli_file_load_optimizer(file, other.params), SL_ERR_SHAPE, "optim.m.embed.embeddings is missing");
    sl_file_close(file);
    drop(&f);
    drop(&other);
}

/* -------------------------------------------------------------------------------------------------- what is wrong -- */
TEST(io_model_file_other_model) {
    const char *path = io_path(test_folder(), "m.sluice");
    fixture small = make(4, SL_F32), large = make(6, SL_F32), before = make(6, SL_F32);
    REQUIRE_OK(sl_file_save(path, small.model, small.params, NULL));
    sl_file *file;
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    CHECK_FAILS(sl_file_load_params(file, large.params), SL_ERR_SHAPE,
                "rnn.kernel has the shape [16, 3] and the model needs [24, 3]");
    CHECK(strstr(sl_error_detail(), path) && strstr(sl_error_detail(), "--init-from"));
    CHECK(same_params(large.params, before.params)); /* the embedding, which fits, was not loaded either */
    sl_file_close(file);
    drop(&small);
    drop(&large);
    drop(&before);
}

/* A safetensors file with these metadata and one tensor. */
static void write_file(const char *path, const char *const *metadata, const char *name, const char *dtype,
                       const void *data, int64_t rows, int64_t columns) {
    const sli_tensor_source tensor = {.name = name, .dtype = dtype, .rank = 2, .shape = {rows, columns}, .data = data};
    REQUIRE_OK(sli_safetensors_write(NULL, path, &tensor, 1, metadata));
}

static sl_status load(const char *path, sl_params *params, sl_model **model) {
    sl_file *file;
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    sl_status status = params ? sl_file_load_params(file, params) : sl_file_model(file, model);
    sl_file_close(file);
    return status;
}

TEST(io_model_file_foreign) {
    const char *path = io_path(test_folder(), "m.safetensors");
    const char *good[] = {"format", "sluice", "version", "1", NULL}, *foreign[] = {"format", "pt", NULL};
    const char *newer[] = {"format", "sluice", "version", "2", NULL};
    const char *order[] = {"format", "sluice", "version", "1", "gate_order", "lstm i f c o", NULL};
    const char *broken[] = {"format", "sluice", "version", "1", "model", "{\"class_name\": 1}", NULL};
    float table[15] = {0};
    fixture f = make(4, SL_F32);
    sl_model *model;
    write_file(path, foreign, "a", "F32", table, 5, 3);
    CHECK_FAILS(load(path, NULL, &model), SL_ERR_FILE, "not one of Sluice's");
    CHECK_FAILS(load(path, f.params, NULL), SL_ERR_FILE, "not one of Sluice's");
    write_file(path, newer, "a", "F32", table, 5, 3);
    CHECK_FAILS(load(path, NULL, &model), SL_ERR_FILE, "version 2 of the model format");
    write_file(path, order, "a", "F32", table, 5, 3);
    CHECK_FAILS(load(path, f.params, NULL), SL_ERR_FILE, "gates are in another order");
    write_file(path, broken, "a", "F32", table, 5, 3);
    CHECK_FAILS(load(path, NULL, &model), SL_ERR_INPUT, "m.safetensors: model JSON: `class_name` is missing");
    CHECK(!model);
    write_file(path, good, "a", "F32", table, 5, 3);
    CHECK_FAILS(load(path, NULL, &model), SL_ERR_FILE, "the description of the model is missing");
    CHECK_FAILS(load(path, f.params, NULL), SL_ERR_SHAPE, "embed.embeddings is missing");
    write_file(path, good, "embed.embeddings", "I32", table, 5, 3);
    CHECK_FAILS(load(path, f.params, NULL), SL_ERR_FILE, "embed.embeddings has dtype I32");
    table[7] = NAN;
    write_file(path, good, "embed.embeddings", "F32", table, 5, 3);
    CHECK_FAILS(load(path, f.params, NULL), SL_ERR_NUMBERS, "number 7 of embed.embeddings is not a number");
    table[7] = INFINITY;
    write_file(path, good, "embed.embeddings", "F32", table, 5, 3);
    CHECK_FAILS(load(path, f.params, NULL), SL_ERR_NUMBERS, "number 7 of embed.embeddings is infinite");
    drop(&f);
}

/* Cut at every byte. */
TEST(io_model_file_truncated) {
    const char *folder = test_folder(), *path = io_path(folder, "m.sluice"), *cut_path = io_path(folder, "cut.sluice");
    fixture f = make(4, SL_F32);
    REQUIRE_OK(sl_file_save(path, f.model, f.params, NULL));
    size_t size;
    char *bytes = io_read_file(path, &size);
    for (size_t cut = 0; cut < size; cut++) {
        char *part = malloc(cut ? cut : 1);
        memcpy(part, bytes, cut);
        sl_file *file;
        CHECK_FAILS(sl_file_open_memory(NULL, part, cut, &file), SL_ERR_FILE, NULL);
        CHECK(!file);
        if (cut % 97 == 0) {
            io_write_file(cut_path, part, cut);
            CHECK_FAILS(sl_file_open(NULL, cut_path, &file), SL_ERR_FILE, "cut.sluice: ");
            CHECK(!file);
        }
        free(part);
    }
    free(bytes);
    drop(&f);
}

/* A disk that becomes full at any point leaves the old file whole and nothing beside it. */
TEST(io_model_file_full_disk) {
    const char *folder = test_folder(), *path = io_path(folder, "m.sluice");
    fixture f = make(4, SL_F32), other = make(4, SL_F32);
    REQUIRE_OK(sl_params_init(other.params, 8));
    REQUIRE_OK(sl_file_save(path, f.model, f.params, NULL));
    CHECK_FAILS(sl_file_save("/dev/full", f.model, f.params, NULL), SL_ERR_IO, "No space left on device");
    struct rlimit before, small;
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    struct stat info;
    REQUIRE(stat(path, &info) == 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < (rlim_t)info.st_size; limit += 113) {
        small = before;
        small.rlim_cur = limit;
        setrlimit(RLIMIT_FSIZE, &small);
        sl_status status = sl_file_save(path, other.model, other.params, NULL);
        setrlimit(RLIMIT_FSIZE, &before);
        CHECK(status == SL_ERR_IO && strstr(sl_error_detail(), "unchanged"));
        CHECK(io_count_files(folder) == 1);
    }
    signal(SIGXFSZ, handler);
    sl_file *file;
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    REQUIRE_OK(sl_file_load_params(file, other.params));
    CHECK(same_params(f.params, other.params));
    sl_file_close(file);
    drop(&f);
    drop(&other);
}

/* Such a file could never be loaded again. */
TEST(io_model_file_refuses_parameters_of_another_model) {
    fixture four = make(4, SL_F32), five = make(5, SL_F32);
    const char *folder = test_folder(), *path = io_path(folder, "m");
    CHECK_FAILS(sl_file_save(path, four.model, five.params, NULL), SL_ERR_USAGE,
                "sl_file_save: the parameters were made for another model, this one has rnn.kernel of 16 x 3");
    REQUIRE_OK(sl_model_add_dense(five.model, "more", &(sl_dense){.units = 2}, NULL));
    CHECK_FAILS(sl_file_save(path, five.model, five.params, NULL), SL_ERR_USAGE, "this one has more.kernel of 2 x 5");
    fixture more = {.model = five.model};
    REQUIRE_OK(sl_plan_new(more.model, &(sl_plan_options){.device = test_device}, &more.plan));
    REQUIRE_OK(sl_params_new(more.plan, &more.params));
    fixture less = make(5, SL_F32);
    CHECK_FAILS(sl_file_save(path, less.model, more.params, NULL), SL_ERR_USAGE,
                "of 8 parameters where this one has 6");
    CHECK(io_count_files(folder) == 0);
    REQUIRE_OK(sl_file_save(path, more.model, more.params, NULL));
    sl_params_free(more.params);
    sl_plan_free(more.plan);
    drop(&less);
    drop(&five);
    drop(&four);
}

TEST(io_model_file_arguments) {
    sl_file *file;
    fixture f = make(4, SL_F32);
    const char *folder = test_folder();
    CHECK_FAILS(sl_file_open(NULL, NULL, &file), SL_ERR_USAGE, "path is NULL");
    CHECK_FAILS(sl_file_open_memory(NULL, NULL, 0, &file), SL_ERR_USAGE, "bytes is NULL");
    CHECK_FAILS(sl_file_save(NULL, f.model, f.params, NULL), SL_ERR_USAGE, "path is NULL");
    CHECK_FAILS(sl_file_open(NULL, io_path(folder, "none"), &file), SL_ERR_FILE, "there is no such model file");
    const char *twice[] = {"model", "x", NULL}, *odd[] = {"key", NULL};
    CHECK_FAILS(sl_file_save(io_path(folder, "m"), f.model, f.params, twice), SL_ERR_USAGE, "\"model\" is given twice");
    CHECK_FAILS(sl_file_save(io_path(folder, "m"), f.model, f.params, odd), SL_ERR_USAGE, "\"key\" has no value");
    CHECK_FAILS(sl_file_save(io_path(folder, "no/m"), f.model, f.params, NULL), SL_ERR_IO, "make the folder first");
    CHECK(io_count_files(folder) == 0);
    CHECK(sl_file_tensor_count(NULL) == 0 && sl_file_find(NULL, "x") == -1 && !sl_file_metadata(NULL, "x"));
    sl_file_close(NULL);
    drop(&f);
}
