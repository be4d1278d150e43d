/* Every problem of tests/problems through sl_check_problem, and proof that the check itself can fail. */
#include "core/rounding.h"
#include "core/status.h"
#include "proof/differences.h"
#include "proof/parity.h"
#include "proof/problem_model.h"
#include "test.h"

static void keep_failures(void *context, const char *text) {
    (void)context;
    if (strstr(text, "FAIL")) test_fail(__FILE__, __LINE__, "%s", text);
}

static void check_line_by(const char *problem, const char *require) {
    sl_plan_options options = {.device = test_device, .require = require};
    sl_status status = sl_check_problem(problem, &options, test_seed, keep_failures, NULL);
    if (status != SL_OK)
        test_fail(__FILE__, __LINE__, "%s: %s: %s", problem, sl_status_name(status), sl_error_detail());
}

static void check_line(const char *problem) {
    check_line_by(problem, NULL);
}

/* Checks one line in `every`, from `first` on; returns the number of problems in the file. */
static int check_file(const char *name, int first, int every) {
    char path[600], line[512];
    int count = 0;
    snprintf(path, sizeof path, "%s/../problems/%s", test_data, name);
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] == 0 || line[0] == '#') continue;
        if (count++ % every == first) check_line(line);
    }
    fclose(file);
    return count;
}

/* The far devices have the CPU's rows in another memory, and address sanitizers look at addresses: what is new there shows in some of
 * the problems. Of the quick ones "far" and "far:wide" share all between them. */
static bool is_far(void) {
    return strncmp(test_device, "far", 3) == 0;
}

TEST(check_quick_problems) {
    const int every = is_far() ? 2 : TEST_ONE_IN(4);
    CHECK(check_file("quick.txt", strcmp(test_device, "far:wide") == 0, every) > 100);
}

TEST(check_bf16_problems) {
    CHECK(check_file("bf16.txt", 0, TEST_ONE_IN(2)) > 5);
}

/* What gates that stay open err by adds up over time: cuDNN's c is 0.4 off after 1000 steps (docs/GPU.md). */
TEST(check_bf16_gates_that_stay_open) {
    check_line_by("lstm:b2_t1000_i3_h8_bf16+forget=10", test_on_gpu() ? "cuda:" : NULL);
}

/* A stack has states of every layer and direction, and a problem may have a thousand layers. */
TEST(check_stacks_of_many_states) {
    check_line("lstm:l20_b1_t2_i3_h4_bi_train");
    check_line("gru:l70_b1_t2_i3_h2_bi");
}

TEST(check_i8_problems) {
    if (test_on_gpu()) test_skip("there are kernels for i8 on CPUs alone");
    CHECK(check_file("i8.txt", 0, 1) > 20);
}

/* Combinations of options: all on CPUs and GPUs. */
TEST_SLOW(check_all_problems) {
    CHECK(check_file("full.txt", 0, is_far() ? 11 : TEST_ONE_IN(11)) > 400);
}

/* ----------------------------------------------------------------------------------------------- the proof can fail -- */

static void count_lines(void *context, const char *text) {
    (void)text;
    ++*(int *)context;
}

