/* See test_ref_case.h. */
#include "test_ref_case.h"

static bool is_loss(const ref_case *test) {
    return test->problem.op == SLI_OP_XENT || test->problem.op == SLI_OP_BCE || test->problem.op == SLI_OP_MSE;
}

static size_t real_bytes(const ref_case *test) {
    return test->problem.dtype == SL_F64 ? sizeof(double) : sizeof(float);
}

static int steps_of(const ref_case *test) {
    return test->problem.steps > 0 ? test->problem.steps : 1;
}

double ref_get(const ref_case *test, const void *tensor, size_t index) {
    return test->problem.dtype == SL_F64 ? ((const double *)tensor)[index] : (double)((const float *)tensor)[index];
}

void ref_set(const ref_case *test, void *tensor, size_t index, double value) {
    if (test->problem.dtype == SL_F64)
        ((double *)tensor)[index] = value;
    else
        ((float *)tensor)[index] = (float)value;
}

static void recurrent_sizes(ref_case *test) {
    const sli_problem *p = &test->problem;
    size_t T = (size_t)steps_of(test), B = (size_t)p->batch, I = (size_t)p->inputs, H = (size_t)p->units;
    size_t O = (size_t)sli_problem_output(p), G = (size_t)sli_op_gates(p->op);
    bool lstm = p->op == SLI_OP_LSTM;
    test->in_count[SLI_RNN_X] = T * B * I;
    test->in_count[SLI_RNN_H0] = test->out_count[SLI_RNN_HT] = B * O;
    test->in_count[SLI_RNN_C0] = test->out_count[SLI_RNN_CT] = lstm ? B * H : 0;
    test->out_count[SLI_RNN_Y] = T * B * O;
    test->in_time[SLI_RNN_X] = test->out_time[SLI_RNN_Y] = true;
    test->param_count[SLI_RNN_KERNEL] = G * H * I;
    test->param_count[SLI_RNN_RECURRENT] = G * H * O;
    test->param_count[SLI_RNN_BIAS] = p->bias == SL_BIAS_NONE ? 0 : G * H;
    test->param_count[SLI_RNN_RECURRENT_BIAS] = p->bias == SL_BIAS_DOUBLE ? G * H : 0;
    test->param_count[SLI_RNN_PEEPHOLE] = p->peephole ? 3 * H : 0;
    test->param_count[SLI_RNN_PROJECTION] = O != H || p->projection > 0 ? O * H : 0;
}

static void other_sizes(ref_case *test) {
    const sli_problem *p = &test->problem;
    size_t T = (size_t)steps_of(test), B = (size_t)p->batch, I = (size_t)p->inputs, H = (size_t)p->units, rows = T * B;
    bool tokens = p->op == SLI_OP_EMBED || p->op == SLI_OP_ONEHOT;
    test->in_time[0] = test->out_time[0] = true;
    test->in_count[0] = tokens ? 0 : p->op == SLI_OP_DENSE ? rows * I : rows * H;
    test->out_count[0] = is_loss(test) ? 0 : p->op == SLI_OP_ONEHOT ? rows * I : rows * H;
    if (p->op == SLI_OP_DENSE) {
        test->param_count[SLI_DENSE_KERNEL] = H * I;
        test->param_count[SLI_DENSE_BIAS] = p->no_bias ? 0 : H;
    } else if (p->op == SLI_OP_EMBED) {
        test->param_count[SLI_EMBED_TABLE] = I * H;
    } else if (p->op == SLI_OP_MERGE) {
        for (int part = 0; part < p->parts; part++) {
            test->in_count[part] = rows * (p->merge == SL_MERGE_CONCAT ? (size_t)p->parts_units[part] : H);
            test->in_time[part] = true;
        }
    } else if (p->op == SLI_OP_BCE || p->op == SLI_OP_MSE) {
        test->in_count[SLI_LOSS_TARGET] = rows * H;
        test->in_time[SLI_LOSS_TARGET] = true;
    }
}

