/* NumPy's .npy files, versions 1.0 to 3.0, little-endian, C order. */
#ifndef SLI_NPY_H
#define SLI_NPY_H

#include "io/atomic_file.h"

sl_status sli_npy_read(const sl_allocator *allocator, const char *path, sl_array *array);
sl_status sli_npy_read_memory(const sl_allocator *allocator, const void *bytes, size_t size, sl_array *array);
sl_status sli_npy_write(const char *path, const sl_array *array);
void sli_array_free(sl_array *array);
size_t sli_array_type_bytes(sl_array_type type); /* 0 if it is none */
bool sli_array_is_sound(const sl_array *array);  /* its type, rank, shape, bytes and data go together */

#endif
