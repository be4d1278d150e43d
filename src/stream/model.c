/* Weights of a stream model, packed for one instruction set: sluice_stream.h. */
#include "stream/model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell/activations.h"
#include "core/memory.h"

/* -------------------------------------------------------------------------------------------------- instructions -- */
/* In order; each processor of the build's kind has the first. */
#if defined(__x86_64__)
#define ISAS "base, avx2 and avx512"
static const sli_stream_isa *const isas[] = {&sli_stream_isa_base, &sli_stream_isa_avx2, &sli_stream_isa_avx512};
static int best_isa(void) {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? 2 : avx2 ? 1 : 0;
}
#elif defined(__aarch64__)
#define ISAS "base and neon"
static const sli_stream_isa *const isas[] = {&sli_stream_isa_base, &sli_stream_isa_neon};
static int best_isa(void) {
    return 1;
}
#else
#define ISAS "base"
static const sli_stream_isa *const isas[] = {&sli_stream_isa_base};
static int best_isa(void) {
    return 0;
}
#endif

/* AMX and AVX512_BF16 are of no use to one row in floats: they mean the instruction set below them. */
static sl_status choose_isa(const sli_stream_isa **isa) {
    const char *wanted = getenv("SLUICE_CPU_ISA");
    const int best = best_isa(), count = (int)(sizeof isas / sizeof *isas);
    *isa = isas[best];
    if (!wanted || !*wanted) return SL_OK;
    if ((strcmp(wanted, "amx") == 0 || strcmp(wanted, "avx512bf16") == 0) && best == 2) return SL_OK;
    for (int i = 0; i < count; i++) {
        if (strcmp(wanted, isas[i]->name) != 0) continue;
        *isa = isas[i];
        SLI_FAIL_IF(i > best, SL_ERR_DEVICE, "SLUICE_CPU_ISA is \"%s\", which this CPU has not: use %s, or unset it",
                    wanted, isas[best]->name);
        return SL_OK;
    }
    return sli_fail(SL_ERR_UNKNOWN, "SLUICE_CPU_ISA is \"%s\"; streams have kernels here for " ISAS, wanted);
}

/* Half as long vectors where they hold all units of every recurrent layer: a step waits for its divisions, which take two thirds of the
 * time then. */
static const sli_stream_isa *lanes_for(const sli_stream_layers *layers, const sli_stream_isa *isa) {
#if defined(__x86_64__)
    int widest = 0;
    for (int i = 0; i < layers->count; i++)
        if (sli_stream_is_recurrent(&layers->layer[i]) && layers->layer[i].units > widest)
            widest = layers->layer[i].units;
    if (isa == &sli_stream_isa_avx512 && widest > 0 && widest <= sli_stream_isa_avx512_half.lanes)
        return &sli_stream_isa_avx512_half;
#endif
    (void)layers;
    return isa;
}

/* ------------------------------------------------------------------------------------------------------- packing -- */
/* Memory handed out piece by piece, first counted (base NULL), then given. */
typedef struct room {
    char *base;
    size_t used;
} room;

static void *take(room *r, size_t bytes) {
    void *piece = r->base ? r->base + r->used : NULL;
    r->used += sli_round_up(bytes, SLI_STREAM_ALIGN);
    return piece;
}

/* Part of a packed block: `groups` groups from unit `first` on, of gates [gate, gate + gates) of matrix[G * units][columns]. */
typedef struct part {
    const float *matrix;
    int columns, gate, gates;
} part;

static float *pack_block(const part *p, int units, int lanes, int first, int groups, float *to) {
    for (int k = 0; k < p->columns; k++)
        for (int group = 0; group < groups; group++)
            for (int gate = p->gate; gate < p->gate + p->gates; gate++)
                for (int lane = 0; lane < lanes; lane++) {
                    const int unit = first + group * lanes + lane;
                    const size_t row = (size_t)gate * (size_t)units + (size_t)unit;
                    *to++ = unit < units ? p->matrix[row * (size_t)p->columns + (size_t)k] : 0.0f;
                }
    return to;
}

