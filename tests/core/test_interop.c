/* sluice_interop.h: the same numbers, to the bit, as the run's own calls, on memory of the caller. */
#include "core/run.h"
#include "sluice_interop.h"
#include "test.h"

enum { B = 5, T = 7, I = 6, H = 8, O = 4 };

typedef struct fixture {
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
    float x[T * B * I], y[T * B * O], h[B * H], d_y[T * B * O], d_h[B * H], d_x[T * B * I];
    int32_t lengths[B];
} fixture;

static void fill(float *values, size_t count, uint64_t seed) {
    for (size_t k = 0; k < count; k++) values[k] = (float)test_random(&seed);
}

static void open_fixture(fixture *f, sl_masking masking) {
    memset(f, 0, sizeof *f);
    sl_recurrent lstm = {.units = H, .return_sequences = 1, .return_state = 1, .stateful = 0};
    sl_dense dense = {.units = O};
    const char *outputs[] = {"dense", "rnn.h", NULL}, *from[] = {"rnn", NULL};
    REQUIRE_OK(sl_model_new(NULL, &f->model));
    REQUIRE_OK(sl_model_add_input(f->model, "x", I, 0));
    REQUIRE_OK(sl_model_add_recurrent(f->model, "rnn", SL_LSTM, &lstm, NULL));
    REQUIRE_OK(sl_model_add_dense(f->model, "dense", &dense, from));
    REQUIRE_OK(sl_model_set_outputs(f->model, outputs));
    sl_plan_options options = {
        .batch = B, .steps = T, .train = 1, .device = test_device, .input_gradients = 1, .masking = masking};
    REQUIRE_OK(sl_plan_new(f->model, &options, &f->plan));
    REQUIRE_OK(sl_params_new(f->plan, &f->params));
    REQUIRE_OK(sl_params_init(f->params, 11));
    REQUIRE_OK(sl_run_new(f->plan, f->params, &f->run));
    fill(f->x, T * B * I, 1);
    fill(f->d_y, T * B * O, 2);
    fill(f->d_h, B * H, 3);
    for (int b = 0; b < B; b++) f->lengths[b] = 1 + b;
}

static void close_fixture(fixture *f) {
    sl_run_free(f->run);
    sl_params_free(f->params);
    sl_plan_free(f->plan);
    sl_model_free(f->model);
}

/* Memory of "another library" on the plan's device. */
typedef struct owned {
    const fixture *f;
    void *data;
    size_t bytes;
    int64_t shape[3];
    sl_dl_tensor tensor;
} owned;

static owned *own(const fixture *f, int rank, int64_t a, int64_t b, int64_t c, const void *values, int code) {
    owned *o = calloc(1, sizeof *o);
    o->f = f;
    int64_t shape[3] = {a, b, c};
    o->bytes = 4;
    for (int k = 0; k < rank; k++) {
        o->shape[k] = shape[k];
        o->bytes *= (size_t)shape[k];
    }
    REQUIRE_OK(f->plan->ops->alloc(f->plan->device, o->bytes, &o->data));
    if (values) REQUIRE_OK(f->plan->ops->upload(f->run->queue, o->data, values, o->bytes));
    bool cuda = f->plan->caps.kind == SLI_DEVICE_CUDA;
    o->tensor = (sl_dl_tensor){.data = o->data,
                               .device = {cuda ? SL_DL_CUDA : SL_DL_CPU, f->plan->caps.index},
                               .ndim = rank,
                               .dtype = {(uint8_t)code, 32, 1},
                               .shape = o->shape};
    return o;
}

static void check_same(owned *o, const float *expected, const char *what) {
    float *values = malloc(o->bytes);
    REQUIRE_OK(o->f->plan->ops->download(o->f->run->queue, values, o->data, o->bytes));
    if (memcmp(values, expected, o->bytes) != 0) test_fail(__FILE__, __LINE__, "%s differs", what);
    free(values);
}

static void disown(owned *o) {
    o->f->plan->ops->wait(o->f->run->queue);
    o->f->plan->ops->free(o->f->plan->device, o->data, o->bytes);
    free(o);
}

