/* Rows of a device called directly, without a plan, against the reference rows: both work in blocks of the same layout, one in
 * the device's memory and one in the host's, so that all that was written can be compared byte by byte. On a real GPU, skipped
 * with the reason where there is none; and on the far device, with the CPU's rows. */
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "backend/far/far.h"
#include "backend/ref/ref.h"
#include "test.h"

enum { GUARD = 256, PLACES = 24, PARTS = 4, CHUNK = 4, DYED = 0x7b };

typedef enum place_kind { GIVEN, WRITTEN, PRIVATE } place_kind; /* must not change; compared; anything */
typedef struct place {
    size_t at, bytes;
    place_kind kind;
    bool doubles;
} place;

/* The layout of a block, and its bytes before anything ran. */
typedef struct rig {
    sli_problem problem;
    const sli_kernel *row, *reference;
    unsigned accumulate;
    bool scaled; /* the device's gradients carry a loss scale, which its loss_scale makes up for */
    place places[PLACES];
    int count;
    size_t bytes;
    char *before;
    int in[SLI_LOSS_MASK + 1], out[4], d_in[PARTS], dy, param, d_param, saved, scratch, scalars, metrics, scaling;
} rig;

typedef struct device_queue {
    const sli_device_ops *ops;
    const sli_kernel *const *rows;
    sli_caps caps;
    sli_device *device;
    sli_queue *queue;
} device_queue;

static int add_place(rig *r, size_t bytes, place_kind kind) {
    REQUIRE(r->count < PLACES);
    r->places[r->count] = (place){.at = r->bytes, .bytes = bytes, .kind = kind};
    r->bytes += sli_round_up(bytes, SLI_ALIGN) + GUARD;
    return r->count++;
}

static void *at(const rig *r, char *block, int index) {
    return index < 0 || r->places[index].bytes == 0 ? NULL : block + r->places[index].at;
}

static int add_floats(rig *r, size_t count, place_kind kind) {
    return add_place(r, count * sizeof(float), kind);
}

static const sli_kernel *find_row(const sli_kernel *const *rows, const sli_problem *p, const sli_caps *caps) {
    sli_why why;
    for (; *rows; rows++)
        if ((*rows)->op == p->op && (*rows)->eligible(p, caps, &why)) return *rows;
    return NULL;
}

