/* cuda:norm and cuda:optim on libsluice's side, and their formulas as host code against the reference rows. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/updates_layout.h"
#include "backend/ref/ref.h"
#include "problem_text.h"
#include "test.h"

enum { N = 67 };

static const sli_caps invented = {.kind = SLI_DEVICE_CUDA, .invented = true, .compute_capability = 100};

static bool computes(int dtype) {
    return dtype == SL_F32 || dtype == SL_TF32 || dtype == SL_BF16 || dtype == SL_F16 || dtype == SL_F32X3;
}

TEST(cuda_updates_take_their_types) {
    sli_problem norm = problem("norm:n1000_train+globalnorm=0.5"), optim = problem("optim:n1000_train+opt=adam");
    for (int dtype = SL_F32; dtype <= SL_F64; dtype++) {
        sli_why why = {""};
        norm.dtype = optim.dtype = (sl_dtype)dtype;
        CHECK(sli_cuda_norm.eligible(&norm, &invented, &why) == computes(dtype));
        CHECK(sli_cuda_optim.eligible(&optim, &invented, &why) == computes(dtype));
    }
}

TEST(cuda_norm_books_its_slices) {
    sli_problem p = problem("norm:n1_train");
    static const struct {
        int64_t elements;
        size_t slices;
    } cases[] = {{0, 0}, {1, 1}, {4096, 1}, {4097, 2}, {100003, 25}, {INT64_C(5000000000), 1220704}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sli_booking booking;
        p.elements = cases[i].elements;
        sli_cuda_norm.book(&p, &invented, 1, &booking);
        CHECK(booking.scratch_forward == cases[i].slices * sizeof(double));
        CHECK(booking.saved == 0 && booking.packed == 0 && booking.scratch_backward == 0);
    }
}

TEST(cuda_updates_cost_what_they_read) {
    sli_cost cost;
    sli_problem p = problem("optim:n1000_train+opt=adam");
    sli_cuda_optim.cost(&p, &invented, &cost);
    CHECK(cost.bytes == 32000); /* parameter, gradient, two slots: read and written */
    p = problem("norm:n1000_train+globalnorm=1");
    sli_cuda_norm.cost(&p, &invented, &cost);
    CHECK(cost.bytes == 4000);
    p = problem("norm:n1000_train+clipvalue=1");
    sli_cuda_norm.cost(&p, &invented, &cost);
    CHECK(cost.bytes == 8000);
}

/* ------------------------------------------------------------------------------------------------------ formulas -- */
static const sli_kernel *reference(sli_op op) {
    for (const sli_kernel *const *row = sli_ref_kernels; *row; row++)
        if ((*row)->op == op) return *row;
    return NULL;
}

typedef struct update_state {
    float param[N], grad[N], slot0[N], slot1[N];
} update_state;

/* One update of gradients that carry `scale`, by the formulas of the kernel. */
static void update(const sli_problem *p, update_state *s, const sli_scalars *scalars, double squares, double scale) {
    const sli_update_numbers u = sli_update_numbers_of(&p->optimizer, &p->clip, scalars->learning_rate,
                                                       scalars->optimizer_step, squares, scale, isfinite(squares));
    for (int k = 0; k < N && !u.skip; k++)
        sli_update_element(sli_update_rule_of(&p->optimizer), &u, s->grad[k], &s->param[k], &s->slot0[k], &s->slot1[k]);
}

