/* What pack promises an optimizer: each number of the matrices is updated once, before any panel is made of it; biases are packed by a
 * call of their own; a call that has some of the parameters packs those. */
#include "cpu_call.h"

enum { PARTS = 2 };

typedef struct tensor {
    float *values, *updated;
    int *times;
    size_t count;
} tensor;

typedef struct packs {
    call_engine engine;
    call_result in;
    tensor tensors[PARTS * SLI_PART_PARAMS];
    _Atomic bool strays; /* something else was to be updated */
} packs;

static void update(void *context, const float *values, int64_t count) {
    packs *w = context;
    for (int k = 0; k < PARTS * SLI_PART_PARAMS; k++) {
        const tensor *t = &w->tensors[k];
        if (!t->values || values < t->values || values >= t->values + t->count) continue;
        const size_t first = (size_t)(values - t->values);
        if (first + (size_t)count > t->count) w->strays = true;
        for (size_t i = first; i < first + (size_t)count && i < t->count; i++) {
            t->times[i]++; /* of tasks that share none */
            t->values[i] = t->updated[i];
        }
        return;
    }
    w->strays = true;
}

static size_t count_of(const sli_problem *p, int k) {
    const size_t gates = (size_t)sli_op_gates(p->op) * (size_t)p->units;
    if (k == SLI_RNN_KERNEL) return gates * (size_t)p->inputs;
    if (k == SLI_RNN_RECURRENT) return gates * (size_t)sli_problem_output(p);
    if (k == SLI_RNN_BIAS) return gates;
    return k == SLI_RNN_PROJECTION ? (size_t)p->projection * (size_t)p->units : 0;
}

static void begin(packs *w, const call_setup *setup) {
    uint64_t seed = test_seed;
    memset(w, 0, sizeof *w);
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(setup->text, &p));
    call_begin(&w->engine, call_row(sli_cpu_kernels, p.op, "cpu:fused"), setup);
    for (int k = 0; k < sli_problem_directions(&p) * SLI_PART_PARAMS; k++) {
        tensor *t = &w->tensors[k];
        t->count = count_of(&p, k % SLI_PART_PARAMS);
        if (t->count == 0) continue;
        t->values = call_keep(&w->in, "before", t->count, &seed, 1);
        t->updated = call_keep(&w->in, "after", t->count, &seed, 1);
        t->times = calloc(t->count, sizeof *t->times);
        REQUIRE(t->times != NULL);
    }
}

static void end(packs *w) {
    for (int k = 0; k < PARTS * SLI_PART_PARAMS; k++) free(w->tensors[k].times);
    call_free(&w->in);
    call_end(&w->engine);
}

/* With the parameters of `which`, a bit each. */
static sli_call call_with(packs *w, unsigned which) {
    static const sli_scalars scalars = {.seed = 1};
    static sli_metrics metrics;
    sli_call call = call_base(&w->engine, &scalars, &metrics);
    for (int k = 0; k < PARTS * SLI_PART_PARAMS; k++)
        if (which >> k & 1) call.param[k] = w->tensors[k].values;
    return call;
}

static void check_times(const packs *w, unsigned updated, const char *text) {
    for (int k = 0; k < PARTS * SLI_PART_PARAMS; k++)
        for (size_t i = 0; i < w->tensors[k].count; i++)
            if (w->tensors[k].times[i] != (int)(updated >> k & 1)) {
                test_fail(__FILE__, __LINE__, "%s: number %zu of parameter %d was updated %d times", text, i, k,
                          w->tensors[k].times[i]);
                break;
            }
}

/* The packed copies as they are, to be freed. */
static void *take(const packs *w) {
    void *copy = malloc(w->engine.memory.booking.packed);
    REQUIRE(copy != NULL);
    return memcpy(copy, w->engine.memory.packed, w->engine.memory.booking.packed);
}

/* What there is beside the matrices: four biases a unit and direction, at most. */
static void check_copied(const packs *w, const sli_call *call) {
    const sli_problem *p = &w->engine.p;
    const size_t bytes = w->engine.memory.booking.packed;
    unsigned char *packed = w->engine.memory.packed;
    size_t written = 0;
    memset(packed, 0xff, bytes);
    w->engine.row->pack(call);
    for (size_t i = 0; i < bytes; i++) written += packed[i] != 0xff;
    CHECK(written > 0 && written <= 4 * sizeof(float) * (size_t)(p->units * sli_problem_directions(p)));
}