/* What the run's own calls give: outputs, d x, gradient of the recurrent kernel. */
static void expected(fixture *f, double *d_kernel) {
    const void *inputs[] = {f->x}, *d_outputs[] = {f->d_y, f->d_h};
    sl_batch batch = {.batch = B, .steps = T, .inputs = inputs};
    if (f->plan->options.masking == SL_MASK_LENGTHS) batch.lengths = f->lengths;
    REQUIRE_OK(sl_run_zero_gradients(f->run));
    REQUIRE_OK(sl_run_gradients(f->run, &batch, d_outputs, 0, 0, 1, NULL));
    REQUIRE_OK(sl_run_output(f->run, "dense", f->y, T * B * O));
    REQUIRE_OK(sl_run_output(f->run, "rnn.h", f->h, B * H));
    REQUIRE_OK(sl_run_input_gradient(f->run, 0, f->d_x, T * B * I));
    REQUIRE_OK(sl_run_gradient(f->run, "rnn.recurrent_kernel", d_kernel, 4 * H * H));
    REQUIRE_OK(sl_run_zero_gradients(f->run));
}

/* `beyond`: what the caller's lengths of the first and last row are less than 0 and more than the steps. */
static void check_round(sl_masking masking, int beyond) {
    fixture f;
    int32_t given[B];
    double d_kernel[4 * H * H], values[4 * H * H];
    float kernel[4 * H * H], d_kernel_float[4 * H * H];
    open_fixture(&f, masking);
    if (beyond > 0) f.lengths[0] = 0, f.lengths[B - 1] = T;
    for (int b = 0; b < B; b++) given[b] = f.lengths[b];
    given[0] -= beyond;
    given[B - 1] += beyond;
    expected(&f, d_kernel);
    REQUIRE_OK(sl_params_get(f.params, "rnn.recurrent_kernel", values, 4 * H * H));
    for (int k = 0; k < 4 * H * H; k++) {
        kernel[k] = (float)values[k];
        d_kernel_float[k] = (float)d_kernel[k];
    }
    /* The params' own copy becomes wrong: what is borrowed must be read. */
    double zeros[4 * H * H] = {0};
    REQUIRE_OK(sl_params_set(f.params, "rnn.recurrent_kernel", zeros, 4 * H * H));
    owned *x = own(&f, 3, T, B, I, f.x, SL_DL_FLOAT), *y = own(&f, 3, T, B, O, NULL, SL_DL_FLOAT);
    owned *h = own(&f, 2, B, H, 0, NULL, SL_DL_FLOAT), *d_y = own(&f, 3, T, B, O, f.d_y, SL_DL_FLOAT);
    owned *d_h = own(&f, 2, B, H, 0, f.d_h, SL_DL_FLOAT), *d_x = own(&f, 3, T, B, I, NULL, SL_DL_FLOAT);
    owned *r = own(&f, 2, 4 * H, H, 0, kernel, SL_DL_FLOAT), *d_r = own(&f, 2, 4 * H, H, 0, NULL, SL_DL_FLOAT);
    owned *lengths = own(&f, 1, B, 0, 0, given, SL_DL_INT);
    REQUIRE_OK(sl_interop_parameter(f.params, "rnn.recurrent_kernel", &r->tensor));
    REQUIRE_OK(sl_interop_gradient(f.run, "rnn.recurrent_kernel", &d_r->tensor));
    const sl_dl_tensor *inputs[] = {&x->tensor}, *outputs[] = {&y->tensor, &h->tensor};
    const sl_dl_tensor *d_outputs[] = {&d_y->tensor, &d_h->tensor}, *d_inputs[] = {&d_x->tensor};
    sl_interop_call call = {.batch = B,
                            .steps = T,
                            .training = 1,
                            .parameters_changed = 1,
                            .inputs = inputs,
                            .outputs = outputs,
                            .lengths = masking == SL_MASK_LENGTHS ? &lengths->tensor : NULL};
    REQUIRE_OK(sl_interop_forward(f.run, &call));
    REQUIRE_OK(sl_interop_backward(f.run, d_outputs, d_inputs));
    check_same(y, f.y, "y");
    check_same(h, f.h, "h");
    check_same(d_x, f.d_x, "d x");
    check_same(d_r, d_kernel_float, "d recurrent_kernel");
    check_same(d_y, f.d_y, "d y, which is only read,");
    /* Backward adds: twice the gradient after two rounds (twice a float is exact). */
    call.parameters_changed = 0;
    REQUIRE_OK(sl_interop_forward(f.run, &call));
    REQUIRE_OK(sl_interop_backward(f.run, d_outputs, NULL));
    for (int k = 0; k < 4 * H * H; k++) d_kernel_float[k] *= 2;
    float twice[4 * H * H];
    REQUIRE_OK(f.plan->ops->download(f.run->queue, twice, d_r->data, sizeof twice));
    for (int k = 0; k < 4 * H * H; k++) CHECK_NEAR(twice[k], d_kernel_float[k], 1e-5);
    /* Unbound, the params' own zeros count again. */
    REQUIRE_OK(sl_interop_parameter(f.params, "rnn.recurrent_kernel", NULL));
    REQUIRE_OK(sl_params_get(f.params, "rnn.recurrent_kernel", values, 4 * H * H));
    for (int k = 0; k < 4 * H * H; k++) CHECK(values[k] == 0);
    owned *all[] = {x, y, h, d_y, d_h, d_x, r, d_r, lengths};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) disown(all[k]);
    close_fixture(&f);
}