/* The parts one after the other in each block; `per_unit` vectors of a group decide how blocks are cut. */
static const float *pack(room *r, const part *parts, int count, int per_unit, int units, int lanes) {
    size_t floats = 0;
    for (int i = 0; i < count; i++)
        floats += sli_stream_padded(units, lanes) * (size_t)parts[i].gates * (size_t)parts[i].columns;
    float *packed = take(r, floats * sizeof *packed), *to = packed;
    const int all = (units + lanes - 1) / lanes;
    for (int done = 0, groups; packed && done < all; done += groups) {
        for (groups = sli_stream_block(per_unit, lanes, all); groups > all - done;) groups /= 2;
        for (int i = 0; i < count; i++) to = pack_block(&parts[i], units, lanes, done * lanes, groups, to);
    }
    return packed;
}

/* [group][slots][lane] of from[gate][units]; slot 3 of a GRU is n's recurrent bias. */
static const float *pack_bias(room *r, const sli_stream_layer *l, int lanes) {
    const int gates = sli_stream_gates(l), slots = l->kind == SLI_STREAM_GRU ? 4 : gates;
    const size_t padded = sli_stream_padded(l->units, lanes);
    float *packed = take(r, padded * (size_t)slots * sizeof *packed);
    for (size_t at = 0; packed && at < padded * (size_t)slots; at++) {
        const int lane = (int)(at % (size_t)lanes), slot = (int)(at / (size_t)lanes % (size_t)slots);
        const int unit = (int)(at / (size_t)lanes / (size_t)slots) * lanes + lane;
        const float *from = slot < gates ? l->array[SLI_STREAM_BIAS] + (size_t)slot * (size_t)l->units
                                         : l->array[SLI_STREAM_STATE_BIAS];
        packed[at] = from && unit < l->units ? from[unit] : 0.0f;
    }
    return packed;
}

/* [rows][row] of from[rows][columns], the rest 0. */
static const float *pack_rows(room *r, const float *from, int rows, int columns, size_t row) {
    float *packed = take(r, (size_t)rows * row * sizeof *packed);
    if (packed) memset(packed, 0, (size_t)rows * row * sizeof *packed);
    for (int i = 0; packed && i < rows; i++)
        memcpy(packed + (size_t)i * row, from + (size_t)i * (size_t)columns, (size_t)columns * sizeof *packed);
    return packed;
}

static void pack_recurrent(room *r, const sli_stream_layer *l, const sli_stream_isa *isa, sli_stream_op *op) {
    const int gates = sli_stream_gates(l), lanes = isa->lanes;
    const bool before = l->kind == SLI_STREAM_GRU && l->options & CELL_RESET_BEFORE;
    const part parts[] = {{l->array[SLI_STREAM_KERNEL], l->inputs, 0, gates},
                          {l->array[SLI_STREAM_RECURRENT], l->outputs, 0, before ? 2 : gates}};
    op->weights = pack(r, parts, 2, gates, l->units, lanes);
    op->bias = pack_bias(r, l, lanes);
    if (before) op->second = pack(r, &(part){l->array[SLI_STREAM_RECURRENT], l->outputs, 2, 1}, 1, 1, l->units, lanes);
    if (l->options & CELL_PROJECTION)
        op->second = pack(r, &(part){l->array[SLI_STREAM_PROJECTION], l->units, 0, 1}, 1, 1, l->outputs, lanes);
    if (l->options & CELL_PEEPHOLE)
        op->peephole = pack_rows(r, l->array[SLI_STREAM_PEEPHOLE], 3, l->units, sli_stream_padded(l->units, lanes));
    const bool usual = l->options == 0 && l->act == CELL_ACT_TANH && l->gate_act == CELL_ACT_SIGMOID;
    if (l->kind == SLI_STREAM_LSTM)
        op->step = usual ? isa->usual_lstm : isa->lstm;
    else if (l->kind == SLI_STREAM_GRU)
        op->step = usual ? isa->usual_gru : isa->gru;
    else
        op->step = isa->rnn;
}

