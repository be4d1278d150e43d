/* Golden files: reading, comparing, and the two kinds of case: one stack of recurrent layers, ten training losses. */
#include "golden.h"

/* ------------------------------------------------------------------------------------------------------- reading -- */
sl_file *golden_open(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/golden/%s", test_data, name);
    sl_file *file = NULL;
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    return file;
}

void golden_word(const char *words, const char *key, char *value, size_t capacity) {
    size_t length = strlen(key);
    value[0] = 0;
    for (const char *at = words; at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        if (strncmp(at, key, length) || at[length] != '=') continue;
        size_t count = strcspn(at + length + 1, " ");
        if (count >= capacity) count = capacity - 1;
        memcpy(value, at + length + 1, count);
        value[count] = 0;
        return;
    }
}

bool golden_is(const char *words, const char *key, const char *value) {
    char found[64];
    golden_word(words, key, found, sizeof found);
    return !strcmp(found, value);
}

double golden_number(const char *words, const char *key, double fallback) {
    char found[64];
    golden_word(words, key, found, sizeof found);
    return found[0] ? atof(found) : fallback;
}

static bool find(const golden_case *c, const char *kind, const char *tensor, sl_tensor_info *info) {
    char name[256];
    snprintf(name, sizeof name, "%s/%s/%s", c->name, kind, tensor);
    int index = sl_file_find(c->file, name);
    if (index < 0) return false;
    REQUIRE_OK(sl_file_tensor(c->file, index, info));
    return true;
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    REQUIRE(memory);
    return memory;
}

double *golden_values(const golden_case *c, const char *kind, const char *tensor, size_t *count) {
    sl_tensor_info info;
    *count = 0;
    if (!find(c, kind, tensor, &info)) return NULL;
    bool wide = !strcmp(info.dtype, "F64");
    REQUIRE(wide || !strcmp(info.dtype, "F32"));
    *count = info.bytes / (wide ? sizeof(double) : sizeof(float));
    double *values = allocate(*count * sizeof *values);
    for (size_t i = 0; i < *count; i++) {
        float narrow;
        if (wide)
            memcpy(&values[i], (const char *)info.data + i * sizeof(double), sizeof(double));
        else
            memcpy(&narrow, (const char *)info.data + i * sizeof(float), sizeof(float)), values[i] = (double)narrow;
    }
    return values;
}

int32_t *golden_integers(const golden_case *c, const char *kind, const char *tensor, size_t *count) {
    sl_tensor_info info;
    *count = 0;
    if (!find(c, kind, tensor, &info)) return NULL;
    REQUIRE(!strcmp(info.dtype, "I32"));
    *count = info.bytes / sizeof(int32_t);
    int32_t *values = allocate(info.bytes);
    memcpy(values, info.data, info.bytes);
    return values;
}

size_t golden_bytes(const golden_case *c) {
    return c->dtype == SL_F64 ? sizeof(double) : sizeof(float);
}

void *golden_native(const golden_case *c, const double *values, size_t count) {
    void *native = allocate(count * golden_bytes(c));
    for (size_t i = 0; i < count; i++) {
        if (c->dtype == SL_F64)
            ((double *)native)[i] = values[i];
        else
            ((float *)native)[i] = (float)values[i];
    }
    return native;
}

/* ----------------------------------------------------------------------------------------------------- comparing -- */
static const char *dtype_name(const golden_case *c) {
    return c->dtype == SL_F64 ? "f64" : "f32";
}

void golden_compare(const golden_case *c, const char *what, const double *got, const double *expected, size_t count) {
    double scale = 0, worst = -1;
    size_t where = 0;
    for (size_t i = 0; i < count; i++) {
        double error = fabs(got[i] - expected[i]);
        if (fabs(expected[i]) > scale) scale = fabs(expected[i]);
        if (error > worst || isnan(error)) worst = error, where = i;
        if (isnan(error)) break;
    }
    /* Sums of at most some hundred terms in another order: a few hundred units in the last place of the largest. */
    double bound = c->dtype == SL_F64 ? 1e-12 * (1 + scale) : 2e-5 * scale + 2e-6;
    if (count && !(worst <= bound))
        test_fail(__FILE__, __LINE__, "case %s (%s), %s[%zu] = %.17g, expected %.17g +- %.2g", c->name, dtype_name(c),
                  what, where, got[where], expected[where], bound);
}