TEST(interop_same_bits) {
    check_round(SL_MASK_NONE, 0);
}

TEST(interop_lengths) {
    check_round(SL_MASK_LENGTHS, 0);
    check_round(SL_MASK_LENGTHS, 7);
}

static void run_forward(fixture *f, float *y) {
    const void *inputs[] = {f->x};
    const sl_batch batch = {.batch = B, .steps = T, .inputs = inputs};
    REQUIRE_OK(sl_run_forward(f->run, &batch));
    REQUIRE_OK(sl_run_output(f->run, "dense", y, T * B * O));
}

/* Rows that keep a packed copy of their weights compute with what counts now: borrowed at once, own again once unbound. */
TEST(interop_packed_copies) {
    fixture f;
    float own_y[T * B * O], borrowed_y[T * B * O], y[T * B * O], kernel[4 * H * H];
    double values[4 * H * H], others[4 * H * H];
    open_fixture(&f, SL_MASK_NONE);
    REQUIRE_OK(sl_params_get(f.params, "rnn.recurrent_kernel", values, 4 * H * H));
    for (int k = 0; k < 4 * H * H; k++) others[k] = kernel[k] = (float)(-0.5 * values[k]);
    run_forward(&f, own_y);
    REQUIRE_OK(sl_params_set(f.params, "rnn.recurrent_kernel", others, 4 * H * H));
    run_forward(&f, borrowed_y);
    REQUIRE_OK(sl_params_set(f.params, "rnn.recurrent_kernel", values, 4 * H * H));
    CHECK(memcmp(own_y, borrowed_y, sizeof own_y) != 0);
    owned *r = own(&f, 2, 4 * H, H, 0, kernel, SL_DL_FLOAT);
    REQUIRE_OK(f.plan->ops->wait(f.run->queue));
    REQUIRE_OK(sl_interop_parameter(f.params, "rnn.recurrent_kernel", &r->tensor));
    run_forward(&f, y);
    CHECK(memcmp(y, borrowed_y, sizeof y) == 0);
    REQUIRE_OK(sl_interop_parameter(f.params, "rnn.recurrent_kernel", NULL));
    run_forward(&f, y);
    CHECK(memcmp(y, own_y, sizeof y) == 0);
    disown(r);
    close_fixture(&f);
}

