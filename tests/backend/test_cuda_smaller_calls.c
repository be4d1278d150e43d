/* Memory is booked for a plan's call; one of fewer rows or steps lays it out anew, or is laid out as the plan's, and must lie inside. */
#include "backend/cuda/persist_overlap.h"
#include "backend/cuda/stack_layout.h"
#include "backend/cuda/wave_layout.h"
#include "cuda_caps.h"
#include "problem_text.h"

typedef struct laid {
    size_t forward, backward, saved;
} laid;

static laid of_step(const sli_problem *call, const sli_problem *plan, const sli_caps *caps, int chunk) {
    sli_problem planned = *call;
    planned.batch = plan->batch;
    laid at = {.forward = sli_step_layout_forward(&planned, caps, chunk, true).total};
    if (plan->train) at.backward = sli_step_layout_backward(&planned, caps, chunk, chunk, true).total;
    if (plan->train) at.saved = sli_step_layout_history(call, chunk).total;
    return at;
}

static laid of_persist(const sli_problem *call, const sli_problem *plan, const sli_caps *caps, int chunk,
                       sli_persist_kind kind) {
    sli_persist_pair pair;
    laid at = {0};
    if (!sli_persist_pair_of(call, (sli_planned){plan->batch, plan->steps}, caps, kind, &pair, NULL)) {
        test_fail(__FILE__, __LINE__, "no pair for a call of %d rows and %d steps", call->batch, call->steps);
        return at;
    }
    at.forward = sli_persist_layout_forward(call, caps, &pair, chunk).total;
    if (!plan->train) return at;
    at.backward = pair.backward_in_steps ? of_step(call, plan, caps, chunk).backward
                                         : sli_persist_layout_backward(call, caps, &pair, chunk).total;
    at.saved = sli_persist_layout_saved(call, &pair, chunk).total;
    return at;
}

static laid of_cluster(const sli_problem *call, const sli_problem *plan, const sli_caps *caps, int chunk) {
    return of_persist(call, plan, caps, chunk, SLI_PERSIST_KIND_CLUSTER);
}

static laid of_grid(const sli_problem *call, const sli_problem *plan, const sli_caps *caps, int chunk) {
    return of_persist(call, plan, caps, chunk, SLI_PERSIST_KIND_GRID);
}

static laid of_stack(const sli_problem *call, const sli_problem *plan, const sli_caps *caps, int chunk) {
    sli_stack_cut cut;
    laid at = {0};
    if (!sli_stack_cut_of(call, (sli_planned){plan->batch, plan->steps}, caps, chunk, &cut, NULL)) {
        test_fail(__FILE__, __LINE__, "no cut for a call of %d rows and %d steps", call->batch, call->steps);
        return at;
    }
    at.forward = sli_stack_layout_scratch(call, caps, &cut, chunk, false).total;
    if (plan->train) at.backward = sli_stack_layout_scratch(call, caps, &cut, chunk, true).total;
    if (plan->train) at.saved = sli_stack_layout_saved(call, &cut, chunk).total;
    return at;
}

static laid of_wave(const sli_problem *call, const sli_problem *plan, const sli_caps *caps, int chunk) {
    const sli_problem whole = sli_wave_whole(call);
    const sli_planned planned = sli_wave_planned(plan, (sli_planned){plan->batch, plan->steps});
    const int layers = sli_wave_chunk(call, chunk);
    sli_persist_pair pair;
    laid at = {0};
    if (!sli_persist_pair_of(&whole, planned, caps, SLI_PERSIST_KIND_CLUSTER, &pair, NULL)) {
        test_fail(__FILE__, __LINE__, "no pair for a wave of %d rows and %d steps", call->batch, call->steps);
        return at;
    }
    at.forward = sli_wave_layout_scratch(&whole, caps, &pair, layers, false).total;
    if (plan->train) at.backward = sli_wave_layout_scratch(&whole, caps, &pair, layers, true).total;
    if (plan->train) at.saved = sli_persist_layout_saved(&whole, &pair, layers).total;
    return at;
}

static const struct {
    const sli_kernel *of_op[3]; /* LSTM, GRU, RNN */
    laid (*lay)(const sli_problem *call, const sli_problem *plan, const sli_caps *caps, int chunk);
} ways[] = {{{&sli_cuda_lstm, &sli_cuda_gru, &sli_cuda_rnn}, of_step},
            {{&sli_cuda_lstm_cluster, &sli_cuda_gru_cluster, &sli_cuda_rnn_cluster}, of_cluster},
            {{&sli_cuda_lstm_grid, &sli_cuda_gru_grid, &sli_cuda_rnn_grid}, of_grid},
            {{&sli_cuda_lstm_stack, &sli_cuda_gru_stack, &sli_cuda_rnn_stack}, of_stack},
            {{&sli_cuda_lstm_wave, &sli_cuda_gru_wave, &sli_cuda_rnn_wave}, of_wave}};

static int drawn(uint64_t *state, int below) {
    const int k = (int)((0.5 * test_random(state) + 0.5) * below);
    return k < below ? k : below - 1;
}

