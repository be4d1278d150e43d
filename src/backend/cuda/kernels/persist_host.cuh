/* cuda:cluster and cuda:grid, the host's side in the plug-in: what its files share. */
#ifndef SLI_CUDA_PERSIST_HOST_CUH
#define SLI_CUDA_PERSIST_HOST_CUH

#include "backend/cuda/kernels/persist_args.h"
#include "backend/cuda/kernels/step.cuh"
#include "backend/cuda/persist_overlap.h"

/* A call: its directions as ways of cuda:step whose memory is laid out by persist_layout.h. */
typedef struct persist_call {
    const sli_call *call;
    sli_queue *queue;
    sli_persist_kind kind;
    sli_persist_pair pair;
    const sli_persist_geometry *geometry; /* of this pass */
    sli_persist_packed packed;
    sli_persist_scratch scratch;
    sli_persist_saved saved;
    step_way ways[2];
    step_way cells[2]; /* what the recurrence sees of them: the same, or, where a projection is folded, that of m */
    bool folds;        /* a projection is folded */
    int directions;
    int chunks_of_span, chunks_of_piece;
    int launches; /* of forward so far */
    int span_at[2]; /* lowest step of a direction's span */
} persist_call;

/* Backward of cuda:step. */
extern "C" void sli_gpu_step_backward(const sli_call *call);

/* false: the queue has failed. */
bool sli_persist_enter(const sli_call *call, sli_persist_kind kind, bool backward, persist_call *persist);
/* The span of chunks first .. end - 1, counted in the order that forward processes them. */
void sli_persist_enter_span(persist_call *persist, int first, int end);
/* Chunks first .. end - 1 of the span, launch number `order` of it, as a call of their own. */
persist_call sli_persist_piece_at(const persist_call *persist, int first, int end, int order);
/* Inference: which of its two slots of d h a direction's next launch enters from; it leaves d h in the other one. Not by steps: after an even
 * number of them a CTA would overwrite what a slow one still reads, where rows end after a step and so nobody waits for anybody. */
static inline int sli_persist_slot(const persist_call *persist, int direction) {
    const step_way *way = &persist->ways[direction];
    return (way->reverse ? (int)way->s.T : 0) + persist->launches;
}
/* The way of one chunk, for the products outside the loop. */
step_way sli_persist_chunk(const persist_call *persist, int direction, int index);
/* All that one direction has packed, but R as cuda:step's products read it, in one launch; recurrent [gates H][row]: R. */
void sli_persist_pack(const step_way *way, const sli_persist_pair *pair, const sli_persist_packed *at,
                      const void *recurrent, int64_t row);
/* The file and function that a kernel of its own is compiled of. */
#define SLI_PERSIST_SOURCE "backend/cuda/kernels/persist_instance.cuh"
#define SLI_PERSIST_ENTRY "persist_instance"
/* Tests: the seed of random delays or PERSIST_DELAY_MEETS, 0: none; SLUICE_PERSIST_DELAY when the plug-in was opened. */
extern uint32_t sli_persist_delay;
/* The PERSIST_HAS bits of a call's launches, known when it is planned. `y`: y is given, or, backward, a gradient of it; `gives`: backward, the
 * launch multiplies its last step's v for whatever comes after. */
int sli_persist_form(const sli_problem *problem, bool backward, bool y, bool gives);
/* The activation that a kernel of this geometry has for one of src/cell. */
int sli_persist_act(sl_dtype dtype, const sli_persist_geometry *geometry, int act);
/* Prepares the kernel for launches of this geometry: grid, block, shared memory, clusters; no stream. */
typedef struct persist_configuration {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attributes[3];
} persist_configuration;
cudaError_t sli_persist_configure(const void *kernel, const sli_persist_geometry *geometry, int shared_bytes,
                                  persist_configuration *configuration);
/* The table's (plugin.h). */
sl_status sli_gpu_persist_ready(const sli_problem *problem, sli_planned plan, const sli_caps *caps, int kind,
                                const sli_calls *calls, bool *refused, sli_why *why);
/* Fills what both passes share. */
void sli_persist_args(const persist_call *persist, persist_args *args);
/* The built-in kernel of this geometry; NULL: there is none. */
const void *sli_persist_builtin(const sli_persist_geometry *geometry);
/* A projection that is folded (persist_fold_host.cu). What the recurrence sees of a direction; its memory is there. */
step_way sli_persist_fold_cells(const persist_call *persist, int direction);
/* Operand of m in a slot. */
void *sli_persist_fold_m(const persist_call *persist, int direction, int slot);
/* Before pack: W_p, R, and R W_p [GH][ms], which is given. */
const float *sli_persist_fold_pack(const persist_call *persist, int direction);
/* Forward, behind flags and states: what the steps enter from. Then for each chunk: u += R h0 of the rows whose first step it has; and
 * behind its steps h, into y, the leaving state, and, for backward, saved. */
void sli_persist_fold_begin(const persist_call *persist, int direction);
void sli_persist_fold_enter(const persist_call *persist, int direction, int index, cudaStream_t stream);
void sli_persist_fold_give(const persist_call *persist, int direction, int index, cudaStream_t stream);
/* Backward: before any step the leaving state's gradient as that of m, NULL: zeros. Before a chunk's steps dm; behind them, in the stream of `way`, d W_p,
 * d R and what h0 has of it. At the end the gradients of the entering states. */
const float *sli_persist_fold_leaving(const persist_call *persist, int direction);
void sli_persist_fold_dm(const persist_call *persist, int direction, int index, cudaStream_t stream);
void sli_persist_fold_add(const persist_call *persist, const step_way *way);
void sli_persist_fold_finish(const persist_call *persist, int direction, const float *dc);
/* dm of step t of the span. */
const float *sli_persist_fold_dm_at(const persist_call *persist, int direction, int t);
/* Zeros what tells of v over the grid: before each launch. In forward what backward's first launch finds zeros, in the stream. What tells is at scratch.zeros from sli_persist_told on. */
void sli_persist_zero_exchange(const persist_call *persist);
void sli_persist_zero_backward(const persist_call *persist, cudaStream_t stream);
char *sli_persist_told(const persist_call *persist, int direction);
/* One launch over all steps of the span or piece, in all directions; args->form is set here. */
void sli_persist_launch(const persist_call *persist, persist_args *args);

#endif
