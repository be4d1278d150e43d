/* The `far` device: the CPU's kernels behind the manners of a GPU, for tests. Its memory cannot be read or written by the host
 * outside a kernel (PROT_NONE: a stray access is a segmentation fault), and its work is queued and runs late: when the host
 * downloads or waits, or when the queue is full. What passes on it needs nothing but the device interface. */
#ifndef SLI_FAR_H
#define SLI_FAR_H

#include "core/device.h"

extern const sli_device_ops sli_far_device;
/* The same device under another name has rows that take stacks of layers and both directions at once (wide.c). */
#define SLI_FAR_WIDE "far:wide"
/* And under this one rows that write fresh gradients, as those of far:wide do too (fresh.c). */
#define SLI_FAR_FRESH "far:fresh"
extern const sli_kernel *const sli_far_kernels[];
extern const sli_kernel sli_far_fresh_lstm, sli_far_fresh_gru, sli_far_fresh_rnn, sli_far_fresh_dense;
const sli_kernel *sli_far_reference(sli_op op);
/* Makes the fresh gradients of a call of one part zero. */
void sli_far_zero_fresh(const sli_call *call);

#endif