TEST(check_differences_find_a_wrong_gradient) {
    if (test_on_gpu()) test_skip("differences are taken on the CPU");
    sli_problem problem;
    sl_model *model;
    sl_plan_options options = {.input_gradients = 1, .device = test_device};
    sli_subject *subject;
    int lines = 0;
    sli_report report = {.line = count_lines, .context = &lines};
    REQUIRE_OK(sli_problem_parse("gru:b2_t3_i3_h4_train", &problem));
    REQUIRE_OK(sli_problem_model(NULL, &problem, true, &model, &options));
    REQUIRE_OK(sli_subject_new(model, &options, problem.mask, test_seed, &subject));
    REQUIRE_OK(sli_check_differences(subject, 1e8, &report));
    CHECK(report.failures == 0 && report.findings == lines && lines >= 6);

    /* Parity sees a parameter that differs in one value by a ten-thousandth. */
    sli_trial exact, wrong;
    sli_results expected, results;
    sli_trial_call call = {.training = true};
    REQUIRE_OK(sli_results_new(subject, true, &expected));
    REQUIRE_OK(sli_results_new(subject, true, &results));
    REQUIRE_OK(sli_trial_open(subject, &subject->options, &exact));
    REQUIRE_OK(sli_trial_run(&exact, &call, &expected));
    subject->params[0].values[0] += 1e-4;
    REQUIRE_OK(sli_trial_open(subject, &subject->options, &wrong));
    REQUIRE_OK(sli_trial_run(&wrong, &call, &results));
    sli_compare(&results, &expected, NULL, sli_tolerance_of(exact.plan, SL_F32), "ref", "test", &report);
    if (report.failures == 0 || strncmp(report.first, "ref: test: ", 11) != 0)
        test_fail(__FILE__, __LINE__, "%d failures, the first is \"%s\"", report.failures, report.first);
    int before = report.failures;
    sli_compare_bits(&results, &expected, "ref", "test", &report);
    CHECK(report.failures == before + 1);

    /* So does a benchmark's comparison of kernels, though both may err; nor does it take a NaN for a number. */
    char first[256];
    const sli_tolerance tolerance = sli_tolerance_of(exact.plan, SL_F32);
    CHECK(sli_apart(&expected, &expected, tolerance, tolerance, first) == 0 && first[0] == 0);
    CHECK(sli_apart(&results, &expected, tolerance, tolerance, first) > 1 && strstr(first, "tolerance"));
    expected.parts[0].values[0] = NAN;
    CHECK(sli_apart(&expected, &expected, tolerance, tolerance, first) == HUGE_VAL);
    sli_trial_close(&wrong);
    sli_trial_close(&exact);
    sli_subject_free(subject);
    sl_model_free(model);
}

/* Clipped cells within 2^-12 of the clip: operands that are rounded, cut off or neither (as in products of few rows) give gradients a
 * term apart, more than rounding explains; not more than the first two are from each other. */
TEST(check_allows_what_tf32_operands_do_on_kinks) {
    const char *text = "lstm:b3_t3_i5_h650_bi_tf32_train+act=relu+clip=0.4+mask=left+rdrop=0.3+zoneout_c=0.15";
    const sl_dtype operands[3] = {SL_TF32, SLI_TF32_CUT, SL_DTYPE_DEFAULT};
    sli_problem p;
    sl_model *model;
    sl_plan_options options = {0};
    sli_subject *subject;
    sli_results results[3];
    sli_tolerance tolerance = {0, 0};
    sli_report alone = {0}, both = {0};
    REQUIRE_OK(sli_problem_parse(text, &p));
    REQUIRE_OK(sli_problem_model(NULL, &p, true, &model, &options));
    options.device = "cuda:sm_90";
    options.input_gradients = 1;
    REQUIRE_OK(sli_subject_new(model, &options, p.mask, 1, &subject));
    for (int k = 0; k < 3; k++) {
        sli_trial trial;
        sli_trial_call call = {.training = true};
        REQUIRE_OK(sli_trial_open_reference(subject, operands[k], &trial));
        REQUIRE_OK(sli_results_new(subject, true, &results[k]));
        REQUIRE_OK(sli_trial_run(&trial, &call, &results[k]));
        tolerance = sli_tolerance_of(trial.plan, SL_TF32);
        sli_trial_close(&trial);
    }
    sli_compare(&results[2], &results[0], NULL, tolerance, "exact", "test", &alone);
    sli_compare(&results[2], &results[0], &results[1], tolerance, "exact", "test", &both);
    CHECK(alone.failures > 0);
    CHECK(both.findings == alone.findings && both.failures == 0);
    /* References that differ by what rounding explains allow no more than one of them. */
    sli_report near = {0}, far = {0};
    for (int k = 0; k < results[0].count; k++) {
        const sli_part *from = &results[0].parts[k];
        const bool output = from->kind == SLI_PART_OUTPUT;
        const double numbers = sli_numbers_that_count(from->values, from->count);
        const double bound =
            fmin(0.49, sli_tolerance_of_few(numbers) * (output ? tolerance.output : tolerance.gradient));
        for (size_t i = 0; i < from->count && from->kind != SLI_PART_LOSS; i++) {
            results[1].parts[k].values[i] = (1 + 0.9 * bound) * from->values[i];
            results[2].parts[k].values[i] = (1 + 1.5 * bound) * from->values[i];
        }
    }
    sli_compare(&results[1], &results[0], NULL, tolerance, "near", "test", &near);
    sli_compare(&results[2], &results[0], &results[1], tolerance, "far", "test", &far);
    CHECK(near.failures == 0 && far.findings == near.findings && far.failures > far.findings / 2);
    sli_subject_free(subject);
    sl_model_free(model);
}