/* The same for values in the plan's type. */
static void compare_native(const golden_case *c, const char *what, const void *got, const double *expected,
                           size_t count) {
    double *wide = allocate(count * sizeof *wide);
    for (size_t i = 0; i < count; i++)
        wide[i] = c->dtype == SL_F64 ? ((const double *)got)[i] : (double)((const float *)got)[i];
    golden_compare(c, what, wide, expected, count);
    free(wide);
}

void golden_load_params(golden_case *c) {
    int found = 0;
    for (int i = 0; i < sl_params_count(c->params); i++, found++) {
        int rows, columns;
        const char *name = sl_params_name(c->params, i, &rows, &columns);
        size_t count;
        double *values = golden_values(c, "param", name, &count);
        if (!values || count != (size_t)rows * (size_t)columns) {
            test_fail(__FILE__, __LINE__, "case %s: the file has %zu values for parameter %s [%d][%d]", c->name, count,
                      name, rows, columns);
            test_abort();
        }
        REQUIRE_OK(sl_params_set(c->params, name, values, count));
        free(values);
    }
    char prefix[128];
    int stored = 0;
    snprintf(prefix, sizeof prefix, "%s/param/", c->name);
    for (int i = 0; i < sl_file_tensor_count(c->file); i++) {
        sl_tensor_info info;
        REQUIRE_OK(sl_file_tensor(c->file, i, &info));
        stored += !strncmp(info.name, prefix, strlen(prefix));
    }
    if (stored != found)
        test_fail(__FILE__, __LINE__, "case %s: %d parameters, the file has %d", c->name, found, stored);
}

void golden_release(golden_case *c) {
    sl_run_free(c->run);
    sl_params_free(c->params);
    sl_plan_free(c->plan);
    sl_model_free(c->model);
    c->run = NULL, c->params = NULL, c->plan = NULL, c->model = NULL;
}

/* ----------------------------------------------------------------------------------------------- recurrent cases -- */
enum { MAX_NAMES = 24 };

typedef struct names {
    char text[MAX_NAMES][48];
    int count;
} names;

static const char *names_add(names *list, const char *format, const char *a, const char *b, const char *c) {
    REQUIRE(list->count < MAX_NAMES);
    snprintf(list->text[list->count], sizeof list->text[0], format, a, b, c);
    return list->text[list->count++];
}

