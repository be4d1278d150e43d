/* The CPU's rows, in order of preference. */
#include "backend/cpu/cpu.h"

const sli_kernel *const sli_cpu_kernels[] = {NULL};