/* Numbers of one size all count; zeros do not, nor what is small beside a few; sizes far from 1 change nothing. */
TEST(check_counts_the_numbers_that_decide) {
    enum { COUNT = 1000 };
    double values[COUNT];
    const double scales[] = {1, 1e-200, 1e200};
    for (int s = 0; s < 3; s++) {
        for (int i = 0; i < COUNT; i++) values[i] = i % 2 ? scales[s] : -scales[s];
        CHECK(sli_numbers_that_count(values, COUNT) == COUNT);
        for (int i = 0; i < COUNT; i++) values[i] = i < 4 ? scales[s] : scales[s] * 1e-6;
        CHECK(fabs(sli_numbers_that_count(values, COUNT) - 12) < 1e-3); /* four of one size are as twelve normal ones */
        for (int i = 0; i < COUNT; i++) values[i] = i < 100 ? scales[s] * (1 + i % 3) : 0;
        CHECK(sli_numbers_that_count(values, COUNT) < 300 && sli_numbers_that_count(values, COUNT) > 150);
    }
    for (int i = 0; i < COUNT; i++) values[i] = 0;
    CHECK(sli_numbers_that_count(values, COUNT) == COUNT && sli_numbers_that_count(values, 0) == 0);
    CHECK(sli_tolerance_of_few(0) == 1 && sli_tolerance_of_few(32) == 2);
}

/* However few the numbers are: zeros and halves of what is right fail. */
TEST(check_lets_no_zeros_pass) {
    const char *text = "rnn:b1_t16_i1_h1_bf16_train+rdrop=0.3";
    const double parts[] = {0, 0.5, -1};
    sli_problem p;
    sl_model *model;
    sl_plan_options options = {0};
    sli_subject *subject;
    sli_results wanted, wrong;
    sli_trial trial;
    sli_trial_call call = {.training = true};
    REQUIRE_OK(sli_problem_parse(text, &p));
    REQUIRE_OK(sli_problem_model(NULL, &p, true, &model, &options));
    options.input_gradients = 1;
    REQUIRE_OK(sli_subject_new(model, &options, p.mask, 1, &subject));
    REQUIRE_OK(sli_trial_open_reference(subject, SL_BF16, &trial));
    REQUIRE_OK(sli_results_new(subject, true, &wanted));
    REQUIRE_OK(sli_results_new(subject, true, &wrong));
    REQUIRE_OK(sli_trial_run(&trial, &call, &wanted));
    REQUIRE_OK(sli_trial_run(&trial, &call, &wrong));
    for (int i = 0; i < 3; i++) {
        sli_report report = {0};
        int not_zero = 0; /* all paths to h0 were dropped */
        for (int k = 0; k < wanted.count; k++) {
            const sli_part *part = &wanted.parts[k];
            bool zero = true;
            for (size_t n = 0; n < part->count; n++) {
                zero &= part->values[n] == 0;
                wrong.parts[k].values[n] = parts[i] * part->values[n];
            }
            not_zero += !zero;
        }
        sli_compare(&wrong, &wanted, NULL, sli_tolerance_of(trial.plan, SL_BF16), "wrong", "test", &report);
        CHECK(not_zero >= 5 && report.failures == not_zero);
    }
    sli_trial_close(&trial);
    sli_subject_free(subject);
    sl_model_free(model);
}

