/* Fuzz target: any bytes as a model description. What is read is written, and what is written reads to the same text; it is
 * planned, too, for an invented machine, where shapes and sizes are checked and nothing is allocated. */
#include "sluice.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan(const sl_model *model) {
    sl_plan_options options = {.batch = 3, .steps = 5, .train = 1, .device = "cpu:base"};
    sl_plan *made;
    if (sl_plan_new(model, &options, &made) != SL_OK) return;
    sl_memory memory;
    sl_plan_memory(made, &memory);
    if (!sl_plan_explain(made)) __builtin_trap();
    sl_plan_free(made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sl_model *model, *again;
    const char *text, *same;
    sl_training training;
    (void)!sl_training_from_json((const char *)data, size, &training);
    if (sl_model_from_json(NULL, (const char *)data, size, &model) != SL_OK) return 0;
    if (sl_model_to_json(model, &text) != SL_OK) __builtin_trap();
    if (sl_model_from_json(NULL, text, strlen(text), &again) != SL_OK) __builtin_trap();
    if (sl_model_to_json(again, &same) != SL_OK || strcmp(text, same) != 0) __builtin_trap();
    sl_model_free(again);
    plan(model);
    sl_model_free(model);
    return 0;
}
