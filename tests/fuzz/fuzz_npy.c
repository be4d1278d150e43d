/* Fuzz target: any bytes as an .npy file. What is read has as many bytes as its shape says. */
#include "sluice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sl_array array;
    if (sl_npy_read_memory(NULL, data, size, &array) != SL_OK) return 0;
    static const size_t BYTES[] = {4, 8, 4, 8, 1, 1};
    size_t bytes = BYTES[array.type];
    for (int i = 0; i < array.rank; i++) bytes *= (size_t)array.shape[i];
    if (bytes != array.bytes || bytes > size) __builtin_trap();
    volatile unsigned sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += ((const uint8_t *)array.data)[i];
    (void)sum;
    sl_array_free(&array);
    return 0;
}