static sl_activation activation(const char *words, const char *key) {
    static const struct {
        const char *name;
        sl_activation value;
    } table[] = {{"tanh", SL_ACT_TANH},     {"sigmoid", SL_ACT_SIGMOID},   {"relu", SL_ACT_RELU},
                 {"linear", SL_ACT_LINEAR}, {"softsign", SL_ACT_SOFTSIGN}, {"hard_sigmoid", SL_ACT_HARD_SIGMOID}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (golden_is(words, key, table[i].name)) return table[i].value;
    return SL_ACT_DEFAULT;
}

static sl_recurrent recurrent_options(const char *words) {
    sl_recurrent r = {0};
    r.units = (int)golden_number(words, "units", 0);
    r.projection = (int)golden_number(words, "projection", 0);
    r.activation = activation(words, "act");
    r.recurrent_activation = activation(words, "recurrent_act");
    r.bias = golden_is(words, "bias", "none")     ? SL_BIAS_NONE
             : golden_is(words, "bias", "double") ? SL_BIAS_DOUBLE
                                                  : SL_BIAS_SINGLE;
    r.forget_bias_mode = SL_FORGET_NONE;
    r.return_state = (int)golden_number(words, "state", 0);
    r.return_sequences = (int)golden_number(words, "sequences", 0);
    r.go_backwards = (int)golden_number(words, "backwards", 0);
    r.stateful = golden_number(words, "calls", 1) > 1;
    r.reset_before = (int)golden_number(words, "reset_before", 0);
    r.bidirectional = golden_is(words, "bi", "concat") ? SL_BI_CONCAT
                      : golden_is(words, "bi", "sum")  ? SL_BI_SUM
                      : golden_is(words, "bi", "mul")  ? SL_BI_MUL
                      : golden_is(words, "bi", "ave")  ? SL_BI_AVE
                                                       : SL_UNIDIRECTIONAL;
    r.masked_output = golden_is(words, "masked", "repeat") ? SL_MASKED_REPEAT : SL_MASKED_ZERO;
    return r;
}

/* x, then the initial states; layers l0, l1, ...; outputs: the last layer, then every layer's final states. `inputs`: the
 * names in the file ("l0.forward.h0"), in the order of the model's inputs. */
static void build(golden_case *c, names *inputs, names *outputs) {
    const char *words = c->words;
    sl_recurrent options = recurrent_options(words);
    bool lstm = golden_is(words, "cell", "lstm"), initial = golden_number(words, "initial", 0) > 0;
    sl_cell cell = lstm ? SL_LSTM : golden_is(words, "cell", "gru") ? SL_GRU : SL_RNN;
    int layers = (int)golden_number(words, "layers", 1), directions = options.bidirectional ? 2 : 1;
    int state_width[2] = {options.projection ? options.projection : options.units, options.units};
    REQUIRE_OK(sl_model_new(NULL, &c->model));
    REQUIRE_OK(sl_model_add_input(c->model, "x", (int)golden_number(words, "inputs", 0), 0));
    names_add(inputs, "%s%s%s", "x", "", "");
    char below[16] = "x", last[16] = "";
    snprintf(last, sizeof last, "l%d", layers - 1);
    names_add(outputs, "%s%s%s", last, "", "");
    for (int k = 0; k < layers; k++) {
        char layer[16], input_names[4][48];
        const char *from[6] = {below};
        int count = 1;
        snprintf(layer, sizeof layer, "l%d", k);
        for (int d = 0; d < directions; d++) {
            const char *part = directions == 1 ? "" : d ? ".backward" : ".forward";
            for (int s = 0; s < (lstm ? 2 : 1); s++) {
                if (options.return_state) names_add(outputs, "%s%s.%s", layer, part, s ? "c" : "h");
                if (!initial) continue;
                names_add(inputs, "%s%s.%s0", layer, part, s ? "c" : "h");
                char *name = input_names[count - 1];
                snprintf(name, sizeof input_names[0], "%s_%d_%d", layer, d, s);
                REQUIRE_OK(sl_model_add_input(c->model, name, state_width[s], 1));
                from[count++] = name;
            }
        }
        REQUIRE_OK(sl_model_add_recurrent(c->model, layer, cell, &options, from));
        memcpy(below, layer, sizeof below);
    }
    const char *list[MAX_NAMES + 1] = {NULL};
    for (int i = 0; i < outputs->count; i++) list[i] = outputs->text[i];
    REQUIRE_OK(sl_model_set_outputs(c->model, list));
}

/* Pointers into the arrays of one call: each array holds `calls` equal parts. */
static void part(const golden_case *c, const names *list, void *const *arrays, const size_t *counts, int call,
                 int calls, const void **out) {
    for (int i = 0; i < list->count; i++)
        out[i] =
            arrays[i] ? (const char *)arrays[i] + counts[i] / (size_t)calls * (size_t)call * golden_bytes(c) : NULL;
}

typedef struct recurrent_data {
    names inputs, outputs;
    void *in[MAX_NAMES], *dout[MAX_NAMES];
    size_t in_count[MAX_NAMES], out_count[MAX_NAMES];
    int calls;
    int32_t *lengths;
    uint8_t *mask;
} recurrent_data;

static void load_data(const golden_case *c, recurrent_data *d) {
    d->calls = (int)golden_number(c->words, "calls", 1);
    for (int i = 0; i < d->inputs.count; i++) {
        double *values = golden_values(c, "in", d->inputs.text[i], &d->in_count[i]);
        REQUIRE(values);
        d->in[i] = golden_native(c, values, d->in_count[i]);
        free(values);
    }
    for (int i = 0; i < d->outputs.count; i++) {
        double *values = golden_values(c, "dout", d->outputs.text[i], &d->out_count[i]);
        REQUIRE(values);
        d->dout[i] = golden_native(c, values, d->out_count[i]);
        free(values);
    }
    size_t count;
    d->lengths = golden_integers(c, "in", "lengths", &count);
    sl_tensor_info info;
    if (find(c, "in", "mask", &info)) {
        d->mask = allocate(info.bytes);
        memcpy(d->mask, info.data, info.bytes);
    }
}

static void free_data(recurrent_data *d) {
    for (int i = 0; i < MAX_NAMES; i++) free(d->in[i]), free(d->dout[i]);
    free(d->lengths);
    free(d->mask);
}

static void check_outputs(const golden_case *c, const recurrent_data *d, int call) {
    for (int i = 0; i < d->outputs.count; i++) {
        size_t count = d->out_count[i] / (size_t)d->calls, all;
        void *got = allocate(count * golden_bytes(c));
        REQUIRE_OK(sl_run_output(c->run, d->outputs.text[i], got, count));
        double *expected = golden_values(c, "out", d->outputs.text[i], &all);
        REQUIRE(expected && all == d->out_count[i]);
        compare_native(c, d->outputs.text[i], got, expected + count * (size_t)call, count);
        free(expected);
        free(got);
    }
}

static void check_input_gradients(const golden_case *c, const recurrent_data *d, int call) {
    for (int i = 0; i < d->inputs.count; i++) {
        size_t count = d->in_count[i] / (size_t)d->calls, all;
        void *got = allocate(count * golden_bytes(c));
        char what[64];
        snprintf(what, sizeof what, "gradient of %s", d->inputs.text[i]);
        REQUIRE_OK(sl_run_input_gradient(c->run, i, got, count));
        double *expected = golden_values(c, "din", d->inputs.text[i], &all);
        REQUIRE(expected && all == d->in_count[i]);
        compare_native(c, what, got, expected + count * (size_t)call, count);
        free(expected);
        free(got);
    }
}

static void check_gradients(const golden_case *c) {
    for (int i = 0; i < sl_params_count(c->params); i++) {
        int rows, columns;
        const char *name = sl_params_name(c->params, i, &rows, &columns);
        size_t count = (size_t)rows * (size_t)columns, all;
        double *got = allocate(count * sizeof *got);
        char what[96];
        snprintf(what, sizeof what, "gradient of %s", name);
        REQUIRE_OK(sl_run_gradient(c->run, name, got, count));
        double *expected = golden_values(c, "grad", name, &all);
        REQUIRE(expected && all == count);
        golden_compare(c, what, got, expected, count);
        free(expected);
        free(got);
    }
}

static void recurrent_case(golden_case *c) {
    recurrent_data d = {0};
    build(c, &d.inputs, &d.outputs);
    load_data(c, &d);
    sl_plan_options options = {.batch = (int)golden_number(c->words, "batch", 1),
                               .steps = (int)golden_number(c->words, "steps", 1),
                               .train = 1,
                               .dtype = c->dtype,
                               .device = test_device,
                               .input_gradients = 1,
                               .masking = d.lengths ? SL_MASK_LENGTHS
                                          : d.mask  ? SL_MASK_STEPS
                                                    : SL_MASK_NONE};
    REQUIRE_OK(sl_plan_new(c->model, &options, &c->plan));
    REQUIRE_OK(sl_params_new(c->plan, &c->params));
    REQUIRE_OK(sl_run_new(c->plan, c->params, &c->run));
    golden_load_params(c);
    const void *inputs[MAX_NAMES], *d_outputs[MAX_NAMES];
    sl_batch batch = {options.batch, options.steps, inputs, d.lengths, d.mask, NULL};
    for (int call = 0; call < d.calls; call++) {
        part(c, &d.inputs, d.in, d.in_count, call, d.calls, inputs);
        REQUIRE_OK(sl_run_forward(c->run, &batch));
        check_outputs(c, &d, call);
    }
    REQUIRE_OK(sl_run_reset_state(c->run));
    for (int call = 0; call < d.calls; call++) {
        part(c, &d.inputs, d.in, d.in_count, call, d.calls, inputs);
        part(c, &d.outputs, d.dout, d.out_count, call, d.calls, d_outputs);
        REQUIRE_OK(sl_run_gradients(c->run, &batch, d_outputs, 1, (uint32_t)call, 1.0, NULL));
        check_input_gradients(c, &d, call);
    }
    check_gradients(c);
    free_data(&d);
    golden_release(c);
}

void golden_recurrent_cases(const char *file_name, const char *prefix) {
    sl_file *file = golden_open(file_name);
    int cases = 0;
    const char *key, *words;
    for (int i = 0; (key = sl_file_metadata_at(file, i, &words)); i++) {
        if (strncmp(key, "case ", 5) || strncmp(key + 5, prefix, strlen(prefix))) continue;
        for (int wide = 0; wide < (test_on_gpu() ? 1 : 2); wide++) {
            golden_case c = {.file = file, .name = key + 5, .words = words, .dtype = wide ? SL_F64 : SL_F32};
            recurrent_case(&c);
        }
        cases++;
    }
    CHECK(cases > 0);
    sl_file_close(file);
}

/* ------------------------------------------------------------------------------------------------ training losses -- */
static sl_plan_options training_options(const golden_case *c, const golden_training *training, const char *words) {
    sl_optimizer_kind kind = golden_is(words, "kind", "adam")      ? SL_ADAM
                             : golden_is(words, "kind", "adamw")   ? SL_ADAMW
                             : golden_is(words, "kind", "rmsprop") ? SL_RMSPROP
                                                                   : SL_SGD;
    sl_clip_kind clip = golden_is(words, "clip", "value")    ? SL_CLIP_VALUE
                        : golden_is(words, "clip", "norm")   ? SL_CLIP_NORM
                        : golden_is(words, "clip", "global") ? SL_CLIP_GLOBAL_NORM
                                                             : SL_CLIP_NONE;
    sl_plan_options options = {.batch = (int)golden_number(c->words, "batch", 1),
                               .steps = (int)golden_number(c->words, "steps", 1),
                               .train = 1,
                               .dtype = c->dtype,
                               .device = test_device,
                               .loss = training->loss,
                               .reduction = golden_is(words, "reduction", "time") ? SL_REDUCE_SUM_TIME : SL_REDUCE_MEAN,
                               .clip = {clip, golden_number(words, "limit", 0)},
                               .optimizer = {.kind = kind,
                                             .momentum = golden_number(words, "momentum", 0),
                                             .nesterov = (int)golden_number(words, "nesterov", 0),
                                             .beta1 = golden_number(words, "beta1", 0),
                                             .beta2 = golden_number(words, "beta2", 0),
                                             .rho = golden_number(words, "rho", 0),
                                             .epsilon = golden_number(words, "eps", 0),
                                             .weight_decay = golden_number(words, "decay", 0)}};
    return options;
}

static void variant_losses(golden_case *c, const golden_training *training, const char *variant, const char *words,
                           const void *x, size_t x_count, const void *target, size_t target_count) {
    size_t steps, x_bytes = training->tokens ? sizeof(int32_t) : golden_bytes(c);
    size_t target_bytes = training->labels ? sizeof(int32_t) : golden_bytes(c);
    double *expected = golden_values(c, "losses", variant, &steps), *got = allocate(steps * sizeof *got);
    REQUIRE(expected && steps > 0);
    sl_plan_options options = training_options(c, training, words);
    REQUIRE_OK(sl_plan_new(c->model, &options, &c->plan));
    REQUIRE_OK(sl_params_new(c->plan, &c->params));
    REQUIRE_OK(sl_run_new(c->plan, c->params, &c->run));
    golden_load_params(c);
    for (size_t k = 0; k < steps; k++) {
        const void *inputs[1] = {(const char *)x + x_count / steps * k * x_bytes};
        sl_batch batch = {options.batch, options.steps, inputs,
                          NULL,          NULL,          (const char *)target + target_count / steps * k * target_bytes};
        sl_result result = {0};
        REQUIRE_OK(sl_run_gradients(c->run, &batch, NULL, (uint32_t)k + 1, 0, 1.0, &result));
        got[k] = result.loss;
        REQUIRE_OK(sl_run_update(c->run, golden_number(words, "lr", 0), &result));
    }
    char what[96];
    snprintf(what, sizeof what, "losses of %s", variant);
    golden_compare(c, what, got, expected, steps);
    sl_run_free(c->run);
    sl_params_free(c->params);
    sl_plan_free(c->plan);
    c->run = NULL, c->params = NULL, c->plan = NULL;
    free(got);
    free(expected);
}

void golden_losses(golden_case *c, const golden_training *training) {
    size_t x_count, target_count;
    double *x_values = training->tokens ? NULL : golden_values(c, "in", "x", &x_count);
    double *target_values = training->labels ? NULL : golden_values(c, "in", "target", &target_count);
    void *x = training->tokens ? (void *)golden_integers(c, "in", "x", &x_count) : golden_native(c, x_values, x_count);
    void *target = training->labels ? (void *)golden_integers(c, "in", "target", &target_count)
                                    : golden_native(c, target_values, target_count);
    REQUIRE(x && target);
    char prefix[96];
    snprintf(prefix, sizeof prefix, "losses %s ", c->name);
    int variants = 0;
    const char *key, *words;
    for (int i = 0; (key = sl_file_metadata_at(c->file, i, &words)); i++) {
        if (strncmp(key, prefix, strlen(prefix))) continue;
        variant_losses(c, training, key + strlen(prefix), words, x, x_count, target, target_count);
        variants++;
    }
    CHECK(variants > 0);
    free(x_values), free(target_values), free(x), free(target);
}
