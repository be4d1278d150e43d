/* A program outside the tree: it must build and run against the installed package, however it finds it. */
#include <sluice.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    sl_model *model = NULL;
    sl_plan *plan = NULL;
    sl_plan_options options = {.device = "cpu"};
    sl_status status = sl_model_from_problem(NULL, "lstm:b2_t3_i4_h5", &model, &options);
    if (status == SL_OK) status = sl_plan_new(model, &options, &plan);
    if (status != SL_OK) {
        fprintf(stderr, "%s: %s\n", sl_status_text(status), sl_error_detail());
        return sl_status_exit_code(status);
    }
    sl_memory memory;
    sl_plan_memory(plan, &memory);
    char version[64];
    snprintf(version, sizeof version, "%d.%d.%d", SL_VERSION_MAJOR, SL_VERSION_MINOR, SL_VERSION_PATCH);
    int right = strcmp(version, sl_version()) == 0 && memory.params_block > 0;
    printf("sluice %s, %zu bytes of parameters\n", sl_version(), memory.params_block);
    sl_plan_free(plan);
    sl_model_free(model);
    return right ? 0 : 1;
}
