/* Updates inside packing, as the CPU's optimizer has them: parameters, slots and packed copies are to the byte those of an update of all and
 * a pack behind it, whatever is packed, however it is clipped, on one thread or two. */
#include "backend/cpu/cpu.h"
#include "run_rig.h"

enum { IN = 9, OUT = 3, T = 4, JUNK = 0x5a };

typedef struct shape {
    sl_cell cell;
    int units, layers;
    bool both, before; /* directions; reset before the product */
    int projection;
    sl_dtype dtype;
    const char *device;
} shape;

static sl_model *model_of(const shape *s) {
    const sl_recurrent options = {.units = s->units,
                                  .return_sequences = 1,
                                  .bias = s->units % 2 ? SL_BIAS_DOUBLE : SL_BIAS_DEFAULT,
                                  .bidirectional = s->both ? SL_BI_CONCAT : SL_UNIDIRECTIONAL,
                                  .reset_before = s->before,
                                  .projection = s->projection,
                                  .peephole = s->projection > 0};
    const sl_dense dense = {.units = OUT};
    sl_model *model;
    REQUIRE_OK(sl_model_new(NULL, &model));
    REQUIRE_OK(sl_model_add_input(model, "x", IN, 0));
    for (int l = 0; l < s->layers; l++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", l);
        REQUIRE_OK(sl_model_add_recurrent(model, name, s->cell, &options, NULL));
    }
    REQUIRE_OK(sl_model_add_dense(model, "dense", &dense, NULL));
    return model;
}

typedef struct data {
    float x[T * B * IN];
    int32_t labels[T * B];
    const void *inputs[1];
    sl_batch batch;
} data;

static void fill(data *d, int k) {
    uint64_t seed = test_seed + (uint64_t)k;
    for (int i = 0; i < T * B * IN; i++) d->x[i] = (float)(4 * test_random(&seed));
    for (int i = 0; i < T * B; i++) d->labels[i] = (i + k) % OUT;
    d->inputs[0] = d->x;
    d->batch = (sl_batch){.batch = B, .steps = T, .inputs = d->inputs, .targets = d->labels};
}

static void fill_packed(const rig *r) {
    memset(sli_params_packed(r->params), JUNK, r->plan->packed_bytes);
    REQUIRE_OK(sli_params_pack(r->params, r->params->queue, -1));
}

/* behind: the optimizer updates all parameters in slices, and packs follow. */
static rig make(const shape *s, const sl_plan_options *options, int threads, bool behind) {
    sl_plan_options own = *options;
    own.threads = threads;
    if (s->layers > 1) own.require = "cpu:stack";
    sl_model *model = model_of(s);
    rig r = make_rig_on(model, own, s->device);
    sl_model_free(model);
    bool copied = false;
    for (int i = 0; i < r.plan->step_count; i++) {
        copied |= r.plan->steps[i].copied;
        if (behind) r.plan->steps[i].copied = false;
    }
    CHECK(copied);
    for (int p = 0; p < r.plan->param_count && behind; p++) r.plan->params[p].packer = -1;
    fill_packed(&r);
    return r;
}

static void same_blocks(const rig *a, const rig *b, const char *what) {
    const size_t bytes = a->plan->memory.params_block;
    REQUIRE(b->plan->memory.params_block == bytes);
    for (size_t i = 0; i < bytes; i++)
        if (a->params->block[i] != b->params->block[i]) {
            const size_t array = a->plan->param_elements * a->plan->element;
            test_fail(__FILE__, __LINE__, "%s: byte %zu differs (arrays of %zu, packed from %zu)", what, i, array,
                      (size_t)(sli_params_packed(a->params) - a->params->block));
            return;
        }
}

/* The packed copies are those of the parameters as they are. */
static void check_packed(const rig *r, const char *what) {
    const size_t bytes = r->plan->packed_bytes;
    char *before = malloc(bytes);
    REQUIRE(before != NULL && bytes > 0);
    memcpy(before, sli_params_packed(r->params), bytes);
    fill_packed(r);
    if (memcmp(before, sli_params_packed(r->params), bytes) != 0)
        test_fail(__FILE__, __LINE__, "%s: packed copies are not of the parameters", what);
    free(before);
}

/* Behind updates biases are all that is left to be packed. */
static void check_left(const rig *r, const shape *s) {
    size_t written = 0;
    memset(sli_params_packed(r->params), JUNK, r->plan->packed_bytes);
    REQUIRE_OK(sli_params_pack_updated(r->params, r->params->queue));
    for (size_t i = 0; i < r->plan->packed_bytes; i++) written += sli_params_packed(r->params)[i] != JUNK;
    CHECK(written > 0 && written <= 4 * sizeof(float) * (size_t)(s->units * s->layers * (s->both ? 2 : 1)));
}

/* Steps: one of gradients that are not finite, one of sums of gradients; the others are whole. */
enum { RIGS = 3, STEPS = 4, BAD = 1, PARTS = 2 };

static double step(const rig *r, data *d, int k) {
    sl_result result;
    if (k != BAD && k != PARTS) {
        REQUIRE_OK(sl_run_step(r->run, &d->batch, (uint32_t)k, 0.05));
        REQUIRE_OK(sl_run_step_result(r->run, &result));
        return result.gradient_norm;
    }
    for (uint32_t micro = 0; micro < 2; micro++)
        REQUIRE_OK(sl_run_gradients(r->run, &d->batch, NULL, (uint32_t)k, micro, k == BAD ? 1e60 : 0.5, &result));
    REQUIRE_OK(sl_run_update(r->run, 0.05, &result));
    return result.gradient_norm;
}