TEST(interop_refusals) {
    fixture f;
    open_fixture(&f, SL_MASK_NONE);
    owned *x = own(&f, 3, T, B, I, f.x, SL_DL_FLOAT);
    const sl_dl_tensor *inputs[] = {&x->tensor}, *none[] = {NULL, NULL};
    sl_interop_call call = {.batch = B, .steps = T, .training = 1, .inputs = inputs};
    CHECK_FAILS(sl_interop_backward(f.run, none, NULL), SL_ERR_USAGE, "no sl_interop_forward");
    x->shape[0] = T - 1;
    CHECK_FAILS(sl_interop_forward(f.run, &call), SL_ERR_SHAPE, "[7][5][6]");
    x->shape[0] = T;
    int64_t strides[3] = {1, T, T * B};
    x->tensor.strides = strides;
    CHECK_FAILS(sl_interop_forward(f.run, &call), SL_ERR_SHAPE, "contiguous");
    x->tensor.strides = NULL;
    x->tensor.dtype.bits = 16;
    CHECK_FAILS(sl_interop_forward(f.run, &call), SL_ERR_INPUT, "float32");
    x->tensor.dtype.bits = 32;
    x->tensor.device.device_type = 7;
    CHECK_FAILS(sl_interop_forward(f.run, &call), SL_ERR_INPUT, "device type 7");
    x->tensor.device.device_type = f.plan->caps.kind == SLI_DEVICE_CUDA ? SL_DL_CUDA : SL_DL_CPU;
    x->tensor.byte_offset = 4;
    CHECK_FAILS(sl_interop_forward(f.run, &call), SL_ERR_INPUT, "aligned");
    x->tensor.byte_offset = 0;
    call.batch = B + 1;
    CHECK_FAILS(sl_interop_forward(f.run, &call), SL_ERR_SHAPE, "6 rows");
    CHECK_FAILS(sl_interop_parameter(f.params, "nobody", NULL), SL_ERR_UNKNOWN, "nobody");
    call.batch = B;
    call.lengths = &x->tensor;
    CHECK_FAILS(sl_interop_forward(f.run, &call), SL_ERR_USAGE, "plan with SL_MASK_LENGTHS");
    call.lengths = NULL;
    if (!f.plan->ops->borrow_stream) CHECK_FAILS(sl_interop_stream(f.run, NULL), SL_ERR_USAGE, "no streams");
    call.batch = B;
    REQUIRE_OK(sl_interop_forward(f.run, &call));
    const void *host[] = {f.x}, *nothing[] = {NULL, NULL};
    sl_batch batch = {.batch = B, .steps = T, .inputs = host};
    REQUIRE_OK(sl_run_gradients(f.run, &batch, nothing, 0, 0, 1, NULL));
    CHECK_FAILS(sl_interop_backward(f.run, none, NULL), SL_ERR_USAGE, "no sl_interop_forward");
    if (f.plan->ops->borrow_stream) { /* the default stream, and back */
        REQUIRE_OK(sl_interop_stream(f.run, NULL));
        REQUIRE_OK(sl_interop_forward(f.run, &call));
        REQUIRE_OK(sl_interop_stream(f.run, SL_INTEROP_OWN_STREAM));
        REQUIRE_OK(sl_interop_backward(f.run, none, NULL));
    }
    disown(x);
    close_fixture(&f);
}

/* What the last good call gave can still be read, and counts for what follows. */
TEST(interop_bad_calls_change_nothing) {
    fixture f;
    float before[T * B * O], after[T * B * O];
    int steps, batch;
    open_fixture(&f, SL_MASK_NONE);
    run_forward(&f, before);
    owned *x = own(&f, 3, T, B, I, f.x, SL_DL_FLOAT), *short_y = own(&f, 3, T - 1, B, O, NULL, SL_DL_FLOAT);
    const sl_dl_tensor *inputs[] = {&x->tensor}, *outputs[] = {&short_y->tensor, NULL}, *none[] = {NULL, NULL};
    const sl_interop_call good = {.batch = B, .steps = T, .training = 1, .inputs = inputs};
    sl_interop_call bad = good;
    bad.batch = B - 1;
    CHECK_FAILS(sl_interop_forward(f.run, &bad), SL_ERR_SHAPE, "input \"x\"");
    REQUIRE_OK(sl_run_output_shape(f.run, NULL, &steps, &batch, NULL));
    CHECK(steps == T && batch == B);
    REQUIRE_OK(sl_run_output(f.run, NULL, after, T * B * O));
    CHECK(memcmp(before, after, sizeof before) == 0);
    REQUIRE_OK(sl_interop_forward(f.run, &good));
    bad = good;
    bad.outputs = outputs;
    CHECK_FAILS(sl_interop_forward(f.run, &bad), SL_ERR_SHAPE, "output \"dense\"");
    REQUIRE_OK(sl_interop_backward(f.run, none, NULL));
    disown(x);
    disown(short_y);
    close_fixture(&f);
}

/* A refused backward touches none of its tensors, nor does the next one; a second one would find its forward's numbers overwritten. */
TEST(interop_one_backward_a_forward) {
    fixture f;
    float nothing[T * B * I] = {0};
    open_fixture(&f, SL_MASK_NONE);
    owned *x = own(&f, 3, T, B, I, f.x, SL_DL_FLOAT), *d_x = own(&f, 3, T, B, I, nothing, SL_DL_FLOAT);
    owned *d_y = own(&f, 3, T, B, O, f.d_y, SL_DL_FLOAT), *d_h = own(&f, 2, B, H, 0, f.d_h, SL_DL_FLOAT);
    const sl_dl_tensor *inputs[] = {&x->tensor}, *d_inputs[] = {&d_x->tensor}, *none[] = {NULL, NULL};
    const sl_dl_tensor *d_outputs[] = {&d_y->tensor, &d_h->tensor};
    const sl_interop_call call = {.batch = B, .steps = T, .training = 1, .inputs = inputs};
    REQUIRE_OK(sl_interop_forward(f.run, &call));
    d_h->tensor.dtype.bits = 64;
    CHECK_FAILS(sl_interop_backward(f.run, d_outputs, d_inputs), SL_ERR_INPUT, "float32");
    d_h->tensor.dtype.bits = 32;
    REQUIRE_OK(sl_interop_backward(f.run, none, NULL));
    check_same(d_y, f.d_y, "d y of the refused backward");
    check_same(d_x, nothing, "d x of the refused backward");
    CHECK_FAILS(sl_interop_backward(f.run, d_outputs, d_inputs), SL_ERR_USAGE, "each backward needs its own");
    owned *all[] = {x, d_x, d_y, d_h};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) disown(all[k]);
    close_fixture(&f);
}