/* 0 = masked. Row 0 is full; row 1, if there are three, is empty. */
static void draw_mask(ref_case *test) {
    const sli_problem *p = &test->problem;
    int T = steps_of(test), B = p->batch;
    for (int b = 0; b < B; b++) {
        int length = b == 0 ? T : b == 1 && B > 2 ? 0 : 1 + (int)((test_random(&test->random) + 1) / 2 * (T - 1));
        test->lengths[b] = length;
        for (int t = 0; t < T; t++) {
            bool valid = t < length;
            if (p->mask == SLI_MASK_LEFT) valid = t >= T - length;
            if (p->mask == SLI_MASK_HOLES && b != 1) valid = test_random(&test->random) > -0.3;
            test->mask[t * B + b] = valid;
        }
    }
}

static void draw(ref_case *test) {
    const sli_problem *p = &test->problem;
    int rows = steps_of(test) * p->batch, classes = p->op == SLI_OP_XENT ? p->units : p->inputs;
    for (int k = 0; k < SLI_MAX_IN; k++)
        for (size_t e = 0; e < test->in_count[k]; e++) ref_set(test, test->in[k], e, 1.5 * test_random(&test->random));
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        for (size_t e = 0; e < test->param_count[k]; e++) ref_set(test, test->param[k], e, test_random(&test->random));
    for (int k = 0; k < SLI_MAX_OUT; k++)
        for (size_t e = 0; e < test->out_count[k]; e++) ref_set(test, test->d_out[k], e, test_random(&test->random));
    for (int row = 0; row < rows; row++) {
        int value = (int)((test_random(&test->random) + 1) / 2 * classes);
        test->integers[row] = p->op == SLI_OP_XENT && row % 5 == 3 ? -1 : value;
    }
    draw_mask(test);
}

static void *make(size_t count, size_t bytes) {
    void *memory = count ? calloc(count, bytes) : NULL;
    if (count && !memory) abort();
    return memory;
}

void ref_case_new(ref_case *test, const char *problem, uint64_t seed) {
    memset(test, 0, sizeof *test);
    REQUIRE_OK(sli_problem_parse(problem, &test->problem));
    const sli_problem *p = &test->problem;
    for (const sli_kernel *const *row = sli_ref_kernels; *row; row++)
        if ((*row)->op == p->op) test->kernel = *row;
    REQUIRE(test->kernel != NULL);
    if (sli_op_is_recurrent(p->op))
        recurrent_sizes(test);
    else
        other_sizes(test);
    size_t real = real_bytes(test), rows = (size_t)steps_of(test) * (size_t)p->batch;
    for (int k = 0; k < SLI_MAX_IN; k++)
        test->in[k] = make(test->in_count[k], real), test->d_in[k] = make(test->in_count[k], real);
    for (int k = 0; k < SLI_MAX_OUT; k++)
        test->out[k] = make(test->out_count[k], real), test->d_out[k] = make(test->out_count[k], real);
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        test->param[k] = make(test->param_count[k], real), test->d_param[k] = make(test->param_count[k], real);
    test->integers = make(rows, sizeof(int32_t));
    test->lengths = make((size_t)p->batch, sizeof(int32_t));
    test->mask = make(rows, 1);
    test->segment = steps_of(test);
    test->training = p->train;
    test->scalars = (sli_scalars){.seed = 77, .step = 3, .micro_step = 1, .loss_scale = 0.7};
    test->random = test_seed * 1000 + seed;
    draw(test);
}

static void free_saved(ref_case *test) {
    for (int k = 0; k < REF_MAX_SEGMENTS; k++) free(test->saved[k]), test->saved[k] = NULL;
}

void ref_case_free(ref_case *test) {
    for (int k = 0; k < SLI_MAX_IN; k++) free(test->in[k]), free(test->d_in[k]);
    for (int k = 0; k < SLI_MAX_OUT; k++) free(test->out[k]), free(test->d_out[k]);
    for (int k = 0; k < SLI_MAX_PARAM; k++) free(test->param[k]), free(test->d_param[k]);
    free(test->integers);
    free(test->lengths);
    free(test->mask);
    free_saved(test);
}

static void *part_of(const ref_case *test, void *tensor, size_t count, bool time, int t0) {
    if (!tensor || !time) return tensor;
    return (char *)tensor + count / (size_t)steps_of(test) * (size_t)t0 * real_bytes(test);
}