static void compare_updates(const char *text, double scale) {
    const sli_problem p = problem(text);
    update_state got = {0}, expected;
    uint64_t state = test_seed;
    for (int k = 0; k < N; k++) got.param[k] = (float)test_random(&state);
    expected = got;
    for (int step = 1; step <= 5; step++) {
        const sli_scalars scalars = {.learning_rate = 0.03 * step, .optimizer_step = step};
        double squares = 0;
        for (int k = 0; k < N; k++) {
            expected.grad[k] = (float)test_random(&state);
            got.grad[k] = expected.grad[k] * (float)scale;
            squares += (double)expected.grad[k] * (double)expected.grad[k];
        }
        sli_call call = {.problem = p, .scalars = &scalars};
        call.problem.elements = N;
        call.in[SLI_OPTIM_SQUARES] = &squares;
        call.out[SLI_OPTIM_PARAM] = expected.param;
        call.out[SLI_OPTIM_GRAD] = expected.grad;
        call.out[SLI_OPTIM_SLOT0] = expected.slot0;
        call.out[SLI_OPTIM_SLOT1] = expected.slot1;
        update(&p, &got, &scalars, squares, scale);
        reference(SLI_OP_OPTIM)->forward(&call);
        for (int k = 0; k < N; k++) {
            if (fabsf(got.param[k] - expected.param[k]) > 2e-6f)
                test_fail(__FILE__, __LINE__, "%s: step %d, parameter %d: %g, not %g", text, step, k,
                          (double)got.param[k], (double)expected.param[k]);
            CHECK_NEAR((double)got.slot0[k], (double)expected.slot0[k], 2e-6);
            CHECK_NEAR((double)got.slot1[k], (double)expected.slot1[k], 2e-6);
        }
    }
}

TEST(cuda_optimizers_equal_the_reference) {
    static const char *const problems[] = {
        "optim:n67_train",
        "optim:n67_train+decay=0.1",
        "optim:n67_train+momentum=0.9",
        "optim:n67_train+decay=0.1+momentum=0.9+nesterov",
        "optim:n67_train+opt=adam",
        "optim:n67_train+decay=0.1+opt=adam",
        "optim:n67_train+opt=adamw",
        "optim:n67_train+beta1=0.5+beta2=0.9+decay=0.1+opt=adamw",
        "optim:n67_train+opt=rmsprop+rho=0.5",
        "optim:n67_train+decay=0.1+opt=rmsprop",
        "optim:n67_train+globalnorm=0.1+momentum=0.9",
        "optim:n67_train+clipnorm=0.1+opt=adam",
        "optim:n67_train+globalnorm=1000",
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        compare_updates(problems[i], 1);
        compare_updates(problems[i], 65536); /* the loss scale leaves no trace */
    }
}

TEST(cuda_optimizers_skip_what_is_not_finite) {
    const sli_problem p = problem("optim:n67_train+globalnorm=0.1+opt=adam");
    const sli_scalars scalars = {.learning_rate = 0.1, .optimizer_step = 1};
    update_state s = {.param = {1}, .grad = {INFINITY}};
    update(&p, &s, &scalars, INFINITY, 1);
    update(&p, &s, &scalars, NAN, 1);
    CHECK(s.param[0] == 1.0f && s.slot0[0] == 0.0f && s.slot1[0] == 0.0f);
}

/* ---------------------------------------------------------------------------------------------------- loss scale -- */
TEST(cuda_loss_scale_halves_at_once_and_doubles_slowly) {
    sli_scaling s = {.scale = 65536};
    sli_scaling_advance(&s, INFINITY);
    CHECK(s.carried == 65536 && s.scale == 32768 && s.skipped == 1 && s.good == 0);
    sli_scaling_advance(&s, 1.0);
    CHECK(s.carried == 32768 && s.scale == 32768 && s.skipped == 1 && s.good == 1);
    sli_scaling_advance(&s, NAN);
    CHECK(s.scale == 16384 && s.skipped == 2 && s.good == 0);
    for (int i = 0; i < 1999; i++) sli_scaling_advance(&s, 0.0);
    CHECK(s.scale == 16384 && s.good == 1999);
    sli_scaling_advance(&s, 0.0);
    CHECK(s.carried == 16384 && s.scale == 32768 && s.good == 0 && s.skipped == 2);
}

TEST(cuda_loss_scale_stays_a_power_of_two_in_bounds) {
    sli_scaling s = {.scale = 65536};
    for (int i = 0; i < 100; i++) sli_scaling_advance(&s, NAN);
    CHECK(s.scale == SLI_SCALE_LEAST && s.skipped == 100);
    for (int i = 0; i < 100 * 2000; i++) sli_scaling_advance(&s, 1.0);
    CHECK(s.scale == SLI_SCALE_MOST && s.skipped == 100);
}