/* An input that is an output as well, read by a layer or by nobody: d x is the gradient of the output and what comes back. */
static void check_input_as_output(bool read) {
    fixture f = {0};
    const char *outputs[] = {read ? "x" : "same", read ? "rnn" : NULL, NULL};
    const sl_recurrent rnn = {.units = O, .return_sequences = 1};
    const sl_plan_options options = {.batch = B, .steps = T, .train = 1, .device = test_device, .input_gradients = 1};
    float d[T * B * I], nothing[T * B * I];
    REQUIRE_OK(sl_model_new(NULL, &f.model));
    REQUIRE_OK(sl_model_add_input(f.model, "x", I, 0));
    REQUIRE_OK(read ? sl_model_add_recurrent(f.model, "rnn", SL_RNN, &rnn, NULL)
                    : sl_model_add_dropout(f.model, "same", 0, NULL)); /* computes nothing: it is x */
    REQUIRE_OK(sl_model_set_outputs(f.model, outputs));
    REQUIRE_OK(sl_plan_new(f.model, &options, &f.plan));
    REQUIRE_OK(sl_params_new(f.plan, &f.params));
    REQUIRE_OK(sl_params_init(f.params, 11));
    REQUIRE_OK(sl_run_new(f.plan, f.params, &f.run));
    fill(f.x, T * B * I, 1);
    fill(f.d_y, T * B * O, 2);
    fill(d, T * B * I, 3);
    for (int k = 0; k < T * B * I; k++) nothing[k] = NAN;
    const void *x_host[] = {f.x}, *d_host[] = {d, f.d_y};
    const sl_batch batch = {.batch = B, .steps = T, .inputs = x_host};
    REQUIRE_OK(sl_run_gradients(f.run, &batch, d_host, 0, 0, 1, NULL));
    REQUIRE_OK(sl_run_input_gradient(f.run, 0, f.d_x, T * B * I));
    owned *x = own(&f, 3, T, B, I, f.x, SL_DL_FLOAT), *d_x = own(&f, 3, T, B, I, nothing, SL_DL_FLOAT);
    owned *d_out = own(&f, 3, T, B, I, d, SL_DL_FLOAT), *d_y = own(&f, 3, T, B, O, f.d_y, SL_DL_FLOAT);
    const sl_dl_tensor *inputs[] = {&x->tensor}, *d_inputs[] = {&d_x->tensor};
    const sl_dl_tensor *d_outputs[] = {&d_out->tensor, &d_y->tensor};
    const sl_interop_call call = {.batch = B, .steps = T, .training = 1, .inputs = inputs};
    REQUIRE_OK(sl_interop_forward(f.run, &call));
    REQUIRE_OK(sl_interop_backward(f.run, d_outputs, d_inputs));
    check_same(d_x, f.d_x, "d x");
    check_same(d_out, d, "the output's gradient, which is only read,");
    owned *all[] = {x, d_x, d_out, d_y};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) disown(all[k]);
    close_fixture(&f);
}

TEST(interop_an_input_is_an_output) {
    check_input_as_output(true);
    check_input_as_output(false);
}

/* Tokens as input, one-hot where units are 0, else embedded. */
static void open_tokens(fixture *f, int vocabulary, int units, int batch, int steps) {
    const sl_embedding embedding = {.vocabulary = vocabulary, .units = units};
    const sl_plan_options options = {.batch = batch, .steps = steps, .train = 1, .device = test_device};
    const char *outputs[] = {"e", NULL};
    REQUIRE_OK(sl_model_new(NULL, &f->model));
    REQUIRE_OK(sl_model_add_tokens(f->model, "x", vocabulary));
    REQUIRE_OK(units == 0 ? sl_model_add_one_hot(f->model, "e", vocabulary, NULL)
                          : sl_model_add_embedding(f->model, "e", &embedding, NULL));
    REQUIRE_OK(sl_model_set_outputs(f->model, outputs));
    REQUIRE_OK(sl_plan_new(f->model, &options, &f->plan));
    REQUIRE_OK(sl_params_new(f->plan, &f->params));
    REQUIRE_OK(sl_params_init(f->params, 11));
    REQUIRE_OK(sl_run_new(f->plan, f->params, &f->run));
}

