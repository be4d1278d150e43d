/* Status codes, texts, exit codes; the sentence of the last failure. */
#include "core/status.h"
#include "test.h"

#include <pthread.h>

TEST(status_numbers_are_pinned) {
    CHECK(SL_OK == 0);
    CHECK(SL_ERR_INTERNAL == 1);
    CHECK(SL_ERR_SHAPE == 6);
    CHECK(SL_ERR_NO_KERNEL == 8);
    CHECK(SL_ERR_CANCELLED == 14);
}

TEST(status_has_name_text_and_exit_code) {
    CHECK(strcmp(sl_status_name(SL_ERR_SHAPE), "SL_ERR_SHAPE") == 0);
    CHECK(strcmp(sl_status_text(SL_ERR_SHAPE), "shapes do not fit") == 0);
    CHECK(sl_status_exit_code(SL_OK) == 0);
    CHECK(sl_status_exit_code(SL_ERR_CHECK) == 1);
    CHECK(sl_status_exit_code(SL_ERR_USAGE) == 2);
    CHECK(sl_status_exit_code(SL_ERR_FILE) == 3);
    CHECK(sl_status_exit_code(SL_ERR_NO_KERNEL) == 4);
    CHECK(sl_status_exit_code(SL_ERR_MEMORY_LIMIT) == 5);
    CHECK(sl_status_exit_code(SL_ERR_IO) == 6);
    CHECK(sl_status_exit_code(SL_ERR_DEVICE) == 7);
    CHECK(sl_status_exit_code(SL_ERR_NUMBERS) == 8);
}

TEST(status_unknown_number_is_internal) {
    sl_status unknown = (sl_status)99;
    CHECK(strcmp(sl_status_name(unknown), "unknown status") == 0);
    CHECK(strcmp(sl_status_text(unknown), "unknown status") == 0);
    CHECK(sl_status_exit_code(unknown) == 1);
}

TEST(status_detail_and_context) {
    CHECK_FAILS(sli_fail(SL_ERR_INPUT, "row %d is short", 3), SL_ERR_INPUT, "row 3 is short");
    CHECK_FAILS(sli_fail_context(SL_ERR_INPUT, "file %s", "a.npy"), SL_ERR_INPUT, "file a.npy: row 3 is short");
    /* The old detail may be an argument of the new one. */
    sli_fail(SL_ERR_INPUT, "again: %s", sl_error_detail());
    CHECK(strcmp(sl_error_detail(), "again: file a.npy: row 3 is short") == 0);
    CHECK_FAILS(sli_fail_memory("the plan", 4096), SL_ERR_OUT_OF_MEMORY, "4096 bytes for the plan");
    sli_clear_error();
    CHECK(sl_error_detail()[0] == 0);
}

TEST(status_long_detail_is_cut_visibly) {
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    sli_fail(SL_ERR_INPUT, "%s", text);
    size_t length = strlen(sl_error_detail());
    CHECK(length > 500 && length < sizeof text);
    CHECK(strcmp(sl_error_detail() + length - 3, "...") == 0);
    sli_fail_context(SL_ERR_INPUT, "%s", "front");
    CHECK(strncmp(sl_error_detail(), "front: xxx", 10) == 0);
    CHECK(strlen(sl_error_detail()) == length);
    sli_fail_context(SL_ERR_INPUT, "%s", text);
    CHECK(strlen(sl_error_detail()) == length);
}

static void *fail_elsewhere(void *seen) {
    *(size_t *)seen = strlen(sl_error_detail());
    sli_fail(SL_ERR_IO, "elsewhere");
    return NULL;
}

TEST(status_detail_belongs_to_its_thread) {
    sli_fail(SL_ERR_INPUT, "here");
    pthread_t thread;
    size_t seen = 1;
    REQUIRE(pthread_create(&thread, NULL, fail_elsewhere, &seen) == 0);
    pthread_join(thread, NULL);
    CHECK(seen == 0);
    CHECK(strcmp(sl_error_detail(), "here") == 0);
}

static sl_status try_positive(int value) {
    SLI_FAIL_IF(value < 0, SL_ERR_INPUT, "%d is negative", value);
    return SL_OK;
}

static sl_status try_both(int a, int b, int *reached) {
    sl_status status;
    SLI_TRY(try_positive(a));
    *reached = 1;
    SLI_TRY_GOTO(end, try_positive(b));
    *reached = 2;
end:
    return status;
}

TEST(status_macros_leave_at_the_first_failure) {
    int reached = 0;
    CHECK_FAILS(try_both(-1, 1, &reached), SL_ERR_INPUT, "-1 is negative");
    CHECK(reached == 0);
    CHECK_FAILS(try_both(1, -2, &reached), SL_ERR_INPUT, "-2 is negative");
    CHECK(reached == 1);
    CHECK(try_both(1, 2, &reached) == SL_OK);
    CHECK(reached == 2);
}

TEST(status_detail_holds_no_control_characters) {
    sl_vocabulary *vocabulary;
    CHECK_FAILS(sl_vocabulary_from_json(NULL, "{\x1b[2J", &vocabulary), SL_ERR_INPUT, "?");
    for (const char *c = sl_error_detail(); *c; c++) CHECK((unsigned char)*c >= ' ' && *c != 0x7f);
    sl_file *file;
    CHECK_FAILS(sl_file_open(NULL, "no\nfile\x7f\xc3\xa9", &file), SL_ERR_FILE, "no file?\xc3\xa9");
}

TEST(status_of_a_failure_goes_with_a_null_pointer) {
    sl_params *params = (sl_params *)&params;
    sl_run *run = (sl_run *)&run;
    sl_model *model = (sl_model *)&model;
    CHECK_FAILS(sl_params_new(NULL, &params), SL_ERR_USAGE, "plan or params");
    CHECK_FAILS(sl_run_new(NULL, NULL, &run), SL_ERR_USAGE, "plan, params or run");
    CHECK_FAILS(sl_model_from_problem(NULL, NULL, &model, NULL), SL_ERR_USAGE, "problem and model");
    CHECK(!params && !run && !model);
}

TEST(status_of_nothing_is_nothing) {
    sl_memory memory = {.params_block = 1};
    sl_plan_memory(NULL, &memory);
    CHECK(memory.params_block == 0);
    CHECK(!sl_plan_explain(NULL) && !sl_plan_explain_json(NULL) && !sl_plan_choices(NULL));
    CHECK(!sl_plan_kernels(NULL) && !sl_plan_notes(NULL) && !sl_plan_device(NULL));
    CHECK(sl_plan_threads(NULL) == 0 && sl_plan_flops(NULL) == 0);
    CHECK(sl_params_count(NULL) == 0 && !sl_params_name(NULL, 0, NULL, NULL));
}
