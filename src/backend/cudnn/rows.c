/* The cuDNN rows: twelve, three ops by four algorithms. Their pack, forward and backward are in libsluice_cudnn. */
#include "backend/cudnn/cudnn.h"
#include "backend/cudnn/rules.h"

/* A row whose plug-in is gone cannot have been planned: eligible asked for it. */
static void call_plugin(const sli_call *call, sli_cudnn_algo algo, int which) {
    sli_why why;
    const sli_cudnn_plugin *plugin = sli_cudnn_get(&why);
    if (!plugin) return;
    (which == 0 ? plugin->pack : which == 1 ? plugin->forward : plugin->backward)[algo](call);
}

/* Exact where cuDNN is there to be asked; a refusal has been told by eligible. */
static void book_row(const sli_problem *p, const sli_caps *caps, sli_cudnn_algo algo, sli_booking *booking) {
    sli_why why;
    const sli_cudnn_plugin *plugin = caps->invented ? NULL : sli_cudnn_get(&why);
    if (plugin && plugin->probe(p, caps, algo, booking, &why)) return;
    sli_cudnn_sizes sizes;
    sli_cudnn_estimate(p, &sizes);
    sli_cudnn_book(p, &sizes, booking);
}

#define ALGO_FUNCTIONS(name, algo)                                                                         \
    static bool eligible_##name(const sli_problem *p, const sli_caps *caps, sli_why *why) {                \
        return sli_cudnn_eligible(p, caps, algo, why);                                                     \
    }                                                                                                      \
    static void book_##name(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) { \
        (void)chunk;                                                                                       \
        book_row(p, caps, algo, booking);                                                                  \
    }                                                                                                      \
    static double seconds_##name(const sli_problem *p, const sli_caps *caps) {                             \
        return sli_cudnn_seconds(p, caps, algo);                                                           \
    }                                                                                                      \
    static void pack_##name(const sli_call *call) {                                                        \
        call_plugin(call, algo, 0);                                                                        \
    }                                                                                                      \
    static void forward_##name(const sli_call *call) {                                                     \
        call_plugin(call, algo, 1);                                                                        \
    }                                                                                                      \
    static void backward_##name(const sli_call *call) {                                                    \
        call_plugin(call, algo, 2);                                                                        \
    }
ALGO_FUNCTIONS(standard, SLI_CUDNN_STANDARD)
ALGO_FUNCTIONS(persist_static, SLI_CUDNN_PERSIST_STATIC)
ALGO_FUNCTIONS(persist_dynamic, SLI_CUDNN_PERSIST_DYNAMIC)
ALGO_FUNCTIONS(small_h, SLI_CUDNN_SMALL_H)

/* Measured on an H200 with cuDNN 9.14: outputs of the persistent kernels in f32 differ from exact ones by up to 6e-6. */
#define F32_ERROR_standard 0
#define F32_ERROR_persist_static 6e-6
#define F32_ERROR_persist_dynamic 6e-6
#define F32_ERROR_small_h 6e-6

/* Backward reads x and the states that entered (lengths and masks only on the host), and y. */
#define ROW(variable, algo, row_op)                                                                                  \
    static const sli_kernel variable##_##algo = {.name = "cudnn:" #algo,                                             \
                                                 .op = row_op,                                                       \
                                                 .device = SLI_DEVICE_CUDA,                                          \
                                                 .eligible = eligible_##algo,                                        \
                                                 .cost = sli_cudnn_cost,                                             \
                                                 .book = book_##algo,                                                \
                                                 .seconds = seconds_##algo,                                          \
                                                 .pack = pack_##algo,                                                \
                                                 .forward = forward_##algo,                                          \
                                                 .backward = backward_##algo,                                        \
                                                 .backward_reads_in = ~(1u << SLI_RNN_LENGTHS | 1u << SLI_RNN_MASK), \
                                                 .backward_reads_out = 1u << SLI_RNN_Y,                              \
                                                 .f32_error = F32_ERROR_##algo,                                      \
                                                 .whole_sums = true};
#define ROWS(algo)               \
    ROW(lstm, algo, SLI_OP_LSTM) \
    ROW(gru, algo, SLI_OP_GRU)   \
    ROW(rnn, algo, SLI_OP_RNN)
ROWS(standard)
ROWS(persist_static)
ROWS(persist_dynamic)
ROWS(small_h)

#define LISTED(algo) &lstm_##algo, &gru_##algo, &rnn_##algo
const sli_kernel *const sli_cudnn_kernels[] = {LISTED(standard), LISTED(persist_static), LISTED(persist_dynamic),
                                               LISTED(small_h), NULL};
