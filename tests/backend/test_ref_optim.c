/* The reference gradient norm and optimizers against their formulas, written here element by element in double. */
#include "backend/ref/ref.h"
#include "test.h"

enum { N = 5 };

typedef struct optim_case {
    sli_problem problem;
    sli_scalars scalars;
    double param[N], grad[N], slot0[N], slot1[N], squares;
} optim_case;

static const sli_kernel *find(sli_op op) {
    for (const sli_kernel *const *row = sli_ref_kernels; *row; row++)
        if ((*row)->op == op) return *row;
    return NULL;
}

static void start(optim_case *test, const char *problem) {
    memset(test, 0, sizeof *test);
    REQUIRE_OK(sli_problem_parse(problem, &test->problem));
    for (int k = 0; k < N; k++) test->param[k] = 0.3 * k - 0.5;
}

static double gradient(int step, int k) {
    return sin(step * 3.0 + k) * (k + 1);
}

static void update(optim_case *test, int step, double learning_rate) {
    sli_call call = {.problem = test->problem, .scalars = &test->scalars};
    test->scalars.learning_rate = learning_rate;
    test->scalars.optimizer_step = step;
    for (int k = 0; k < N; k++) test->grad[k] = gradient(step, k);
    call.out[SLI_OPTIM_PARAM] = test->param;
    call.out[SLI_OPTIM_GRAD] = test->grad;
    int slots = sli_optimizer_slots(&test->problem.optimizer);
    if (slots > 0) call.out[SLI_OPTIM_SLOT0] = test->slot0;
    if (slots > 1) call.out[SLI_OPTIM_SLOT1] = test->slot1;
    call.in[SLI_OPTIM_SQUARES] = &test->squares;
    find(SLI_OP_OPTIM)->forward(&call);
    for (int k = 0; k < N; k++) CHECK(test->grad[k] == 0);
}

TEST(ref_sgd) {
    const char *problems[] = {"optim:n5_f64+opt=sgd", "optim:n5_f64+decay=0.1+momentum=0.9+opt=sgd",
                              "optim:n5_f64+momentum=0.9+nesterov+opt=sgd"};
    for (int form = 0; form < 3; form++) {
        optim_case test;
        double p[N], m[N] = {0};
        start(&test, problems[form]);
        memcpy(p, test.param, sizeof p);
        for (int step = 1; step <= 4; step++) {
            update(&test, step, 0.1);
            for (int k = 0; k < N; k++) {
                double g = gradient(step, k) + (form == 1 ? 0.1 * p[k] : 0);
                m[k] = 0.9 * m[k] + g;
                p[k] -= 0.1 * (form == 0 ? g : form == 1 ? m[k] : g + 0.9 * m[k]);
                CHECK_NEAR(test.param[k], p[k], 1e-14);
            }
        }
    }
}

TEST(ref_adam) {
    const char *problems[] = {"optim:n5_f64+decay=0.1+opt=adam", "optim:n5_f64+decay=0.1+opt=adamw",
                              "optim:n5_f64+opt=adamw", "optim:n5_f64+beta1=0.8+beta2=0.95+epsilon=0.001+opt=adam"};
    const double decay[] = {0.1, 0.1, 0.01, 0};
    for (int form = 0; form < 4; form++) {
        optim_case test;
        double p[N], m[N] = {0}, v[N] = {0};
        double b1 = form == 3 ? 0.8 : 0.9, b2 = form == 3 ? 0.95 : 0.999, epsilon = form == 3 ? 0.001 : 1e-8;
        start(&test, problems[form]);
        memcpy(p, test.param, sizeof p);
        for (int step = 1; step <= 4; step++) {
            update(&test, step, 0.1);
            for (int k = 0; k < N; k++) {
                double g = gradient(step, k);
                if (form == 1 || form == 2)
                    p[k] -= 0.1 * decay[form] * p[k];
                else
                    g += decay[form] * p[k];
                m[k] = b1 * m[k] + (1 - b1) * g;
                v[k] = b2 * v[k] + (1 - b2) * g * g;
                p[k] -= 0.1 * (m[k] / (1 - pow(b1, step))) / (sqrt(v[k] / (1 - pow(b2, step))) + epsilon);
                CHECK_NEAR(test.param[k], p[k], 1e-13);
            }
        }
    }
}

TEST(ref_rmsprop) {
    optim_case test;
    double p[N], v[N] = {0};
    start(&test, "optim:n5_f64+decay=0.1+opt=rmsprop+rho=0.95");
    memcpy(p, test.param, sizeof p);
    for (int step = 1; step <= 4; step++) {
        update(&test, step, 0.01);
        for (int k = 0; k < N; k++) {
            double g = gradient(step, k) + 0.1 * p[k];
            v[k] = 0.95 * v[k] + 0.05 * g * g;
            p[k] -= 0.01 * g / (sqrt(v[k]) + 1e-8);
            CHECK_NEAR(test.param[k], p[k], 1e-14);
        }
    }
}

/* A norm above the limit scales the gradient to it, one below leaves it alone. */
TEST(ref_clip_by_norm) {
    const char *problems[] = {"optim:n5_f64+clipnorm=2+opt=sgd", "optim:n5_f64+globalnorm=2+opt=sgd"};
    for (int form = 0; form < 4; form++) {
        optim_case test;
        start(&test, problems[form & 1]);
        test.squares = form < 2 ? 16 : 3.9;
        update(&test, 1, 1);
        for (int k = 0; k < N; k++)
            CHECK_NEAR(test.param[k], 0.3 * k - 0.5 - gradient(1, k) * (form < 2 ? 0.5 : 1), 1e-14);
    }
}

TEST(ref_norm_and_clip_by_value) {
    enum { COUNT = 10000 };
    float *g = malloc(COUNT * sizeof *g);
    REQUIRE(g != NULL);
    for (int clip = 0; clip < 2; clip++) {
        sli_call call = {0};
        double squares = -1, total = 0, sum = 0;
        REQUIRE_OK(sli_problem_parse(clip ? "norm:n10000+clipvalue=0.25" : "norm:n10000", &call.problem));
        for (int k = 0; k < COUNT; k++) {
            g[k] = (float)sin(k);
            double value = g[k];
            sum += value * value;
            if (k % 4096 == 4095 || k == COUNT - 1) total += sum, sum = 0;
        }
        call.out[SLI_NORM_GRAD] = g;
        call.out[SLI_NORM_SQUARES] = &squares;
        find(SLI_OP_NORM)->forward(&call);
        CHECK(squares == total);
        for (int k = 0; k < COUNT; k++)
            CHECK((double)g[k] == (clip ? fmax(-0.25, fmin(0.25, (double)(float)sin(k))) : (double)(float)sin(k)));
    }
    free(g);
}