static void count_moved(void *context, const char *line) {
    *(int *)context += strstr(line, "which rounding moves by") != NULL;
}

/* States that part from each other, small sums, a cell next to a clip: what rounding makes of them is no fault of a kernel's. */
TEST(check_allows_what_rounding_makes_of_a_problem) {
    static const struct {
        const char *text;
        uint64_t seed;
    } CASES[] = {{"lstm:l2_b101_t133_i1_h2_train+bias=none+forget=1.5+peephole", 110}, {"lstm:b3_t5_i4_h8_train", 1}};
    int moved[2] = {0};
    for (int i = 0; i < 2; i++)
        REQUIRE_OK(sl_check_problem(CASES[i].text, &(sl_plan_options){.device = test_device}, CASES[i].seed,
                                    count_moved, &moved[i]));
    CHECK(moved[0] > 0 && moved[1] == 0);
}

/* Where a problem is none of these, what is allowed stays what it was: the reference that rounding has moved is within it. */
TEST(check_moves_no_more_than_is_allowed) {
    static const char *const TEXTS[] = {"lstm:b5_t9_i7_h17_train",
                                        "lstm:b9_t3_i16_h65_p33_train",
                                        "lstm:b3_t5_i7_h11_p1_train",
                                        "gru:b3_t9_i5_h11_bf16_train+bias=double",
                                        "rnn:b7_t5_i3_h9_f16_train",
                                        "gru:b4_t6_i9_h13_tf32_train+reset=before",
                                        "lstm:l2_b3_t7_i5_h12_p5_bi_bf16_train+lengths"};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        sli_problem problem;
        sl_model *model;
        sl_plan_options options = {.input_gradients = 1, .device = "cpu"};
        sli_subject *subject;
        sli_trial trial;
        sli_results results[2];
        const sli_trial_call call = {.training = true};
        sli_report report = {0};
        REQUIRE_OK(sli_problem_parse(TEXTS[i], &problem));
        REQUIRE_OK(sli_problem_model(NULL, &problem, true, &model, &options));
        REQUIRE_OK(sli_subject_new(model, &options, problem.mask, test_seed, &subject));
        for (int moved = 0; moved <= 4; moved++) {
            sli_results *to = &results[moved > 0];
            REQUIRE_OK(sli_results_new(subject, true, to));
            REQUIRE_OK(moved > 0 ? sli_trial_open_moved(subject, moved, &trial)
                                 : sli_trial_open_reference(subject, subject->operands, &trial));
            REQUIRE_OK(sli_trial_run(&trial, &call, to));
            if (moved > 0)
                sli_compare(to, &results[0], NULL, sli_tolerance_of(trial.plan, problem.dtype), "moved", TEXTS[i],
                            &report);
            if (moved > 0) sli_compare_bits(to, &results[0], "moved", "they are others", &report);
            sli_trial_close(&trial);
        }
        if (report.failures != 4) /* the bits */
            test_fail(__FILE__, __LINE__, "%d failures, the first is \"%s\"", report.failures, report.first);
        sli_subject_free(subject);
        sl_model_free(model);
    }
}

TEST(check_report_counts_and_keeps_the_first_failure) {
    int lines = 0;
    sli_report report = {.line = count_lines, .context = &lines};
    sli_report_add(&report, "ref", 0, 0, "exact");
    sli_report_add(&report, "ref", NAN, 1, "number %d", 7);
    sli_report_add(&report, "ref", 2, 1, "other");
    sli_report_note(&report, "ref", "a note");
    CHECK(report.findings == 3 && report.failures == 2 && lines == 4);
    CHECK(strstr(report.first, "ref: number 7: error") == report.first);
}

