/* cuDNN's recurrent kernels as rows, libsluice's side: rules that cuDNN documents, in plain C; on a real GPU cuDNN is asked
 * as well (sli_cudnn_plugin.probe). */
#ifndef SLI_CUDNN_H
#define SLI_CUDNN_H

#include "backend/cuda/plugin.h"

/* cudnn:standard, cudnn:persist_static, cudnn:persist_dynamic, cudnn:small_h for lstm, gru, rnn; NULL-terminated. */
extern const sli_kernel *const sli_cudnn_kernels[];

#endif