static void check_step(const rig *rigs, int k, const char *what) {
    const size_t bytes = rigs[0].plan->memory.params_block;
    char *before = malloc(bytes);
    data d;
    REQUIRE(before != NULL);
    memcpy(before, rigs[1].params->block, bytes);
    fill(&d, k);
    for (int i = 0; i < RIGS; i++) CHECK(isfinite(step(&rigs[i], &d, k)) == (k != BAD));
    same_blocks(&rigs[1], &rigs[0], what);
    same_blocks(&rigs[2], &rigs[1], what);
    CHECK((memcmp(before, rigs[1].params->block, bytes) == 0) == (k == BAD));
    for (int i = 0; i < RIGS; i++) check_packed(&rigs[i], what);
    free(before);
}

static const sl_optimizer optimizers[] = {
    {.kind = SL_SGD, .weight_decay = 0.01}, {.kind = SL_SGD, .momentum = 0.9}, {.kind = SL_ADAM}};
static const sl_clip clips[] = {
    {SL_CLIP_GLOBAL_NORM, 0.05}, {SL_CLIP_NORM, 0.02}, {SL_CLIP_VALUE, 1e-3}, {SL_CLIP_NONE, 0}};
enum { OPTIMIZERS = 3, CLIPS = 4, WAYS = OPTIMIZERS * CLIPS };

static void check(const shape *s, int way) {
    const sl_plan_options options = {.batch = B,
                                     .steps = T,
                                     .train = 1,
                                     .loss = SL_LOSS_SOFTMAX,
                                     .dtype = s->dtype,
                                     .optimizer = optimizers[way % OPTIMIZERS],
                                     .clip = clips[way / OPTIMIZERS % CLIPS]};
    char what[128];
    snprintf(what, sizeof what, "%s: cell %d, %d units, %d layers%s%s, projection %d, dtype %d, way %d", s->device,
             (int)s->cell, s->units, s->layers, s->both ? ", both directions" : "", s->before ? ", reset before" : "",
             s->projection, (int)s->dtype, way);
    rig rigs[RIGS] = {make(s, &options, 1, true), make(s, &options, 1, false), make(s, &options, 2, false)};
    for (int k = 0; k < STEPS; k++) check_step(rigs, k, what);
    check_left(&rigs[1], s);
    for (int i = 0; i < RIGS; i++) free_rig(&rigs[i]);
}

static void need_cpu(void) {
    if (strcmp(test_device, "cpu") != 0) test_skip("of the CPU's rows");
}

/* Sizes of less than a lane, of parts of panels, of several; ways in turn. */
static void check_sizes(const char *device, int each) {
    static const int sizes[] = {1, 7, 16, 33, 100};
    static const sl_dtype dtypes[] = {SL_F32, SL_BF16, SL_F32X3};
    int way = 0;
    for (int n = 0; n < 3 * 5 * 3; n += each) {
        const shape plain = {.cell = (sl_cell)(n % 3),
                             .units = sizes[n / 3 % 5],
                             .layers = 1,
                             .dtype = dtypes[n / 15],
                             .device = device};
        shape both = plain, stack = plain, other = plain;
        both.both = true;
        stack.layers = 3;
        other.before = plain.cell == SL_GRU;
        other.projection = plain.cell == SL_LSTM ? (plain.units + 1) / 2 : 0;
        check(&plain, way++ % WAYS);
        check(&both, way++ % WAYS);
        if (plain.cell != SL_RNN) check(&other, way++ % WAYS);
        check(&stack, way++ % WAYS);
        other.both = true;
        check(&other, way++ % WAYS);
    }
}

TEST(run_pack_updates_what_it_packs) {
    need_cpu();
    check_sizes("cpu", TEST_ONE_IN(11));
}

TEST(run_pack_updates_what_it_packs_on_other_isas) {
    static const struct {
        sli_isa isa;
        const char *device;
    } others[] = {{SLI_ISA_BASE, "cpu:base"},
                  {SLI_ISA_AVX2, "cpu:avx2"},
                  {SLI_ISA_AVX512, "cpu:avx512"},
                  {SLI_ISA_AVX512BF16, "cpu:avx512bf16"}};
    need_cpu();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char why[SLI_ISA_WHY];
        if (others[i].isa != sli_cpu_isa() && sli_cpu_has(others[i].isa, why))
            check_sizes(others[i].device, 4 * TEST_ONE_IN(8) + 1);
    }
}

TEST(run_pack_updates_by_every_optimizer_and_clip) {
    const shape shapes[] = {{.cell = SL_LSTM, .units = 33, .layers = 1, .both = true, .projection = 17},
                            {.cell = SL_GRU, .units = 33, .layers = 1, .before = true},
                            {.cell = SL_RNN, .units = 70, .layers = 2}};
    need_cpu();
    for (int i = 0; i < 3; i++)
        for (int way = 0; way < WAYS; way += TEST_ONE_IN(5)) {
            shape s = shapes[i];
            s.device = "cpu";
            s.dtype = way % 2 ? SL_BF16 : SL_F32;
            check(&s, way);
        }
}
