/* Sluice inside another program: an LSTM computes on tensors that the program owns, and the program's own optimizer trains
 * it. On a GPU it is the same, with device pointers and a stream: see sluice_interop.h. */
#include <stdio.h>
#include <stdlib.h>

#include "sluice_interop.h"

enum { T = 6, B = 4, I = 2, H = 3, MOST = 8, STEPS = 1000 };

static void check(sl_status status) {
    if (status == SL_OK) return;
    fprintf(stderr, "interop: %s\n", sl_error_detail());
    exit(sl_status_exit_code(status));
}

/* A tensor of this program: zeros, dense, aligned to 16 bytes. As DLPack describes it. */
typedef struct tensor {
    int64_t shape[3];
    size_t count;
    float *values;
    sl_dl_tensor view;
} tensor;

static tensor *tensor_new(int rank, int64_t a, int64_t b, int64_t c) {
    tensor *made = calloc(1, sizeof *made);
    if (!made) exit(1);
    made->shape[0] = a, made->shape[1] = b, made->shape[2] = c;
    made->count = 1;
    for (int k = 0; k < rank; k++) made->count *= (size_t)made->shape[k];
    size_t bytes = (made->count * sizeof(float) + 15) / 16 * 16;
    made->values = aligned_alloc(16, bytes);
    if (!made->values) exit(1);
    for (size_t k = 0; k < made->count; k++) made->values[k] = 0;
    made->view = (sl_dl_tensor){.data = made->values,
                                .device = {.device_type = SL_DL_CPU},
                                .ndim = rank,
                                .dtype = {.code = SL_DL_FLOAT, .bits = 32, .lanes = 1},
                                .shape = made->shape};
    return made;
}

static void tensor_free(tensor *t) {
    free(t->values);
    free(t);
}

/* The program's parameters and gradients take the place of Sluice's: no copies from here on. */
static int borrow(sl_params *params, sl_run *run, tensor **values, tensor **gradients) {
    int count = sl_params_count(params);
    for (int i = 0; i < count && i < MOST; i++) {
        int rows, columns;
        double start[64];
        const char *name = sl_params_name(params, i, &rows, &columns);
        values[i] = tensor_new(2, rows, columns, 0);
        gradients[i] = tensor_new(2, rows, columns, 0);
        check(sl_params_get(params, name, start, values[i]->count));
        for (size_t k = 0; k < values[i]->count; k++) values[i]->values[k] = (float)start[k];
        check(sl_interop_parameter(params, name, &values[i]->view));
        check(sl_interop_gradient(run, name, &gradients[i]->view));
    }
    return count;
}

/* y follows the first feature of x, one step late; *d_y = y - target, d loss / d y of half the sum of squares. */
static double loss_of(const tensor *x, const tensor *y, tensor *d_y) {
    double loss = 0;
    for (int t = 0; t < T; t++)
        for (int b = 0; b < B; b++)
            for (int h = 0; h < H; h++) {
                size_t at = (size_t)((t * B + b) * H + h);
                float target = t == 0 ? 0 : 0.5f * x->values[((t - 1) * B + b) * I];
                d_y->values[at] = y->values[at] - target;
                loss += 0.5 * d_y->values[at] * d_y->values[at];
            }
    return loss;
}

int main(void) {
    sl_model *model; /* describe */
    sl_recurrent lstm = {.units = H, .return_sequences = 1};
    check(sl_model_new(NULL, &model));
    check(sl_model_add_input(model, "x", I, 0));
    check(sl_model_add_recurrent(model, "lstm", SL_LSTM, &lstm, NULL));

    sl_plan *plan; /* plan: gradients of the inputs too, no loss: that is the caller's */
    sl_plan_options options = {.batch = B, .steps = T, .train = 1, .device = "cpu", .input_gradients = 1};
    check(sl_plan_new(model, &options, &plan));

    sl_params *params; /* run */
    sl_run *run;
    check(sl_params_new(plan, &params));
    check(sl_params_init(params, 1));
    check(sl_run_new(plan, params, &run));

    tensor *x = tensor_new(3, T, B, I), *y = tensor_new(3, T, B, H);
    tensor *d_x = tensor_new(3, T, B, I), *d_y = tensor_new(3, T, B, H);
    tensor *values[MOST], *gradients[MOST];
    int count = borrow(params, run, values, gradients);
    for (size_t k = 0; k < x->count; k++) x->values[k] = (float)(k * 7 % 5) / 2 - 1;

    const sl_dl_tensor *inputs[] = {&x->view}, *outputs[] = {&y->view};
    const sl_dl_tensor *d_inputs[] = {&d_x->view}, *d_outputs[] = {&d_y->view};
    double loss = 0;
    for (int step = 0; step < STEPS; step++) {
        sl_interop_call call = {.batch = B,
                                .steps = T,
                                .training = 1,
                                .parameters_changed = 1,
                                .step = (uint32_t)step,
                                .inputs = inputs,
                                .outputs = outputs};
        check(sl_interop_forward(run, &call)); /* y = */
        loss = loss_of(x, y, d_y);
        if (step == 0) printf("loss at first: %.1f\n", loss);
        check(sl_interop_backward(run, d_outputs, d_inputs)); /* d_x =, gradients += */
        for (int i = 0; i < count; i++)
            for (size_t k = 0; k < values[i]->count; k++) {
                values[i]->values[k] -= 0.1f * gradients[i]->values[k];
                gradients[i]->values[k] = 0;
            }
    }
    printf("after %d steps of this program's own optimizer: %s\n", STEPS, loss < 0.5 ? "below 0.5" : "still above 0.5");

    sl_run_free(run); /* what was borrowed may go after these */
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
    for (int i = 0; i < count; i++) {
        tensor_free(values[i]);
        tensor_free(gradients[i]);
    }
    tensor_free(x);
    tensor_free(y);
    tensor_free(d_x);
    tensor_free(d_y);
    return 0;
}