static void pack_dense(room *r, const sli_stream_layer *l, const sli_stream_isa *isa, bool all_inputs,
                       sli_stream_op *op) {
    const bool few = all_inputs && 2 * l->units <= isa->lanes;
    const part kernel = {l->array[SLI_STREAM_KERNEL], l->inputs, 0, 1};
    op->weights = few ? pack_rows(r, kernel.matrix, l->units, l->inputs, (size_t)l->inputs)
                      : pack(r, &kernel, 1, 1, l->units, isa->lanes);
    op->bias = pack_bias(r, l, isa->lanes);
    op->step = few ? isa->few : isa->dense;
}

/* Floats that a layer's kernel works in. */
static size_t work_of(const sli_stream_layer *l, int lanes) {
    const size_t units = sli_stream_padded(l->units, lanes), outputs = sli_stream_padded(l->outputs, lanes);
    return l->kind == SLI_STREAM_DENSE ? 0 : 6 * units + outputs;
}

static void pack_layer(room *r, const sli_stream_layer *l, bool one_hot, sl_stream_model *m, sli_stream_op *op) {
    const int lanes = m->isa->lanes;
    sli_stream_op made = {.inputs = l->inputs,
                          .units = l->units,
                          .outputs = l->outputs,
                          .groups = (l->units + lanes - 1) / lanes,
                          .per_block = sli_stream_block(4, lanes, (l->units + lanes - 1) / lanes),
                          .options = l->options,
                          .act = l->act,
                          .gate_act = l->gate_act,
                          .clip = l->clip,
                          .zone_h = l->zone_h,
                          .zone_c = l->zone_c};
    if (l->kind == SLI_STREAM_DENSE)
        pack_dense(r, l, m->isa, !one_hot, &made);
    else
        pack_recurrent(r, l, m->isa, &made);
    made.h = m->floats;
    m->floats += sli_round_up(sli_stream_padded(l->outputs, lanes), 16);
    made.c = m->floats;
    if (l->kind == SLI_STREAM_LSTM) m->floats += sli_round_up(sli_stream_padded(l->units, lanes), 16);
    made.state = (size_t)m->state;
    if (sli_stream_is_recurrent(l)) m->state += l->outputs + (l->kind == SLI_STREAM_LSTM ? l->units : 0);
    made.recurrent = sli_stream_is_recurrent(l);
    made.cells = l->kind == SLI_STREAM_LSTM;
    if (work_of(l, lanes) > m->work) m->work = work_of(l, lanes);
    if (op) *op = made;
}

/* Packs `layers` from `memory` on, which is aligned to 64; NULL: only counts. Returns the bytes it takes. */
static size_t pack_model(const sli_stream_layers *layers, const sli_stream_isa *isa, void *memory) {
    room r = {.base = memory};
    sl_stream_model *model = take(&r, sizeof *model), m = {.isa = isa};
    const sli_stream_layer *first = &layers->layer[0];
    const int tokens = sli_stream_takes_tokens(layers);
    m.count = layers->count - tokens;
    sli_stream_op *ops = take(&r, (size_t)(m.count + 1) * sizeof *ops);
    m.ops = ops;
    m.inputs = tokens ? 0 : first->inputs;
    m.vocabulary = tokens ? first->inputs : 0;
    m.embedding = first->kind == SLI_STREAM_EMBEDDING ? first->units : 0;
    m.outputs = layers->layer[layers->count - 1].outputs;
    if (m.embedding)
        m.table = pack_rows(&r, first->array[SLI_STREAM_KERNEL], first->inputs, first->units, (size_t)first->units);
    for (int i = 0; i < m.count; i++)
        pack_layer(&r, &layers->layer[i + tokens], i == 0 && tokens && !m.embedding, &m, ops ? ops + i : NULL);
    if (model) *model = m;
    return r.used;
}

/* ------------------------------------------------------------------------------------------------------ functions -- */
#define NOT_NULL(argument) SLI_FAIL_IF(!(argument), SL_ERR_USAGE, "%s: %s is NULL; pass one", __func__, #argument)

static char *aligned(void *memory) {
    return (char *)(((uintptr_t)memory + SLI_STREAM_ALIGN - 1) / SLI_STREAM_ALIGN * SLI_STREAM_ALIGN);
}