TEST(check_problem_says_what_is_wrong) {
    sl_plan_options options = {.device = test_device, .require = "nobody"};
    CHECK_FAILS(sl_check_problem("lstm:b1_t1_h1", NULL, 1, NULL, NULL), SL_ERR_INPUT, "field iN");
    CHECK_FAILS(sl_check_problem(NULL, NULL, 1, NULL, NULL), SL_ERR_USAGE, "problem is NULL");
    CHECK_FAILS(sl_check_problem("flip:b1_t2_h3", NULL, 1, NULL, NULL), SL_ERR_INPUT, "part of a recurrent layer");
    CHECK_FAILS(sl_check_problem("lstm:b1_t1_i1_h1", &options, 1, NULL, NULL), SL_ERR_NO_KERNEL, "nobody");
}

/* ----------------------------------------------------------------------------------------------- models of problems -- */

TEST(problem_model_has_the_layers_and_options_of_the_string) {
    sl_model *model;
    sl_plan_options options = {0};
    sl_plan *plan;
    REQUIRE_OK(sl_model_from_problem(NULL, "gru:l2_b3_t5_i4_h6_bi_train+drop=0.5+lengths+merge=sum", &model, &options));
    CHECK(options.batch == 3 && options.steps == 5 && options.train && options.masking == SL_MASK_LENGTHS);
    CHECK(options.dtype == SL_F32);
    options.device = test_device;
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    const char *text = sl_plan_explain(plan);
    CHECK(strstr(text, "rnn1") && strstr(text, "rnn2") && strstr(text, "drop1") && strstr(text, "+lengths"));
    sl_plan_free(plan);
    sl_model_free(model);
    CHECK_FAILS(sl_model_from_problem(NULL, "gru", &model, NULL), SL_ERR_INPUT, "':'");
    CHECK(model == NULL);
}

/* ------------------------------------------------------------------------------------------------------- digests -- */

static void keep_digest(void *context, const sl_finding *finding) {
    unsigned long long *digests = context; /* of the first kernel */
    if (finding->digest && !*digests) *digests = finding->digest;
}

TEST(check_gives_a_digest_of_the_results) {
    unsigned long long first = 0, again = 0, other = 0;
    sl_plan_options options = {.device = test_device};
    REQUIRE_OK(sl_check_findings("gru:b2_t3_i3_h4_train", &options, 1, keep_digest, &first));
    REQUIRE_OK(sl_check_findings("gru:b2_t3_i3_h4_train", &options, 1, keep_digest, &again));
    REQUIRE_OK(sl_check_findings("gru:b2_t3_i3_h4_train", &options, 2, keep_digest, &other));
    CHECK(first && first == again && first != other);
}

/* Arrays of more than 2^21 numbers are drawn by several threads: each number comes from its index. */
TEST(check_draws_large_arrays_twice_the_same) {
    sli_problem problem;
    sl_model *model;
    sl_plan_options options = {.device = test_device, .dtype = SL_F64};
    sli_subject *subject;
    REQUIRE_OK(sli_problem_parse("rnn:b1_t1_i3001_h701", &problem));
    REQUIRE_OK(sli_problem_model(NULL, &problem, true, &model, &options));
    REQUIRE_OK(sli_subject_new(model, &options, problem.mask, 5, &subject));
    const sli_subject_array *kernel = &subject->params[0];
    REQUIRE(kernel->count == (size_t)3001 * 701);
    double *copy = malloc(kernel->count * sizeof(double));
    REQUIRE(copy != NULL);
    memcpy(copy, kernel->values, kernel->count * sizeof(double));
    sli_subject_draw(subject, problem.mask, 6);
    CHECK(memcmp(copy, kernel->values, kernel->count * sizeof(double)) != 0);
    sli_subject_draw(subject, problem.mask, 5);
    CHECK(memcmp(copy, kernel->values, kernel->count * sizeof(double)) == 0);
    size_t zeros = 0;
    for (size_t k = 0; k < kernel->count; k++) zeros += copy[k] == 0;
    CHECK(zeros == 0);
    free(copy);
    sli_subject_free(subject);
    sl_model_free(model);
}
