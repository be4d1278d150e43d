/* sluice_interop.h - forward and backward of a model on memory that another library owns, without copies.
 *
 * For callers that keep tensors of their own (PyTorch, JAX, CuPy, another C program): inputs, outputs, parameters and all their
 * gradients stay where they are, on the device of the plan, and on a GPU the work is queued into the caller's stream.
 *
 *     sl_interop_stream(run, stream);                         the caller's cudaStream_t
 *     sl_interop_parameter(params, "rnn1.kernel", &kernel);   once; the memory is borrowed
 *     sl_interop_gradient(run, "rnn1.kernel", &d_kernel);     once; backward adds (+=) to it
 *     sl_interop_forward(run, &call);                         outputs are written
 *     sl_interop_backward(run, d_outputs, d_inputs);          d_inputs are written (=), parameter gradients added (+=)
 *
 * Tensors are described as DLPack does (dmlc/dlpack, version 1): sl_dl_tensor has the memory layout of DLTensor, so that
 * `(const sl_dl_tensor *)&managed->dl_tensor` is right. They must be dense in C order (strides NULL or those), time-major
 * [T][B][features] or [B][features], on the plan's device, aligned to 16 bytes, and float32 (int32 for tokens and lengths), but for
 * bfloat16 or float16, the plan's dtype: of parameters and their gradients where it has narrow_parameters = 1 (each backward rounds what
 * it has added to), of tensors that have T and their gradients where it has narrow_tensors = 1.
 *
 * The plan is made with train = 1 if backward is wanted, without a loss, and with input_gradients = 1 if d_inputs are. Nothing
 * waits: on a GPU the results are there when the stream gets to them. Token ids are not looked at by the host then: one outside
 * the vocabulary makes its row's outputs NaN and gives no gradient. What was borrowed must live until then, parameters and
 * gradients until they are unbound (value NULL) or the params or run is freed. */
#ifndef SLUICE_INTEROP_H
#define SLUICE_INTEROP_H

#include "sluice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* DLPack's device types and type codes that are taken. */
enum { SL_DL_CPU = 1, SL_DL_CUDA = 2 };
enum { SL_DL_INT = 0, SL_DL_FLOAT = 2, SL_DL_BFLOAT = 4 };

typedef struct sl_dl_device {
    int32_t device_type; /* SL_DL_CPU, SL_DL_CUDA */
    int32_t device_id;   /* the N of "cuda:N" */
} sl_dl_device;

typedef struct sl_dl_type {
    uint8_t code, bits; /* SL_DL_FLOAT 32 or 16, SL_DL_BFLOAT 16, SL_DL_INT 32 */
    uint16_t lanes;     /* 1 */
} sl_dl_type;

typedef struct sl_dl_tensor {
    void *data;
    sl_dl_device device;
    int32_t ndim;
    sl_dl_type dtype;
    int64_t *shape, *strides; /* strides in elements; NULL: dense, C order */
    uint64_t byte_offset;
} sl_dl_tensor;

/* From now on the run works in this stream (cudaStream_t), after what it has queued so far. NULL is CUDA's legacy default stream,
 * which is PyTorch's unless it is told otherwise; SL_INTEROP_OWN_STREAM brings back the run's own. While the stream is captured,
 * calls that must send something from the host are refused: a step or seed that is new, full lengths that are left out.
 * SL_ERR_USAGE on devices without streams, while the stream before is captured, and where that is at work and this one is captured. */
#define SL_INTEROP_OWN_STREAM ((void *)-1)
SL_API sl_status sl_interop_stream(sl_run *run, void *stream);
/* Parameter `name` (rows x columns, or its vector) is read from `value` from now on; its owner updates it: sl_run_update and
 * sl_run_step refuse. sl_params_get and _set mean the borrowed memory too, and do not wait for the caller's stream. NULL: the
 * params' own memory counts again, with the values that it had before. Waits for the device: no run of these params may be at
 * work, and values that are still being computed are packed by the first forward with parameters_changed. */
SL_API sl_status sl_interop_parameter(sl_params *params, const char *name, const sl_dl_tensor *value);
/* Backward adds (+=) the parameter's gradient to `gradient`, which has the parameter's shape; NULL: to the run's own
 * accumulators again. The caller zeroes it. */
SL_API sl_status sl_interop_gradient(sl_run *run, const char *name, const sl_dl_tensor *gradient);

typedef struct sl_interop_call {
    int batch, steps;                  /* at most the plan's */
    int training;                      /* dropout and zoneout draw, backward may follow; needs a plan with train = 1 */
    int parameters_changed;            /* borrowed parameters have new values since the last forward: pack them again */
    uint32_t step;                     /* with the seed it keys the random masks */
    const sl_dl_tensor *const *inputs; /* one a model input, in order */
    const sl_dl_tensor *const *outputs; /* one a model output, in order: written (=); it or entries may be NULL */
    const sl_dl_tensor
        *lengths; /* int32 [B], with SL_MASK_LENGTHS; less than 0 is 0, more than steps all; NULL: all full */
} sl_interop_call;
/* SL_ERR_INPUT where a tensor is of another type, elsewhere or not aligned, SL_ERR_SHAPE where its shape or strides do not fit,
 * SL_ERR_USAGE where the plan has a loss, computes f64 or is masked by steps. Kernels are launched one by one, without a
 * recording. */
SL_API sl_status sl_interop_forward(sl_run *run, const sl_interop_call *call);
/* Backward of the last sl_interop_forward, once, which must have been for training: its inputs, and its outputs where they were
 * given, must still hold what they held. d_outputs: one a model output (NULL entries are zero gradients), read only.
 * d_inputs: one a model input, NULL entries are not wanted; may itself be NULL. */
SL_API sl_status sl_interop_backward(sl_run *run, const sl_dl_tensor *const *d_outputs,
                                     const sl_dl_tensor *const *d_inputs);

#ifdef __cplusplus
}
#endif

#endif
