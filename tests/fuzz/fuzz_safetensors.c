/* Fuzz target: any bytes as a model file. What opens must be readable to its last byte, and its description parseable. */
#include "sluice.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sl_file *file;
    if (sl_file_open_memory(NULL, data, size, &file) != SL_OK) return 0;
    volatile unsigned sum = 0; /* so that every byte is really read */
    for (int i = 0; i < sl_file_tensor_count(file); i++) {
        sl_tensor_info info;
        if (sl_file_tensor(file, i, &info) != SL_OK) __builtin_trap();
        for (size_t k = 0; k < info.bytes; k++) sum += ((const uint8_t *)info.data)[k];
        if (strcmp(info.name, "") != 0 && sl_file_find(file, info.name) != i) __builtin_trap();
    }
    const char *key, *value;
    for (int i = 0; (key = sl_file_metadata_at(file, i, &value)); i++) sum += (unsigned)(strlen(key) + strlen(value));
    (void)sum;
    sl_model *model;
    if (sl_file_model(file, &model) == SL_OK) sl_model_free(model);
    sl_file_close(file);
    return 0;
}