/* Rows: one less, whole tiles of products, half, one, any; steps: all, one, a chunk, one more, any. */
static sli_problem smaller(const sli_problem *p, int chunk, int k, uint64_t *state) {
    const int rows[] = {
        p->batch, p->batch - 1, (p->batch - 1) / 128 * 128, (p->batch + 1) / 2, 1, 1 + drawn(state, p->batch)};
    const int steps[] = {p->steps, p->steps, p->steps, 1, chunk, chunk + 1, 1 + drawn(state, p->steps)};
    sli_problem call = *p;
    call.batch = rows[k % 6] < 1 ? 1 : rows[k % 6];
    call.steps = steps[k % 7] < p->steps ? steps[k % 7] : p->steps;
    return call;
}

/* Gives how many rows of kernels took the problem. */
static int check_calls(const char *text, const sli_caps *caps, uint64_t *state) {
    enum { CALLS = 12 };
    const sli_problem p = problem(text);
    const int chunk = sli_caps_chunk(caps, p.batch, p.steps), op = p.op == SLI_OP_LSTM ? 0 : p.op == SLI_OP_GRU ? 1 : 2;
    int taken = 0;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        const sli_kernel *kernel = ways[way].of_op[op];
        sli_booking booked = {0};
        sli_why why;
        if (!kernel->eligible(&p, caps, &why)) continue;
        kernel->book(&p, caps, chunk, &booked);
        taken++;
        for (int k = 0; k < CALLS; k++) {
            const sli_problem call = smaller(&p, chunk, k, state);
            const laid at = ways[way].lay(&call, &p, caps, chunk);
            if (at.forward > booked.scratch_forward || at.backward > booked.scratch_backward || at.saved > booked.saved)
                test_fail(__FILE__, __LINE__,
                          "%s, %s, a call of %d rows and %d steps: %zu, %zu and %zu bytes, %zu, %zu and %zu are booked",
                          text, kernel->name, call.batch, call.steps, at.forward, at.backward, at.saved,
                          booked.scratch_forward, booked.scratch_backward, booked.saved);
        }
    }
    return taken;
}

/* Of 128 and 256 rows a product R^T dr would be cut in more pieces than of one row more. */
TEST(cuda_smaller_calls_of_fewer_tiles_fit) {
    static const char *const texts[] = {"lstm:b257_t20_i1024_h1024_bf16_bi_train+zoneout_h=0.1",
                                        "lstm:b129_t35_i1536_h1536_bf16_train+recompute",
                                        "lstm:b257_t100_i1024_h1024_bf16_train+recompute",
                                        "lstm:b257_t20_i1024_h1024_f16_train+lengths+recompute",
                                        "lstm:b129_t35_i1536_h1536_bf16_train",
                                        "lstm:b257_t20_i1024_h1024_bf16_train+mask=holes",
                                        "lstm:b769_t1_i16_h640_bf16_train+bias=none",
                                        "gru:b130_t5_i2560_h4096_f16_bi_train"};
    const sli_caps caps = invented(90);
    uint64_t state = test_seed;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) CHECK(check_calls(texts[i], &caps, &state) >= 2);
}

TEST(cuda_smaller_calls_of_any_layer_fit) {
    static const char *const cells[] = {"lstm", "gru", "rnn"},
                             *const dtypes[] = {"f32", "tf32", "bf16", "f16", "f32x3"},
                             *const options[] = {"",           "+lengths",     "+mask=holes", "+recompute",
                                                 "+bias=none", "+bias=double", "+reverse",    "+zoneout_h=0.1"};
    static const int units[] = {1,   7,   33,  64,   100,  130,  200,  257,  384,
                                512, 648, 768, 1000, 1024, 1536, 2048, 2816, 4096},
                     rows[] = {1, 3, 8, 17, 33, 64, 65, 129, 200, 257, 385, 513, 769, 1000, 4097},
                     steps[] = {1, 2, 5, 16, 35, 64, 150, 333, 1000, 2600};
    const sli_caps caps[] = {invented(80), invented(90), invented(90), invented(100)};
    enum { PROBLEMS = 800 / TEST_ONE_IN(8) };
    uint64_t state = test_seed;
    int taken = 0;
    for (int i = 0; i < PROBLEMS; i++) {
        const int h = units[drawn(&state, sizeof units / sizeof *units)],
                  layers = 1 + (drawn(&state, 4) == 0) * drawn(&state, 4);
        const bool both = layers == 1 && drawn(&state, 5) == 0, train = drawn(&state, 4) > 0;
        const int inputs = drawn(&state, 2) ? h : units[drawn(&state, sizeof units / sizeof *units)];
        const char *option = options[drawn(&state, sizeof options / sizeof *options)];
        char text[200];
        if (strcmp(option, "+recompute") == 0 && !train) option = "";
        if (strcmp(option, "+reverse") == 0 && (both || layers > 1)) option = "";
        snprintf(text, sizeof text, "%s:l%d_b%d_t%d_i%d_h%d_%s%s%s%s", cells[drawn(&state, 3)], layers,
                 rows[drawn(&state, sizeof rows / sizeof *rows)], steps[drawn(&state, sizeof steps / sizeof *steps)],
                 inputs, h, dtypes[drawn(&state, 5)], both ? "_bi" : "", train ? "_train" : "", option);
        taken += check_calls(text, &caps[drawn(&state, 4)], &state);
    }
    CHECK(taken > PROBLEMS);
}