/* The call of the segment that is processed k-th, without saved and scratch; *bookings gets what it needs. */
static sli_call segment_call(ref_case *test, int k, sli_booking *booking) {
    const sli_problem *p = &test->problem;
    int T = steps_of(test), count = (T + test->segment - 1) / test->segment, index = p->reverse ? count - 1 - k : k;
    int t0 = index * test->segment, length = t0 + test->segment > T ? T - t0 : test->segment;
    bool states = sli_op_is_recurrent(p->op);
    sli_call call = {.problem = *p, .chunk = test->segment, .t0 = t0, .total_steps = T, .training = test->training};
    call.recompute = test->recompute;
    call.accumulate = test->accumulate;
    call.rng_layer = 5 << 8;
    call.scalars = &test->scalars;
    call.metrics = &test->metrics;
    if (p->steps > 0) call.problem.steps = length;
    for (int n = 0; n < SLI_MAX_IN; n++) {
        call.in[n] = part_of(test, test->in[n], test->in_count[n], test->in_time[n], t0);
        call.d_in[n] = part_of(test, test->d_in[n], test->in_count[n], test->in_time[n], t0);
    }
    for (int n = 0; n < SLI_MAX_OUT; n++) {
        call.out[n] = part_of(test, test->out[n], test->out_count[n], test->out_time[n], t0);
        call.d_out[n] = part_of(test, test->d_out[n], test->out_count[n], test->out_time[n], t0);
    }
    for (int n = 0; n < SLI_MAX_PARAM; n++) call.param[n] = test->param[n], call.d_param[n] = test->d_param[n];
    if (p->op == SLI_OP_EMBED || p->op == SLI_OP_ONEHOT) call.in[0] = test->integers + t0 * p->batch;
    if (p->op == SLI_OP_XENT) call.in[SLI_LOSS_TARGET] = test->integers + t0 * p->batch;
    if (p->mask == SLI_MASK_LENGTHS) call.in[SLI_RNN_LENGTHS] = test->lengths;
    if (p->mask > SLI_MASK_LENGTHS) call.in[SLI_RNN_MASK] = test->mask + t0 * p->batch;
    /* The carried state lives in one place; so does its gradient. */
    for (int s = SLI_RNN_HT; states && s <= SLI_RNN_CT; s++) {
        if (k > 0) call.in[s] = test->out[s];
        if (k < count - 1) call.d_out[s] = test->d_in[s];
    }
    *booking = (sli_booking){0};
    if (test->kernel->book) test->kernel->book(&call.problem, &(sli_caps){0}, test->segment, booking);
    return call;
}

void ref_forward(ref_case *test) {
    int count = (steps_of(test) + test->segment - 1) / test->segment;
    REQUIRE(count <= REF_MAX_SEGMENTS);
    memset(&test->metrics, 0, sizeof test->metrics);
    free_saved(test);
    for (int k = 0; k < count; k++) {
        sli_booking booking;
        sli_call call = segment_call(test, k, &booking);
        call.saved = test->saved[k] = make(booking.saved, 1);
        call.scratch = make(booking.scratch_forward, 1);
        test->kernel->forward(&call);
        free(call.scratch);
    }
}

void ref_backward(ref_case *test) {
    int count = (steps_of(test) + test->segment - 1) / test->segment;
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        if (test->d_param[k]) memset(test->d_param[k], 0, test->param_count[k] * real_bytes(test));
    for (int k = count - 1; k >= 0; k--) {
        sli_booking booking;
        sli_call call = segment_call(test, k, &booking);
        call.saved = test->saved[k];
        call.scratch = make(booking.scratch_backward, 1);
        test->kernel->backward(&call);
        free(call.scratch);
    }
}

/* --------------------------------------------------------------------------------------------- finite differences -- */
static double objective(ref_case *test) {
    double sum = 0;
    ref_forward(test);
    if (is_loss(test)) return test->scalars.loss_scale * test->metrics.loss_sum;
    for (int k = 0; k < SLI_MAX_OUT; k++)
        for (size_t e = 0; e < test->out_count[k]; e++)
            sum += ref_get(test, test->out[k], e) * ref_get(test, test->d_out[k], e);
    return sum;
}