/* Tokens that nobody has checked, some outside the vocabulary: NaN in their rows, in no other; no gradient of theirs. */
static void check_outside(bool one_hot) {
    enum { V = 9 };
    static const int32_t tokens[T * B] = {0, 8, -1, 9, 3, 100000000, INT32_MIN, INT32_MAX, 1, 2};
    fixture f = {0};
    float values[T * B * V];
    double gradient[V * V];
    open_tokens(&f, V, one_hot ? 0 : V, B, T);
    owned *x = own(&f, 2, T, B, 0, tokens, SL_DL_INT), *y = own(&f, 3, T, B, V, NULL, SL_DL_FLOAT);
    const sl_dl_tensor *inputs[] = {&x->tensor}, *results[] = {&y->tensor};
    const sl_interop_call call = {.batch = B, .steps = T, .training = 1, .inputs = inputs, .outputs = results};
    REQUIRE_OK(sl_interop_forward(f.run, &call));
    REQUIRE_OK(f.plan->ops->download(f.run->queue, values, y->data, y->bytes));
    REQUIRE_OK(f.plan->ops->wait(f.run->queue));
    for (int row = 0; row < T * B; row++)
        for (int j = 0; j < V; j++) CHECK(isnan(values[row * V + j]) == (tokens[row] < 0 || tokens[row] >= V));
    REQUIRE_OK(sl_interop_backward(f.run, results, NULL)); /* NaN where rows are: none may reach the table */
    if (!one_hot) {
        REQUIRE_OK(sl_run_gradient(f.run, "e.embeddings", gradient, V * V));
        for (int k = 0; k < V * V; k++) CHECK(isfinite(gradient[k]));
    }
    disown(x);
    disown(y);
    close_fixture(&f);
}

TEST(interop_tokens_outside_the_vocabulary) {
    check_outside(false);
    check_outside(true);
}

/* So many that a GPU sorts them by digits: token 0 between such from outside, whose key is the vocabulary. A row of the gradient counts its token. */
static void check_many_outside(int vocabulary) {
    enum { STEPS = 300, ROWS = 17 };
    static int32_t tokens[STEPS * ROWS];
    static float ones[STEPS * ROWS];
    double *gradient = calloc((size_t)vocabulary, sizeof *gradient),
           *expected = calloc((size_t)vocabulary, sizeof *expected);
    fixture f = {0};
    uint64_t state = test_seed;
    REQUIRE(gradient && expected);
    for (int k = 0; k < STEPS * ROWS; k++) {
        const double drawn = test_random(&state);
        tokens[k] = drawn < -0.3 ? 0 : drawn < 0.3 ? -1 : (int32_t)((drawn - 0.3) / 0.7 * vocabulary);
        ones[k] = 1;
        if (tokens[k] >= 0 && tokens[k] < vocabulary) expected[tokens[k]]++;
    }
    open_tokens(&f, vocabulary, 1, ROWS, STEPS);
    owned *x = own(&f, 2, STEPS, ROWS, 0, tokens, SL_DL_INT), *d_y = own(&f, 3, STEPS, ROWS, 1, ones, SL_DL_FLOAT);
    const sl_dl_tensor *inputs[] = {&x->tensor}, *d_outputs[] = {&d_y->tensor};
    const sl_interop_call call = {.batch = ROWS, .steps = STEPS, .training = 1, .inputs = inputs};
    REQUIRE_OK(sl_interop_forward(f.run, &call));
    REQUIRE_OK(sl_interop_backward(f.run, d_outputs, NULL));
    REQUIRE_OK(sl_run_gradient(f.run, "e.embeddings", gradient, (size_t)vocabulary));
    for (int k = 0; k < vocabulary; k++)
        if (gradient[k] != expected[k])
            test_fail(__FILE__, __LINE__, "vocabulary %d: token %d %g times, not %g", vocabulary, k, gradient[k],
                      expected[k]);
    disown(x);
    disown(d_y);
    close_fixture(&f);
    free(gradient);
    free(expected);
}

TEST(interop_many_tokens_outside_the_vocabulary) {
    check_many_outside(255);
    check_many_outside(256);
    check_many_outside(65536);
}