/* Some matrices, then the others, then biases, beside a pack of what has come out. */
static void check(const call_setup *setup, unsigned first) {
    packs w;
    begin(&w, setup);
    const sli_kernel *row = w.engine.row;
    const sli_update hook = {update, &w};
    const unsigned all = (1u << PARTS * SLI_PART_PARAMS) - 1;
    const unsigned matrices = row->packs_updated | row->packs_updated << SLI_PART_PARAMS;
    REQUIRE(matrices != 0);
    sli_call call = call_with(&w, all);
    row->pack(&call); /* of what was there before, padding included */
    unsigned char *before = take(&w);
    const unsigned groups[] = {matrices & first, matrices & ~first};
    for (int k = 0; k < PARTS * SLI_PART_PARAMS; k++)
        if (!(matrices >> k & 1) && w.tensors[k].count > 0)
            update(&w, w.tensors[k].values, (int64_t)w.tensors[k].count);
    for (int i = 0; i < 2; i++) {
        call = call_with(&w, groups[i]);
        call.update = &hook;
        row->pack(&call);
        check_times(&w, (i == 0 ? groups[0] : matrices) | (all & ~matrices), setup->text);
    }
    unsigned char *matrices_alone = take(&w);
    call = call_with(&w, all);
    call.copied = true;
    row->pack(&call);
    unsigned char *by_update = take(&w);
    size_t biases = 0; /* bytes that this call has changed: until then they were what they had been */
    for (size_t i = 0; i < w.engine.memory.booking.packed; i++)
        if (matrices_alone[i] != by_update[i]) {
            biases++;
            CHECK(matrices_alone[i] == before[i]);
        }
    CHECK(biases > 0);
    free(before);
    free(matrices_alone);
    call.copied = false;
    row->pack(&call);
    CHECK(!w.strays);
    if (memcmp(by_update, w.engine.memory.packed, w.engine.memory.booking.packed) != 0)
        test_fail(__FILE__, __LINE__, "%s: what was packed is not what was updated", setup->text);
    free(by_update);
    call.copied = true;
    check_copied(&w, &call);
    end(&w);
}

static const char *const problems[] = {"lstm:b1_t1_i5_h1_train",
                                       "lstm:b1_t1_i9_h33_train",
                                       "lstm:b1_t1_i9_h100_train",
                                       "lstm:b1_t1_i3_h40_p23_train",
                                       "lstm:b1_t1_i3_h21_bi_train",
                                       "gru:b1_t1_i5_h37_train",
                                       "gru:b1_t1_i5_h70_train",
                                       "gru:b1_t1_i5_h50_train+reset=before",
                                       "gru:b1_t1_i2_h7_bi_train+reset=before",
                                       "rnn:b1_t1_i1_h1_train",
                                       "rnn:b1_t1_i3_h70_train",
                                       "rnn:b1_t1_i3_h100_bi_train",
                                       "lstm:b1_t1_i9_h33_bf16_train",
                                       "gru:b1_t1_i5_h37_bf16_train",
                                       "rnn:b1_t1_i3_h70_bf16_train",
                                       "lstm:b1_t1_i9_h100_f32x3_train"};

TEST(cpu_pack_updates_each_number_once_before_it_packs) {
    /* W, R, both directions' in turn, all. */
    static const unsigned firsts[] = {1u << SLI_RNN_KERNEL | 1u << (SLI_PART_PARAMS + SLI_RNN_KERNEL),
                                      1u << SLI_RNN_RECURRENT, (1u << SLI_PART_PARAMS) - 1, ~0u};
    static const sli_isa isas[] = {SLI_ISA_BASE, SLI_ISA_AVX2, SLI_ISA_AVX512, SLI_ISA_AVX512BF16};
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        for (size_t n = 0; n <= sizeof isas / sizeof *isas; n++) {
            char why[SLI_ISA_WHY];
            const sli_isa isa = n == 0 ? sli_cpu_isa() : isas[n - 1];
            if (!sli_cpu_has(isa, why)) continue;
            for (int k = 0; k < 8; k++) {
                const call_setup setup = {.text = problems[i], .chunk = 1, .threads = 1 + k % 2, .isa = isa};
                check(&setup, firsts[k / 2]);
            }
        }
}