/* ||g - fd|| / ||fd|| of one tensor; false where a kink lies within a step: both one-sided differences disagree there. */
static bool compare(ref_case *test, void *tensor, const void *gradient, size_t count, double *error) {
    const double step = 1e-5, middle = objective(test);
    double difference = 0, norm = 0;
    for (size_t e = 0; e < count; e++) {
        double value = ref_get(test, tensor, e);
        ref_set(test, tensor, e, value + step);
        double above = objective(test);
        ref_set(test, tensor, e, value - step);
        double below = objective(test), fd = (above - below) / (2 * step), g = ref_get(test, gradient, e);
        ref_set(test, tensor, e, value);
        if (fabs((above - middle) - (middle - below)) > 1e-3 * step * (1 + fabs(fd)) * 4) return false;
        difference += (g - fd) * (g - fd);
        norm += fd * fd;
    }
    *error = norm > 1e-16 ? sqrt(difference / norm) : sqrt(difference);
    return true;
}

static bool compare_all(ref_case *test) {
    char text[SLI_PROBLEM_TEXT];
    double error = 0;
    sli_problem_print(&test->problem, text, sizeof text);
    ref_forward(test);
    ref_backward(test);
    for (int k = 0; k < SLI_MAX_IN; k++) {
        if (!test->in_count[k] || (is_loss(test) && k == SLI_LOSS_TARGET)) continue;
        if (!compare(test, test->in[k], test->d_in[k], test->in_count[k], &error)) return false;
        if (!(error < 1e-6)) test_fail(__FILE__, __LINE__, "%s: gradient of in[%d] is off by %g", text, k, error);
    }
    for (int k = 0; k < SLI_MAX_PARAM; k++) {
        if (!test->param_count[k]) continue;
        if (!compare(test, test->param[k], test->d_param[k], test->param_count[k], &error)) return false;
        if (!(error < 1e-6)) test_fail(__FILE__, __LINE__, "%s: gradient of param[%d] is off by %g", text, k, error);
    }
    return true;
}

void ref_check_gradients(const char *problem, uint64_t seed, bool training) {
    ref_case test;
    ref_case_new(&test, problem, seed);
    REQUIRE(test.problem.dtype == SL_F64);
    test.training = training;
    bool compared = false;
    for (int attempt = 0; attempt < 40 && !compared; attempt++) {
        if (attempt > 0) draw(&test);
        compared = compare_all(&test);
    }
    if (!compared) test_fail(__FILE__, __LINE__, "%s: every draw has a kink", problem);
    ref_case_free(&test);
}

/* ----------------------------------------------------------------------------------------------------- segments -- */
static void same_bits(const ref_case *test, const char *problem, const char *what, int index, const void *a,
                      const void *b, size_t count) {
    if (count && memcmp(a, b, count * real_bytes(test)) != 0)
        test_fail(__FILE__, __LINE__, "%s: %s[%d] differs in segments of %d steps", problem, what, index,
                  test->segment);
}

void ref_check_segments(const char *problem, uint64_t seed, int segment) {
    ref_case whole, cut;
    ref_case_new(&whole, problem, seed);
    ref_case_new(&cut, problem, seed);
    cut.segment = segment;
    ref_forward(&whole);
    ref_forward(&cut);
    for (int k = 0; k < SLI_MAX_OUT; k++)
        same_bits(&cut, problem, "out", k, whole.out[k], cut.out[k], cut.out_count[k]);
    if (memcmp(&whole.metrics, &cut.metrics, sizeof cut.metrics) != 0)
        test_fail(__FILE__, __LINE__, "%s: metrics differ in segments of %d steps", problem, segment);
    if (whole.kernel->backward) {
        ref_backward(&whole);
        ref_backward(&cut);
    }
    for (int k = 0; k < SLI_MAX_IN; k++)
        same_bits(&cut, problem, "d_in", k, whole.d_in[k], cut.d_in[k], cut.in_count[k]);
    for (int k = 0; k < SLI_MAX_PARAM; k++)
        same_bits(&cut, problem, "d_param", k, whole.d_param[k], cut.d_param[k], cut.param_count[k]);
    ref_case_free(&whole);
    ref_case_free(&cut);
}