sl_status sl_stream_model_size(const void *bytes, size_t size, size_t *needed) {
    NOT_NULL(needed);
    *needed = 0;
    NOT_NULL(bytes);
    sli_stream_layers layers;
    const sli_stream_isa *isa;
    SLI_TRY(sli_slm_read(bytes, size, &layers));
    SLI_TRY(choose_isa(&isa));
    *needed = pack_model(&layers, lanes_for(&layers, isa), NULL) + SLI_STREAM_ALIGN - 1;
    return SL_OK;
}

sl_status sl_stream_model_place(const void *bytes, size_t size, void *memory, size_t memory_size,
                                sl_stream_model **model) {
    NOT_NULL(model);
    *model = NULL;
    NOT_NULL(bytes);
    NOT_NULL(memory);
    sli_stream_layers layers;
    const sli_stream_isa *isa;
    SLI_TRY(sli_slm_read(bytes, size, &layers));
    SLI_TRY(choose_isa(&isa));
    isa = lanes_for(&layers, isa);
    const size_t needed = pack_model(&layers, isa, NULL) + SLI_STREAM_ALIGN - 1;
    SLI_FAIL_IF(memory_size < needed, SL_ERR_MEMORY_LIMIT,
                "the stream model takes %zu bytes and was given %zu; ask sl_stream_model_size", needed, memory_size);
    pack_model(&layers, isa, aligned(memory));
    *model = (sl_stream_model *)(void *)aligned(memory);
    return SL_OK;
}

sl_status sl_stream_model_new(const void *bytes, size_t size, sl_stream_model **model) {
    NOT_NULL(model);
    *model = NULL;
    size_t needed;
    SLI_TRY(sl_stream_model_size(bytes, size, &needed));
    void *memory = malloc(needed);
    if (!memory) return sli_fail_memory("a stream model", needed);
    const sl_status status = sl_stream_model_place(bytes, size, memory, needed, model);
    if (status == SL_OK)
        (*model)->memory = memory;
    else
        free(memory);
    return status;
}

static sl_status read_all(const char *path, FILE *file, void **bytes, size_t *size) {
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    /* A folder can be opened, and its end is the largest number there is. */
    SLI_FAIL_IF(end < 0 || end == LONG_MAX || fseek(file, 0, SEEK_SET) != 0, SL_ERR_FILE,
                "%s is no file; give a stream model", path);
    *bytes = malloc((size_t)end + 1);
    if (!*bytes) return sli_fail_memory("the bytes of a stream model", (size_t)end + 1);
    *size = fread(*bytes, 1, (size_t)end, file);
    SLI_FAIL_IF(*size != (size_t)end, SL_ERR_IO, "%s cannot be read to its end", path);
    return SL_OK;
}

sl_status sl_stream_model_load(const char *path, sl_stream_model **model) {
    NOT_NULL(model);
    *model = NULL;
    NOT_NULL(path);
    FILE *file = fopen(path, "rb");
    SLI_FAIL_IF(!file, SL_ERR_FILE, "%s cannot be opened; check the path", path);
    void *bytes = NULL;
    size_t size = 0;
    sl_status status = read_all(path, file, &bytes, &size);
    fclose(file);
    if (status == SL_OK) {
        status = sl_stream_model_new(bytes, size, model);
        if (status != SL_OK) sli_fail_context(status, "%s", path);
    }
    free(bytes);
    return status;
}

void sl_stream_model_free(sl_stream_model *model) {
    if (model) free(model->memory);
}

int sl_stream_inputs(const sl_stream_model *model) {
    return model ? model->inputs : 0;
}
int sl_stream_vocabulary(const sl_stream_model *model) {
    return model ? model->vocabulary : 0;
}
int sl_stream_outputs(const sl_stream_model *model) {
    return model ? model->outputs : 0;
}
const char *sl_stream_isa(const sl_stream_model *model) {
    return model ? model->isa->name : "";
}
int sl_stream_state_count(const sl_stream_model *model) {
    return model ? model->state : 0;
}
