/* The `far` device: the CPU's kernels behind the manners of a GPU, for tests. Its memory cannot be read or written by the host
 * outside a kernel (PROT_NONE: a stray access is a segmentation fault), and its work is queued and runs late: when the host
 * downloads or waits, or when the queue is full. What passes on it needs nothing but the device interface. */
#ifndef SLI_FAR_H
#define SLI_FAR_H

#include "core/device.h"

extern const sli_device_ops sli_far_device;
/* The same device under another name has rows that take stacks of layers and both directions at once (wide.c). */
#define SLI_FAR_WIDE "far:wide"
extern const sli_kernel *const sli_far_kernels[];

#endif