static size_t largest(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Private memory as the larger of both rows asks for it. */
static void add_booked(rig *r, const sli_caps *caps, int segment) {
    sli_problem p = r->problem;
    sli_booking mine = {0}, theirs = {0};
    if (p.steps > 0) p.steps = segment;
    if (r->row->book) r->row->book(&p, caps, CHUNK, &mine);
    if (r->reference->book) r->reference->book(&p, caps, CHUNK, &theirs);
    r->saved = add_place(r, largest(mine.saved, theirs.saved), PRIVATE);
    r->scratch = add_place(r, largest(mine.scratch_forward, mine.scratch_backward), PRIVATE);
    r->scalars = add_place(r, sizeof(sli_scalars), PRIVATE);
    r->scaling = add_place(r, sizeof(sli_scaling), PRIVATE);
    r->metrics = add_place(r, 3 * sizeof(double), WRITTEN); /* what losses add to; the rest lies in the guard */
    r->places[r->metrics].doubles = true;
}

static size_t part_width(const sli_problem *p, int part) {
    if (p->merge != SL_MERGE_CONCAT) return (size_t)p->units;
    return (size_t)(p->parts_units[part] > 0 ? p->parts_units[part] : p->units / p->parts);
}

/* Places of all tensors of a problem that is no update. */
static void add_tensors(rig *r) {
    const sli_problem *p = &r->problem;
    const size_t rows = sli_cuda_rows_of(p), weights = (size_t)p->inputs * (size_t)p->units;
    const bool tokens = p->op == SLI_OP_EMBED || p->op == SLI_OP_ONEHOT, merge = p->op == SLI_OP_MERGE;
    const bool loss = p->op == SLI_OP_XENT || p->op == SLI_OP_BCE || p->op == SLI_OP_MSE;
    const size_t width = (size_t)(p->op == SLI_OP_ONEHOT ? p->inputs : p->units);
    for (int k = 0; k <= SLI_LOSS_MASK; k++) r->in[k] = -1;
    for (int k = 0; k < PARTS; k++) r->d_in[k] = r->out[k] = -1;
    for (int k = 0; k < (merge ? p->parts : 1); k++) {
        const size_t each = tokens ? 1 : merge ? part_width(p, k) : width;
        r->in[k] = add_floats(r, rows * each, GIVEN);
        if (!tokens && p->train) r->d_in[k] = add_floats(r, rows * each, WRITTEN);
    }
    if (loss) {
        r->in[SLI_LOSS_TARGET] = add_floats(r, rows * (p->op == SLI_OP_XENT ? 1 : width), GIVEN);
        r->in[SLI_LOSS_LENGTHS] = add_floats(r, (size_t)p->batch, GIVEN);
        r->in[SLI_LOSS_MASK] = add_place(r, rows, GIVEN);
    } else {
        r->out[0] = add_floats(r, rows * width, WRITTEN);
    }
    r->dy = loss ? -1 : add_floats(r, rows * width, GIVEN);
    r->param = p->op == SLI_OP_EMBED ? add_floats(r, weights, GIVEN) : -1;
    r->d_param = p->op == SLI_OP_EMBED && p->train ? add_floats(r, weights, WRITTEN) : -1;
}

static int32_t below(uint64_t *seed, int low, int high) {
    return low + (int32_t)((test_random(seed) + 1) * 0.5 * (high - low) * 0.999999);
}

/* Numbers everywhere but in what must be written first, which is dyed, as are the guards. */
static void fill(rig *r, unsigned accumulate) {
    const sli_problem *p = &r->problem;
    uint64_t seed = test_seed;
    r->before = malloc(r->bytes);
    REQUIRE(r->before != NULL);
    memset(r->before, DYED, r->bytes);
    for (int k = 0; k < r->count; k++) {
        const place *place = &r->places[k];
        if (place->kind == PRIVATE || place->doubles || k == r->out[0]) continue;
        float *floats = (float *)(void *)(r->before + place->at);
        for (size_t i = 0; i < place->bytes / sizeof(float); i++) floats[i] = (float)(3 * test_random(&seed));
    }
    for (int k = 0; k < PARTS; k++)
        if (r->d_in[k] >= 0 && !(accumulate >> k & 1u))
            memset(at(r, r->before, r->d_in[k]), DYED, r->places[r->d_in[k]].bytes);
    const bool xent = p->op == SLI_OP_XENT, tokens = p->op == SLI_OP_EMBED || p->op == SLI_OP_ONEHOT;
    int32_t *integers = at(r, r->before, r->in[xent ? SLI_LOSS_TARGET : 0]);
    for (size_t i = 0; (xent || tokens) && i < sli_cuda_rows_of(p); i++)
        integers[i] = xent ? below(&seed, -1, p->units) : below(&seed, 0, p->inputs);
    int32_t *lengths = at(r, r->before, r->in[SLI_LOSS_LENGTHS]);
    for (int b = 0; lengths && b < p->batch; b++) lengths[b] = below(&seed, 0, p->steps + 1);
    uint8_t *mask = at(r, r->before, r->in[SLI_LOSS_MASK]);
    for (size_t i = 0; mask && i < sli_cuda_rows_of(p); i++) mask[i] = test_random(&seed) > -0.4;
    memset(at(r, r->before, r->metrics), 0, 3 * sizeof(double));
}

static void start(rig *r, const device_queue *q, const char *text, int segment, unsigned accumulate) {
    memset(r, 0, sizeof *r);
    REQUIRE_OK(sli_problem_parse(text, &r->problem));
    r->row = find_row(q->rows, &r->problem, &q->caps);
    if (!r->row) r->row = find_row(sli_ref_kernels, &r->problem, &q->caps); /* what a CPU has no row for */
    r->reference = find_row(sli_ref_kernels, &r->problem, &q->caps);
    REQUIRE(r->row && r->reference && r->row->device == q->caps.kind);
    r->accumulate = accumulate;
    r->bytes = GUARD;
    add_tensors(r);
    add_booked(r, &q->caps, segment);
    fill(r, accumulate);
}

/* The call of steps [t0, t0 + steps) on a block. */
static sli_call segment_call(const rig *r, char *block, int t0, int steps) {
    const sli_problem *p = &r->problem;
    const size_t row = (size_t)t0 * (size_t)p->batch, rows = sli_cuda_rows_of(p);
    sli_call call = {.problem = *p, .chunk = CHUNK, .t0 = t0, .total_steps = p->steps, .training = p->train};
    if (p->steps > 0) call.problem.steps = steps;
    call.rng_layer = 2 << 8;
    call.accumulate = r->accumulate;
    /* A row of [t][b] takes its share of the place's bytes. */
#define SEGMENT(index) \
    ((index) < 0 || !at(r, block, index) ? NULL : (char *)at(r, block, index) + row * (r->places[index].bytes / rows))
    for (int k = 0; k <= SLI_LOSS_MASK; k++)
        if (k != SLI_LOSS_LENGTHS || p->op == SLI_OP_MERGE) call.in[k] = SEGMENT(r->in[k]);
    if (r->in[SLI_LOSS_LENGTHS] >= 0 && p->op != SLI_OP_MERGE)
        call.in[SLI_LOSS_LENGTHS] = at(r, block, r->in[SLI_LOSS_LENGTHS]);
    for (int k = 0; k < PARTS; k++) call.d_in[k] = SEGMENT(r->d_in[k]);
    call.out[0] = SEGMENT(r->out[0]);
    call.d_out[0] = SEGMENT(r->dy);
#undef SEGMENT
    call.param[0] = at(r, block, r->param);
    call.d_param[0] = at(r, block, r->d_param);
    call.saved = at(r, block, r->saved);
    call.scratch = at(r, block, r->scratch);
    call.saved_bytes = r->places[r->saved].bytes;
    call.scratch_bytes = r->places[r->scratch].bytes;
    call.scalars = at(r, block, r->scalars);
    call.metrics = at(r, block, r->metrics);
    return call;
}

static void submit(const device_queue *q, sli_kernel_fn function, const sli_call *call) {
    if (q)
        REQUIRE_OK(q->ops->submit(q->queue, function, call));
    else
        function(call);
}

/* Forward over the segments, then backward from the last, with its forward repeated. q NULL: the reference, on the host. */
static void run_segments(const rig *r, const device_queue *q, char *block, int segment) {
    const sli_kernel *row = q ? r->row : r->reference;
    const int T = r->problem.steps > 0 ? r->problem.steps : 1, segments = (T + segment - 1) / segment;
    for (int pass = 0; pass < 2 * segments; pass++) {
        const bool back = pass >= segments;
        const int s = back ? 2 * segments - 1 - pass : pass, t0 = s * segment;
        sli_call call = segment_call(r, block, t0, t0 + segment < T ? segment : T - t0);
        call.recompute = back;
        if (q && r->scaled) call.scaling = at(r, block, r->scaling);
        if (!back || segments > 1) submit(q, row->forward, &call);
        if (back && r->problem.train && row->backward) submit(q, row->backward, &call);
    }
}

static char *run_reference(rig *r) {
    char *block = malloc(r->bytes);
    REQUIRE(block != NULL);
    memcpy(block, r->before, r->bytes);
    *(sli_scalars *)at(r, block, r->scalars) =
        (sli_scalars){.seed = 5, .step = 3, .micro_step = 1, .loss_scale = 0.125};
    run_segments(r, NULL, block, r->problem.steps > 0 ? r->problem.steps : 1);
    return block;
}

static char *run_device(rig *r, const device_queue *q, int segment) {
    char *copy = malloc(r->bytes);
    void *block;
    REQUIRE(copy != NULL);
    memcpy(copy, r->before, r->bytes);
    const double scale = r->scaled ? 1024 : 1;
    *(sli_scalars *)at(r, copy, r->scalars) =
        (sli_scalars){.seed = 5, .step = 3, .micro_step = 1, .loss_scale = 0.125 / scale};
    *(sli_scaling *)at(r, copy, r->scaling) = (sli_scaling){.scale = scale};
    REQUIRE_OK(q->ops->alloc(q->device, r->bytes, &block));
    REQUIRE_OK(q->ops->upload(q->queue, block, copy, r->bytes));
    run_segments(r, q, block, segment);
    REQUIRE_OK(q->ops->download(q->queue, copy, block, r->bytes));
    q->ops->free(q->device, block, r->bytes);
    return copy;
}

/* rms of the difference over rms of what is expected. */
static double distance(const place *place, const char *got, const char *expected) {
    double difference = 0, size = 0;
    const size_t each = place->doubles ? sizeof(double) : sizeof(float);
    for (size_t i = place->at; i < place->at + place->bytes; i += each) {
        const void *g = got + i, *e = expected + i;
        const double a = place->doubles ? *(const double *)g : (double)*(const float *)g;
        const double b = place->doubles ? *(const double *)e : (double)*(const float *)e;
        difference += (a - b) * (a - b);
        size += b * b;
    }
    return difference == 0 ? 0 : sqrt(difference / (size > 0 ? size : 1));
}

/* Written places within the tolerance; everything else but private memory as it was. */
static void compare(const rig *r, const char *got, const char *expected, double tolerance, const char *what) {
    size_t next = 0;
    for (int k = 0; k <= r->count; k++) {
        const size_t end = k < r->count ? r->places[k].at : r->bytes;
        if (memcmp(got + next, r->before + next, end - next) != 0)
            test_fail(__FILE__, __LINE__, "%s: the guard before place %d was overwritten", what, k);
        if (k == r->count) break;
        const place *place = &r->places[k];
        next = place->at + place->bytes;
        if (place->kind == GIVEN && memcmp(got + place->at, r->before + place->at, place->bytes) != 0)
            test_fail(__FILE__, __LINE__, "%s: place %d is an input and was overwritten", what, k);
        const double off = place->kind == WRITTEN ? distance(place, got, expected) : 0;
        if (!(off <= tolerance))
            test_fail(__FILE__, __LINE__, "%s: place %d is off by %g (relative rms, allowed %g)", what, k, off,
                      tolerance);
    }
}

static void same_bits(const rig *r, const char *a, const char *b, const char *what, int segment) {
    for (int k = 0; k < r->count; k++)
        if (r->places[k].kind == WRITTEN && memcmp(a + r->places[k].at, b + r->places[k].at, r->places[k].bytes) != 0)
            test_fail(__FILE__, __LINE__, "%s: place %d has other bits in segments of %d", what, k, segment);
}

static void check_row(const device_queue *q, const char *text, bool segments, unsigned accumulate, bool scaled) {
    rig r;
    sli_problem p;
    REQUIRE_OK(sli_problem_parse(text, &p));
    const int T = p.steps > 0 ? p.steps : 1;
    start(&r, q, text, T, accumulate);
    r.scaled = scaled;
    char *expected = run_reference(&r), *got = run_device(&r, q, T);
    compare(&r, got, expected, 2e-6, text);
    for (int segment = CHUNK; segments && p.steps > segment; segment *= 2) {
        char *other = run_device(&r, q, segment);
        compare(&r, other, expected, 2e-6, text);
        same_bits(&r, other, got, text, segment);
        free(other);
    }
    char *again = run_device(&r, q, T);
    same_bits(&r, again, got, text, T);
    free(again);
    free(expected);
    free(got);
    free(r.before);
}

/* ------------------------------------------------------------------------------------------------------ problems -- */
static const char *const cut_problems[] = {
    "embed:b7_t9_i13_h50_train",
    "embed:b3_t4_i5_h3",
    "embed:b1_t1_i1_h1_train",
    "embed:b17_t9_i65_h33_train",
    "embed:b70_t70_i300_h8_train",
    "embed:b50_t90_i70000_h5_train",
    "embed:b64_t64_i3_h4_train",
    "embed:b41_t100_i2_h132_train",
    "embed:b9_i70_h260_train",
    "onehot:b7_t9_i13",
    "onehot:b3_t9_i16",
    "dropout:b7_t9_h13_train+drop=0.3",
    "dropout:b5_t9_h31_train+drop=0.5",
    "dropout:b4_t9_h31_train+drop=0.5",
    "dropout:b5_t3_h9+drop=0.5",
    "dropout:b5_h12_train+drop=0.9",
    "xent:b7_t9_h65_train",
    "xent:b20_t6_h1000_train",
    "xent:b7_t9_h5_train+lengths",
    "xent:b7_t9_h6_train+mask=holes",
    "xent:b9_h3_train",
    "xent:b9_t4_h33",
    "xent:b1_t1_h2_train",
    "xent:b5_t9_h1025_train",
    "xent:b5_t3_h4000_train",
    "xent:b2_t2_h20001_train",
    "xent:b3_t2_h60000_train",
    "xent:b300_t9_h2_train+lengths",
    "xent:b30_t20_h4_train",
    "bce:b7_t9_h5_train",
    "bce:b33_t15_h1_train+lengths",
    "bce:b3_t4_h300_train",
    "bce:b3_t2_h1300_train+mask=left",
    "mse:b7_t9_h5_train",
    "mse:b7_h1_train",
    "mse:b7_t9_h40_train+lengths",
    "merge:b3_t9_h12_train+mode=concat+widths=4:8",
    "merge:b3_t4_h6_train+mode=concat+widths=1:5",
    "merge:b3_h6_train+mode=mul+parts=4",
    "merge:b3_t4_h6_train+mode=ave+parts=3",
    "merge:b3_t4_h9_train+mode=concat+parts=4+widths=2:3:1:3",
    "merge:b3_t5_h7_train+parts=4",
    "merge:b3_t9_h8_train+mode=mul",
    "merge:b5_t9_h12",
};
static const char *const whole_problems[] = {"flip:b3_t5_h7_train", "flip:b4_t6_h7_train", "flip:b1_t1_h1_train",
                                             "flip:b2_t70_h65"};

static void check_rows(const device_queue *q) {
    for (unsigned accumulate = 0; accumulate < 16; accumulate += 15) {
        for (size_t i = 0; i < sizeof cut_problems / sizeof *cut_problems; i++)
            check_row(q, cut_problems[i], true, accumulate, false);
        for (size_t i = 0; i < sizeof whole_problems / sizeof *whole_problems; i++)
            check_row(q, whole_problems[i], false, accumulate, false);
    }
}

static void open_far(device_queue *q) {
    *q = (device_queue){.ops = &sli_far_device, .rows = sli_cpu_kernels};
    REQUIRE_OK(q->ops->caps("far", 1, &q->caps));
    REQUIRE_OK(q->ops->open(&q->caps, NULL, &q->device));
    REQUIRE_OK(q->ops->queue_new(q->device, &q->queue));
}

static void open_gpu(device_queue *q) {
    *q = (device_queue){.ops = &sli_cuda_device, .rows = sli_cuda_kernels};
    sli_why why = {""};
    if (!sli_cuda_get(&why)) test_skip("%s", why.text);
    if (q->ops->caps("cuda:0", 0, &q->caps) != SL_OK) test_skip("%s", sl_error_detail());
    REQUIRE_OK(q->ops->open(&q->caps, NULL, &q->device));
    REQUIRE_OK(q->ops->queue_new(q->device, &q->queue));
}

static void close_queue(device_queue *q) {
    q->ops->queue_free(q->queue);
    q->ops->close(q->device);
}

TEST(far_rows_equal_reference_in_guarded_blocks) {
    device_queue q;
    open_far(&q);
    check_rows(&q);
    close_queue(&q);
}

TEST(cuda_rows_equal_reference_in_guarded_blocks) {
    device_queue q;
    open_gpu(&q);
    check_rows(&q);
    for (size_t i = 0; i < sizeof cut_problems / sizeof *cut_problems; i++)
        if (strstr(cut_problems[i], "xent:") || strstr(cut_problems[i], "bce:") || strstr(cut_problems[i], "mse:"))
            check_row(&q, cut_problems[i], true, 0, true);
    close_queue(&q);
}
