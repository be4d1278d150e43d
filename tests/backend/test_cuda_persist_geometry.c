/* The geometry of the persistent recurrence on GPUs that need not exist: what is chosen covers the problem and fits the chip,
 * what is refused says why, and predicted steps agree with those that a prototype took. */
#include "backend/cuda/persist_geometry.h"
#include "backend/cuda/step_layout.h"
#include "cuda_caps.h"
#include "test.h"

static sli_problem problem(sli_op op, int units, int batch, sl_dtype dtype, bool bidirectional) {
    sli_problem p = {.op = op, .layers = 1, .batch = batch, .steps = 10, .inputs = 32, .units = units, .train = true};
    p.dtype = dtype;
    p.bidirectional = bidirectional;
    return p;
}

/* Clusters that an H200 was measured to run at once; others have fewer sizes known: a lower bound by whole GPCs of 16. */
static int most_clusters(int size, int multiprocessors) {
    if (multiprocessors != 132) return multiprocessors / size;
    return size == 1 ? 132 : size == 2 ? 66 : size <= 4 ? 132 / 3 : size <= 8 ? 23 : 7;
}

static int gates_of(sli_op op) {
    return op == SLI_OP_LSTM ? 4 : op == SLI_OP_GRU ? 3 : 1;
}

#define HOLDS(condition) \
    if (!(condition)) return #condition

/* What the kernel takes for granted. NULL, or the first that does not hold. */
static const char *broken_cover(const sli_persist_geometry *g, const sli_problem *p, bool backward, bool built_in) {
    const int multiple = sli_persist_unit_multiple(g->math, g->gather, g->backward);
    HOLDS(g->gates == gates_of(p->op) && g->backward == backward);
    HOLDS(g->math == (g->scaled ? SL_F16 : p->dtype) ||
          (sli_persist_operand(p->dtype) == 4 && g->math == SL_F32 && (g->few > 0 || p->dtype == SL_F32X3)));
    HOLDS(g->few == 0 || g->few == 1 || g->few == 2 || g->few == 4);
    HOLDS(g->few == 0 || (g->tiles_n == 1 && g->halves == 1 && g->couriers == 0));
    HOLDS(g->few == 0 || g->math == SL_F32 ||
          (g->few == 4 && g->gather != SLI_PERSIST_GRID && sli_persist_cluster(g) > 1));
    HOLDS(g->few == 0 || g->math == SL_F32 || g->gather != SLI_PERSIST_CLUSTER || sli_persist_cell_units(g) >= 8);
    HOLDS(g->directions == (p->bidirectional ? 2 : 1));
    HOLDS(g->units >= 4 && g->units % multiple == 0);
    HOLDS(g->reduce >= 1 && g->spread >= 1);
    HOLDS(sli_persist_group(g) * g->units >= p->units);
    HOLDS(built_in || (sli_persist_group(g) - g->reduce) * g->units < p->units); /* no q without units */
    HOLDS(g->warps_m * g->tiles_m * sli_persist_tile_rows(g->math) >= sli_persist_m(g));
    HOLDS(g->warps_k * g->tiles_k * sli_persist_tile_k(g->math) >= sli_persist_k(g));
    HOLDS(g->couriers == 0
              ? g->halves == 1 || g->halves == 2
              : g->halves != (g->reduce > 1 && g->apart == 0 ? 2 : 0) && g->halves <= SLI_PERSIST_MOST_TURNS);
    HOLDS(g->apart == 0 || (g->apart == SLI_PERSIST_APART && sli_persist_together(g)));
    HOLDS(g->couriers == 0 || (g->couriers == SLI_PERSIST_COURIERS && sli_persist_warps(g) == 8));
    HOLDS(g->couriers > 0 || (g->share == 1 && g->chunks == 1));
    HOLDS(!g->meets || (g->couriers > 0 && g->reduce > 1));
    HOLDS(g->couriers == 0 || (g->slots >= 2 && g->tiles_k % g->chunks == 0 && g->spread % g->share == 0));
    HOLDS(g->chunks == 1 || g->tiles_k / g->chunks % 2 == 0);
    HOLDS((int64_t)g->groups * g->halves * sli_persist_rows(g) >= p->batch);
    HOLDS((int64_t)(g->groups - 1) * g->halves * sli_persist_rows(g) < p->batch);
    HOLDS(g->halves == 1 || p->batch > 8);
    HOLDS(sli_persist_warps(g) >= 4 && sli_persist_warps(g) <= SLI_PERSIST_MOST_WARPS);
    HOLDS(g->tiles_m >= 1 && g->tiles_m <= 8 && g->tiles_n >= 1 && g->tiles_n <= 4);
    HOLDS(g->tiles_m * g->tiles_n <= (g->math == SL_F32 ? 8 : 16));
    HOLDS(g->tiles_k >= 1 && g->tiles_k <= (g->math == SL_F32 || g->math == SL_F32X3 ? 64 : 128));
    return NULL;
}

static const char *broken_fit(const sli_persist_geometry *g, const sli_caps *caps, sli_persist_kind kind) {
    const sli_persist_shared at = sli_persist_shared_of(g);
    const int turns = g->apart == 0 ? 232
                      : g->backward ? 160
                                    : 168; /* of those that multiply: the others leave theirs */
    const int limit = g->couriers ? turns : 65536 / sli_persist_threads(g) / 8 * 8;
    const int streamed = g->tiles_k - g->in_registers - g->in_shared;
    HOLDS(g->in_registers >= 0 && g->in_shared >= 0 && streamed >= 0);
    HOLDS(g->in_registers % 2 == 0 || g->in_registers == g->tiles_k);
    HOLDS(g->in_shared % 2 == 0 || streamed == 0);
    HOLDS((g->ring > 0) == (streamed > 0) && g->ring <= (streamed + 1) / 2);
    HOLDS(streamed == 0 || kind == SLI_PERSIST_KIND_GRID);
    if (g->tight) {
        HOLDS(g->math == SL_TF32 && !g->before && !sli_persist_together(g));
        HOLDS(g->tiles_k % 2 == 0 && g->in_registers % 2 == 0 && g->in_shared % 2 == 0);
        sli_persist_geometry wide = *g; /* as they are registers do not hold them all */
        wide.tight = false;
        wide.in_registers = g->tiles_k;
        wide.in_shared = wide.ring = 0;
        HOLDS(sli_persist_registers(&wide) > (limit < 255 ? limit : 255));
    }
    HOLDS(streamed == 0 || g->couriers == 0 || (g->math != SL_F32 && g->math != SL_F32X3));
    HOLDS(streamed == 0 || g->chunks == 1 || g->in_registers % 2 + g->in_shared % 2 == 0); /* pairs are of one chunk */
    HOLDS(at.total <= caps->shared_memory);
    HOLDS(sli_persist_registers(g) <= (limit < 255 ? limit : 255));
    HOLDS(sli_persist_cluster(g) <= (caps->compute_capability >= 120 ? 8 : 16));
    HOLDS(sli_persist_cluster(g) == 1 || caps->compute_capability >= 90);
    HOLDS(g->couriers == 0 || (caps->compute_capability == 90 && kind == SLI_PERSIST_KIND_GRID));
    if (kind == SLI_PERSIST_KIND_GRID) {
        const int clusters = sli_persist_ctas(g) / sli_persist_cluster(g);
        HOLDS(g->gather == SLI_PERSIST_GRID);
        HOLDS(sli_persist_ctas(g) <= caps->multiprocessors);
        HOLDS(clusters <= most_clusters(sli_persist_cluster(g), caps->multiprocessors));
    } else if (g->backward || sli_persist_group(g) == 1) {
        HOLDS(g->gather == SLI_PERSIST_LOCAL && g->spread == 1);
    } else {
        HOLDS(g->gather == SLI_PERSIST_CLUSTER && g->reduce == 1);
    }
    return NULL;
}

/* Parts in order, aligned, as large as they are said to be. */
static const char *broken_shared(const sli_persist_geometry *g) {
    const sli_persist_shared at = sli_persist_shared_of(g);
    const size_t operand = (size_t)sli_persist_operand(g->math), warps = (size_t)sli_persist_warps(g);
    const size_t covered = (size_t)(g->warps_k * g->tiles_k * sli_persist_tile_k(g->math)) * operand;
    const size_t rows = (size_t)sli_persist_rows(g), halves = (size_t)g->halves,
                 slab = warps * (size_t)g->tiles_m * (g->tight ? 320 : 512);
    const size_t m = (size_t)(g->warps_m * g->tiles_m * sli_persist_tile_rows(g->math));
    const size_t own = (size_t)(g->units * sli_persist_ym(g)), reduce = (size_t)g->reduce;
    HOLDS(at.v_row >= covered && at.v_row < covered + 16 && at.v_row % 16 == 0);
    const bool turns = g->couriers > 0;
    HOLDS(at.v_buffers == (g->gather == SLI_PERSIST_GRID ? 1 : 2));
    HOLDS(at.v % 128 == 0 && at.partial % 128 == 0 && at.arriving % 128 == 0 && at.weights % 128 == 0);
    HOLDS(at.barriers % 128 == 0);
    /* Sums in the place of v: of weights that stream, where each v fills all of it, and a counter tells of it. */
    const bool over = at.partial == at.v, streams = g->in_registers + g->in_shared < g->tiles_k;
    const size_t row = (size_t)sli_persist_k(g) * (size_t)sli_persist_operand(g->math);
    const size_t v = turns ? (size_t)g->slots * rows * at.v_row / (size_t)g->chunks
                           : halves * (size_t)at.v_buffers * rows * at.v_row;
    HOLDS(at.partial - at.v >= v || over);
    HOLDS(!over || (streams && (reduce == 1 || g->warps_k > 1) && halves == 1 && at.v_row == row && !turns &&
                    !sli_persist_words_tell(g)));
    HOLDS(at.arriving - at.v >= v);
    if (reduce == 1 || g->warps_k > 1)
        HOLDS(at.arriving - at.partial >= (turns ? 1 : halves) * (size_t)g->warps_k * rows * m * 4);
    if (reduce > 1)
        HOLDS(at.weights - at.arriving >= (g->meets ? 2 : turns ? 4 : halves * 2) * reduce * rows * own * 4);
    HOLDS(at.ring - at.weights >= (size_t)g->in_shared * slab);
    HOLDS(at.barriers - at.ring >= 2 * (size_t)g->ring * slab);
    const size_t of_ring = (size_t)sli_persist_warps(g) * (size_t)g->ring;
    HOLDS(at.sending - at.barriers >=
          8 * (of_ring +
               (turns ? 2 * (size_t)g->slots + 4 + (g->apart > 0 || g->meets ? 3 : 0) + (g->meets ? 2 : 1) * halves
                      : 8)));
    HOLDS(at.state - at.sending >= (g->gather == SLI_PERSIST_CLUSTER ? 128 * (size_t)sli_persist_warps(g) : 0));
    const size_t states = g->gates != 4 ? 1 : 2;
    const size_t lanes = 32 * (size_t)sli_persist_cells(g) * (size_t)sli_persist_cell_warps(g);
    HOLDS(lanes >= (size_t)g->units * rows);
    if (turns) HOLDS(at.ranges - at.state >= halves * states * lanes * sizeof(float));
    if (turns) HOLDS(at.total - at.ranges >= halves * 2 * sizeof(int32_t));
    HOLDS(sli_persist_packed_bytes(g) == (size_t)sli_persist_group(g) * (size_t)g->tiles_k * slab);
    return NULL;
}

static void check(const sli_problem *p, const sli_caps *caps, sli_persist_kind kind, bool backward, int *taken) {
    sli_persist_geometry g, again;
    sli_why why = {""};
    memset(&g, 0, sizeof g);
    memset(&again, 0, sizeof again);
    const char *broken = NULL;
    char text[160];
    if (!sli_persist_choose(p, caps, kind, backward, &g, &why)) {
        if (strlen(why.text) < 20) broken = "a refusal without a reason";
    } else {
        ++*taken;
        sli_persist_choose(p, caps, kind, backward, &again, &why);
        sli_persist_describe(&g, text, sizeof text);
        const double seconds = sli_persist_step_seconds(&g, p, caps);
        broken = broken_cover(&g, p, backward, caps->no_compiler);
        if (!broken) broken = broken_fit(&g, caps, kind);
        if (!broken) broken = broken_shared(&g);
        const bool exact = g.few > 0 && g.math == SL_F32 && p->batch == 1; /* a single row, but through a cluster */
        if (!broken && g.scaled != (!exact && !backward && !caps->no_compiler && sli_persist_scales(p)))
            broken = "whether it is scaled";
        if (!broken && memcmp(&g, &again, sizeof g) != 0) broken = "chosen twice, it differs";
        if (!broken && !(seconds > 1e-8 && seconds < 1)) broken = "seconds";
        if (!broken && (!strstr(text, "units a block") || strlen(text) > 150)) broken = text;
    }
    if (broken)
        test_fail(__FILE__, __LINE__, "%s b%d h%d %s%s, sm_%d, %s, %s: %s", sli_op_name(p->op), p->batch, p->units,
                  sli_dtype_name(p->dtype), p->bidirectional ? " bi" : "", caps->compute_capability,
                  kind == SLI_PERSIST_KIND_GRID ? "grid" : "cluster", backward ? "backward" : "forward", broken);
}

static const sl_dtype dtypes[] = {SL_F32, SL_TF32, SL_BF16, SL_F16, SL_F32X3};
static const int batches[] = {1, 3, 17, 64, 129, 256, 1000};

TEST(cuda_persist_geometry_covers_and_fits) {
    static const int units[] = {1,   2,   3,   4,    5,    7,    8,    13,   16,   31,   37,   64,   97,  100,
                                127, 128, 131, 192,  200,  251,  256,  300,  384,  509,  512,  521,  650, 768,
                                769, 896, 997, 1000, 1024, 1031, 1280, 1499, 1500, 1536, 1999, 2048, 2099};
    static const int capabilities[] = {90, 80, 90, 100, 90, 120, 90};
    int turn = 0, taken = 0;
    for (size_t h = 0; h < sizeof units / sizeof *units; h += TEST_ONE_IN(8))
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
            for (size_t d = (h + b) % 2; d < sizeof dtypes / sizeof *dtypes; d += 2, turn++)
                for (int way = 0; way < 4; way++) {
                    const sli_op ops[] = {SLI_OP_LSTM, SLI_OP_GRU, SLI_OP_RNN};
                    const sli_caps caps = invented(capabilities[(size_t)turn % 7]);
                    const sli_problem p = problem(ops[turn % 3], units[h], batches[b], dtypes[d], turn % 4 == 3);
                    check(&p, &caps, (sli_persist_kind)(way / 2), way % 2, &taken);
                }
    CHECK(taken > turn); /* of 4 turn */
}

/* Sizes that people have, trained in bf16 on an H200, and whatever kind: there is one. */
TEST(cuda_persist_geometry_takes_everyday_sizes) {
    static const int units[] = {1, 32, 64, 100, 128, 200, 256, 300, 512, 650, 768, 1000, 1024, 1500};
    const sli_caps caps = invented(90);
    for (size_t h = 0; h < sizeof units / sizeof *units; h++)
        for (int batch = 1; batch <= 20; batch += 19)
            for (int op = SLI_OP_LSTM; op <= SLI_OP_RNN; op++) {
                const sli_problem p = problem((sli_op)op, units[h], batch, SL_BF16, false);
                bool any = false;
                for (int kind = 0; kind < 2; kind++) {
                    sli_persist_geometry g;
                    sli_why why;
                    any |= sli_persist_choose(&p, &caps, (sli_persist_kind)kind, false, &g, &why) &&
                           sli_persist_choose(&p, &caps, (sli_persist_kind)kind, true, &g, &why);
                }
                if (!any) test_fail(__FILE__, __LINE__, "%s h%d b%d", sli_op_name(p.op), p.units, batch);
            }
}

/* Clusters come in waves: a batch never is too large. */
TEST(cuda_persist_geometry_clusters_take_any_batch) {
    const sli_caps caps = invented(90);
    for (int backward = 0; backward < 2; backward++)
        for (int units = 50; units <= 650; units += 150) {
            sli_persist_geometry few, many;
            sli_why why = {""};
            sli_problem p = problem(SLI_OP_LSTM, units, 1, SL_BF16, true);
            if (!sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_CLUSTER, backward, &few, &why)) continue;
            const double one = sli_persist_step_seconds(&few, &p, &caps);
            p.batch = 100000;
            CHECK(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_CLUSTER, backward, &many, &why));
            CHECK(sli_persist_step_seconds(&many, &p, &caps) > 10 * one);
        }
}

TEST(cuda_persist_geometry_says_why_not) {
    const sli_caps ampere = invented(80), hopper = invented(90);
    const struct {
        const sli_caps *caps;
        sli_persist_kind kind;
        int units, batch;
        const char *reason;
    } cases[] = {
        {&ampere, SLI_PERSIST_KIND_CLUSTER, 64, 8, "sm_80"},
        {&hopper, SLI_PERSIST_KIND_CLUSTER, 2048, 8, "33.6 MB of recurrent weights, more than a cluster of 16"},
        {&hopper, SLI_PERSIST_KIND_GRID, 2048, 5000, "a batch of 5000"},
        {&hopper, SLI_PERSIST_KIND_GRID, 30000, 5000, "30000 units do not fit"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int backward = 0; backward < 2; backward++) {
            const sli_problem p = problem(SLI_OP_LSTM, cases[i].units, cases[i].batch, SL_BF16, false);
            sli_persist_geometry g;
            sli_why why = {""};
            CHECK(!sli_persist_choose(&p, cases[i].caps, cases[i].kind, backward, &g, &why));
            CHECK(!sli_persist_choose(&p, cases[i].caps, cases[i].kind, backward, &g, NULL));
            if (!strstr(why.text, cases[i].reason)) test_fail(__FILE__, __LINE__, "\"%s\"", why.text);
            if (i > 0 && !strstr(why.text, backward ? "backward" : "forward"))
                test_fail(__FILE__, __LINE__, "\"%s\"", why.text);
        }
}

/* Steps measured on an H200 on 2026-11-21, LSTM in bf16, by `sluice bench` of 300 to 1000 steps; backward from 512 units on as in
 * bench/results/geometries_h200_2026-11-21.txt, less 5 us of the launch shared by its steps. What is chosen for the same problem
 * is predicted to take no longer. */
TEST(cuda_persist_geometry_predicts_what_was_measured) {
    enum { LOCAL = SLI_PERSIST_LOCAL, CLUSTER = SLI_PERSIST_CLUSTER, GRID = SLI_PERSIST_GRID };
    static const struct {
        int H, batch, backward, gather, units, reduce, spread, tiles_n, halves, warps_m, warps_k, tiles_m, tiles_k,
            in_registers;
        double us;
    } measured[] = {{256, 16, 0, CLUSTER, 16, 1, 16, 1, 1, 2, 2, 2, 8, 8, 0.74},
                    {256, 16, 0, CLUSTER, 32, 1, 8, 1, 1, 4, 2, 2, 8, 8, 0.84},
                    {512, 56, 0, CLUSTER, 32, 1, 16, 1, 1, 4, 2, 2, 16, 16, 1.38},
                    {512, 64, 0, CLUSTER, 32, 1, 16, 2, 1, 4, 2, 2, 16, 16, 2.34},
                    {512, 64, 0, CLUSTER, 32, 1, 16, 1, 2, 4, 2, 2, 16, 16, 2.31},
                    {650, 20, 0, CLUSTER, 48, 1, 14, 1, 1, 4, 2, 3, 21, 10, 2.32},
                    {256, 16, 1, LOCAL, 16, 16, 1, 1, 1, 8, 1, 2, 4, 4, 1.25},
                    {256, 16, 1, LOCAL, 32, 8, 1, 1, 1, 8, 1, 2, 8, 8, 1.50},
                    {512, 16, 1, LOCAL, 32, 16, 1, 1, 1, 8, 1, 4, 8, 8, 1.66},
                    {1500, 20, 0, GRID, 12, 1, 125, 3, 1, 3, 4, 1, 24, 24, 3.80},
                    {650, 20, 0, GRID, 12, 1, 55, 2, 1, 1, 8, 3, 6, 6, 2.41},
                    {1024, 64, 0, GRID, 32, 1, 32, 2, 1, 4, 2, 2, 32, 16, 4.40},
                    {512, 64, 1, GRID, 32, 2, 8, 1, 1, 2, 4, 2, 16, 16, 2.58},
                    {768, 16, 1, GRID, 16, 8, 6, 1, 1, 4, 2, 2, 12, 12, 2.30},
                    {1024, 32, 1, GRID, 32, 2, 16, 1, 1, 2, 4, 2, 32, 18, 3.62},
                    {1500, 20, 1, GRID, 16, 8, 12, 3, 1, 4, 2, 2, 24, 12, 5.06},
                    {650, 20, 1, GRID, 12, 4, 14, 2, 1, 1, 8, 3, 6, 6, 3.50}};
    const sli_caps caps = invented(90);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        const bool backward = measured[i].backward;
        sli_persist_geometry chosen, g = {.gates = 4, .math = SL_BF16, .backward = backward, .directions = 1};
        g.share = g.chunks = 1;
        g.gather = (sli_persist_gather)measured[i].gather;
        g.units = measured[i].units;
        g.reduce = measured[i].reduce;
        g.spread = measured[i].spread;
        g.tiles_n = measured[i].tiles_n;
        g.halves = measured[i].halves;
        g.warps_m = measured[i].warps_m;
        g.warps_k = measured[i].warps_k;
        g.tiles_m = measured[i].tiles_m;
        g.tiles_k = measured[i].tiles_k;
        g.in_registers = measured[i].in_registers;
        g.in_shared = g.tiles_k - g.in_registers;
        const int rows = g.halves * sli_persist_rows(&g);
        g.groups = (measured[i].batch + rows - 1) / rows;
        sli_problem p = problem(SLI_OP_LSTM, measured[i].H, measured[i].batch, SL_BF16, false);
        p.train = backward;
        sli_why why = {""};
        const double us = 1e6 * sli_persist_step_seconds(&g, &p, &caps);
        if (us < 0.7 * measured[i].us || us > 1.35 * measured[i].us)
            test_fail(__FILE__, __LINE__, "h%d b%d%s: %.2f us, measured %.2f", measured[i].H, measured[i].batch,
                      backward ? " backward" : "", us, measured[i].us);
        const sli_persist_kind kind = g.gather == SLI_PERSIST_GRID ? SLI_PERSIST_KIND_GRID : SLI_PERSIST_KIND_CLUSTER;
        REQUIRE(sli_persist_choose(&p, &caps, kind, backward, &chosen, &why));
        CHECK(1e6 * sli_persist_step_seconds(&chosen, &p, &caps) <= 1.15 * us);
    }
}

/* In tf32 one row of 512 units is multiplied as it is, by FFMA, not as one of eight: 41 us for 25 steps on an H200, where 49 were. */
TEST(cuda_persist_geometry_takes_one_row_for_one) {
    const sli_caps caps = invented(90);
    sli_problem p = problem(SLI_OP_LSTM, 512, 1, SL_TF32, false);
    sli_persist_geometry g;
    sli_why why = {""};
    p.train = false;
    REQUIRE(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_GRID, false, &g, &why));
    CHECK(g.few == 1 && g.math == SL_F32);
}

/* tf32 forward is multiplied in f16, scaled, where |v| has a bound, and nowhere else. */
TEST(cuda_persist_geometry_scales_where_v_has_a_bound) {
    static const struct {
        sli_op op;
        sl_activation act, gate;
        bool bounded;
    } cases[] = {
        {SLI_OP_LSTM, SL_ACT_DEFAULT, SL_ACT_DEFAULT, true}, {SLI_OP_LSTM, SL_ACT_SOFTSIGN, SL_ACT_HARD_SIGMOID, true},
        {SLI_OP_LSTM, SL_ACT_RELU, SL_ACT_SIGMOID, false},   {SLI_OP_LSTM, SL_ACT_LINEAR, SL_ACT_SIGMOID, false},
        {SLI_OP_LSTM, SL_ACT_TANH, SL_ACT_RELU, false},      {SLI_OP_GRU, SL_ACT_TANH, SL_ACT_HARD_SIGMOID_K2, true},
        {SLI_OP_GRU, SL_ACT_TANH, SL_ACT_TANH, false}, /* z below 0: h grows */
        {SLI_OP_GRU, SL_ACT_TANH, SL_ACT_LINEAR, false},     {SLI_OP_RNN, SL_ACT_TANH, SL_ACT_DEFAULT, true},
        {SLI_OP_RNN, SL_ACT_RELU, SL_ACT_DEFAULT, false}};
    const sli_caps caps = invented(90);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int train = 0; train < 2; train++) {
            sli_persist_geometry g, back;
            sli_why why = {""};
            sli_problem p = problem(cases[i].op, 256, 16, SL_TF32, false);
            p.act = cases[i].act;
            p.recurrent_act = cases[i].gate;
            p.train = train;
            REQUIRE(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_CLUSTER, false, &g, &why));
            CHECK(g.scaled == cases[i].bounded && (!g.scaled || g.math == SL_F16));
            if (train) REQUIRE(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_CLUSTER, true, &back, &why));
            CHECK(!train || (!back.scaled && back.math != SL_F16));
            p.recurrent_dropout = 0.9999; /* d h may be 10,000 times h */
            REQUIRE(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_CLUSTER, false, &g, &why));
            CHECK(!g.scaled);
            p.recurrent_dropout = 0;
            p.dtype = SL_BF16;
            REQUIRE(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_CLUSTER, false, &g, &why));
            CHECK(!g.scaled);
        }
}

/* Forward in many turns, four warps together, cells apart or not, in training, as measured on an H200, 2026-11-21: bf16, two blocks
 * share; less what a launch takes, of 25 steps. */
TEST(cuda_persist_geometry_predicts_turns) {
    static const struct {
        int H, batch, spread, tiles_n, halves, tiles_k, in_registers, chunks, slots, apart;
        double us;
    } measured[] = {{1024, 256, 64, 4, 4, 32, 32, 1, 3, 0, 6.88}, {1024, 128, 64, 4, 2, 32, 32, 1, 3, 0, 4.68},
                    {1024, 64, 64, 2, 2, 32, 32, 1, 4, 0, 3.25},  {1024, 64, 64, 2, 2, 32, 32, 1, 4, 4, 3.39},
                    {512, 256, 32, 4, 2, 16, 16, 1, 4, 0, 3.75},  {2048, 128, 128, 4, 4, 64, 30, 16, 7, 4, 11.33},
                    {2048, 64, 128, 4, 2, 64, 30, 8, 4, 0, 6.14}, {2048, 64, 128, 2, 4, 64, 36, 2, 3, 0, 7.25},
                    {2048, 32, 128, 2, 2, 64, 36, 2, 3, 0, 4.12}};
    const sli_caps caps = invented(90);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        sli_persist_geometry g = {.gates = 4, .math = SL_BF16, .gather = SLI_PERSIST_GRID, .units = 16, .reduce = 1};
        g.spread = measured[i].spread;
        g.tiles_n = measured[i].tiles_n;
        g.halves = measured[i].halves;
        g.couriers = SLI_PERSIST_COURIERS;
        g.apart = measured[i].apart;
        g.share = 2;
        g.chunks = measured[i].chunks;
        g.slots = measured[i].slots;
        g.warps_m = 4;
        g.warps_k = 2;
        g.tiles_m = 1;
        g.tiles_k = measured[i].tiles_k;
        g.in_registers = measured[i].in_registers;
        g.in_shared = g.tiles_k - g.in_registers;
        g.groups = measured[i].batch / (g.halves * sli_persist_rows(&g));
        g.directions = 1;
        sli_problem p = problem(SLI_OP_LSTM, measured[i].H, measured[i].batch, SL_BF16, false);
        p.train = true;
        const double us = 1e6 * sli_persist_step_seconds(&g, &p, &caps);
        CHECK(sli_persist_together(&g));
        if (us < 0.8 * measured[i].us || us > 1.25 * measured[i].us)
            test_fail(__FILE__, __LINE__, "h%d b%d in %d turns: %.2f us, measured %.2f", measured[i].H,
                      measured[i].batch, measured[i].halves, us, measured[i].us);
    }
}

/* Weights that stream, as measured on an H200 (streams_h200_2026-11-22.txt; the fourth less what a call then gained by bulk copies), less what a
 * launch takes; where there are slots in turns, as of in_turns_h200_2026-11-22.txt, less W x and launches. */
TEST(cuda_persist_geometry_predicts_streams) {
    static const struct {
        sli_op op;
        sl_dtype math;
        int H, batch, units, reduce, spread, tiles_n, warps_m, warps_k, tiles_m, tiles_k, in_registers, in_shared, ring;
        int halves, chunks, slots, share;
        double us;
    } measured[] = {{SLI_OP_LSTM, SL_TF32, 2048, 16, 16, 2, 64, 2, 4, 2, 2, 64, 18, 6, 5, 1, 1, 0, 1, 10.71},
                    {SLI_OP_LSTM, SL_TF32, 2048, 1, 16, 2, 64, 1, 4, 2, 2, 64, 18, 12, 5, 1, 1, 0, 1, 7.26},
                    {SLI_OP_GRU, SL_TF32, 2048, 32, 32, 2, 32, 2, 4, 2, 3, 64, 10, 2, 3, 1, 1, 0, 1, 16.60},
                    {SLI_OP_LSTM, SL_TF32, 2048, 32, 32, 2, 32, 2, 4, 2, 4, 64, 6, 2, 2, 1, 1, 0, 1, 21.3},
                    {SLI_OP_LSTM, SL_TF32, 2048, 16, 16, 1, 128, 2, 2, 4, 2, 64, 14, 12, 5, 1, 16, 4, 2, 9.5},
                    {SLI_OP_LSTM, SL_TF32, 2048, 32, 16, 2, 64, 4, 4, 2, 2, 64, 10, 2, 5, 1, 16, 3, 1, 14.5},
                    {SLI_OP_LSTM, SL_TF32, 2048, 64, 16, 1, 128, 4, 2, 4, 2, 64, 10, 4, 5, 2, 16, 4, 2, 20.4},
                    {SLI_OP_GRU, SL_TF32, 2048, 32, 16, 2, 64, 4, 2, 4, 3, 32, 4, 2, 3, 1, 16, 4, 1, 8.6},
                    {SLI_OP_LSTM, SL_BF16, 4096, 32, 32, 1, 128, 4, 2, 4, 4, 64, 0, 2, 2, 1, 16, 3, 2, 31.8}};
    const sli_caps caps = invented(90);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        sli_persist_geometry g = {.math = measured[i].math, .gather = SLI_PERSIST_GRID, .directions = 1};
        g.gates = gates_of(measured[i].op);
        g.units = measured[i].units;
        g.reduce = measured[i].reduce;
        g.spread = measured[i].spread;
        g.tiles_n = measured[i].tiles_n;
        g.halves = measured[i].halves;
        g.warps_m = measured[i].warps_m;
        g.warps_k = measured[i].warps_k;
        g.tiles_m = measured[i].tiles_m;
        g.tiles_k = measured[i].tiles_k;
        g.in_registers = measured[i].in_registers;
        g.in_shared = measured[i].in_shared;
        g.ring = measured[i].ring;
        g.chunks = measured[i].chunks;
        g.slots = measured[i].slots;
        g.couriers = g.slots > 0 ? SLI_PERSIST_COURIERS : 0;
        g.share = measured[i].share;
        const int rows = g.halves * sli_persist_rows(&g);
        g.groups = (measured[i].batch + rows - 1) / rows;
        sli_problem p = problem(measured[i].op, measured[i].H, measured[i].batch, measured[i].math, false);
        const char *broken = broken_cover(&g, &p, false, false);
        if (!broken) broken = broken_fit(&g, &caps, SLI_PERSIST_KIND_GRID);
        const double us = 1e6 * sli_persist_step_seconds(&g, &p, &caps);
        if (broken || us < 0.8 * measured[i].us || us > 1.25 * measured[i].us)
            test_fail(__FILE__, __LINE__, "h%d b%d: %.2f us, measured %.2f; %s", measured[i].H, measured[i].batch, us,
                      measured[i].us, broken ? broken : "it fits");
    }
}

/* A ring is as deep as v and sums leave room for, and no cut is given up for a deeper one: where a slice of all rows has room for a
 * shallow ring alone, it still reads its weights once a step, which two slices of half the rows read twice. */
TEST(cuda_persist_geometry_rings_take_the_room_there_is) {
    static const struct {
        sli_op op;
        int units, batch;
        sl_dtype dtype;
        bool backward, one_slice;
    } cases[] = {{SLI_OP_LSTM, 2048, 32, SL_TF32, true, true},  {SLI_OP_LSTM, 4096, 32, SL_TF32, false, true},
                 {SLI_OP_GRU, 2560, 32, SL_TF32, false, true},  {SLI_OP_GRU, 2816, 32, SL_TF32, true, true},
                 {SLI_OP_GRU, 2816, 32, SL_BF16, true, true},   {SLI_OP_LSTM, 4096, 20, SL_BF16, false, true},
                 {SLI_OP_GRU, 1792, 64, SL_TF32, false, false}, {SLI_OP_LSTM, 4096, 16, SL_TF32, false, true},
                 {SLI_OP_LSTM, 4096, 32, SL_BF16, false, true}, {SLI_OP_GRU, 2816, 32, SL_TF32, false, true}};
    const sli_caps caps = invented(90);
    int shallow = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sli_problem p = problem(cases[i].op, cases[i].units, cases[i].batch, cases[i].dtype, false);
        sli_persist_geometry g;
        sli_why why = {""};
        p.train = cases[i].backward;
        if (p.dtype == SL_TF32) p.act = SL_ACT_RELU; /* |v| has no bound: as it is */
        REQUIRE(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_GRID, cases[i].backward, &g, &why));
        if (g.ring == 0 || (g.groups == 1) != cases[i].one_slice)
            test_fail(__FILE__, __LINE__, "case %zu: a ring of %d, %d slices", i, g.ring, g.groups);
        const int pair = 2 * sli_persist_warps(&g) * g.tiles_m * (g.tight ? 320 : 512), most = 80 * 1024 / pair;
        if (g.ring >= most || g.ring >= 8 || 2 * g.ring >= g.tiles_k - g.in_registers - g.in_shared) continue;
        shallow++;
        g.ring++;
        g.in_shared = 0;
        CHECK(sli_persist_shared_of(&g).total > caps.shared_memory);
    }
    CHECK(shallow >= 2);
}

/* More of anything takes no less. */
TEST(cuda_persist_geometry_predictions_grow) {
    const sli_caps caps = invented(90);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        double before = 0;
        for (int batch = 8; batch <= 2048; batch *= 4) {
            const sli_problem p = problem(SLI_OP_LSTM, 256, batch, dtypes[d], false);
            sli_persist_geometry g;
            sli_why why = {""};
            if (!sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_CLUSTER, false, &g, &why)) continue;
            const double seconds = sli_persist_step_seconds(&g, &p, &caps);
            CHECK(seconds >= before);
            before = seconds;
        }
    }
}

/* The built-in kernels, each for the most units that it has and for fewer: they cover, fit a GPU, and are found again. */
TEST(cuda_persist_geometry_built_in_cover_and_fit) {
    static const sli_op ops[] = {SLI_OP_RNN, SLI_OP_RNN, SLI_OP_RNN, SLI_OP_GRU, SLI_OP_LSTM};
    const sli_caps caps = invented(90);
    int count[2] = {0};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        sli_persist_geometry g;
        int index = 0;
        for (; sli_persist_builtin_get(dtypes[d], index, &g); index++) {
            const int most = sli_persist_group(&g) * g.units, rows = g.halves * sli_persist_rows(&g);
            const char *broken = broken_shared(&g);
            for (int units = 1; units <= most && !broken;
                 units += units + 7 > most && units < most ? most - units : 7) {
                const sli_problem p = problem(ops[g.gates], units, rows, dtypes[d], false);
                broken = broken_cover(&g, &p, g.backward, true);
            }
            if (!broken) broken = broken_fit(&g, &caps, SLI_PERSIST_KIND_CLUSTER);
            if (!broken && sli_persist_builtin_index(&g) != index) broken = "another one has the same numbers";
            g.groups += 5;
            g.directions = 2;
            if (!broken && sli_persist_builtin_index(&g) != index) broken = "groups and directions are no constants";
            g.units += 8;
            if (!broken && sli_persist_builtin_index(&g) != -1) broken = "found by other numbers";
            if (broken) test_fail(__FILE__, __LINE__, "%s, number %d: %s", sli_dtype_name(dtypes[d]), index, broken);
            count[g.backward]++;
        }
        CHECK(!sli_persist_builtin_get(dtypes[d], -1, &g) && !sli_persist_builtin_get(dtypes[d], index, &g));
    }
    CHECK(count[0] >= 15 && count[0] == count[1]); /* of each cell and type one at least */
    sli_persist_geometry g = {.math = SL_F64};
    CHECK(!sli_persist_builtin_get(SL_F64, 0, &g) && sli_persist_builtin_index(&g) == -1);
}

/* Without NVRTC: a built-in kernel for all units up to 384 or 512, both passes alike, the smaller one where it does; for the
 * rest the reason. */
TEST(cuda_persist_geometry_without_a_compiler) {
    sli_caps caps = invented(90);
    caps.no_compiler = true;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int op = SLI_OP_LSTM; op <= SLI_OP_RNN; op++) {
            int most = 0, cluster = 0;
            for (int units = 1; units <= 600; units++) {
                const sli_problem p = problem((sli_op)op, units, batches[units % 7], dtypes[d], units % 3 == 0);
                int taken[2] = {0}, grid = 0;
                for (int backward = 0; backward < 2; backward++) {
                    sli_persist_geometry g;
                    sli_why why = {""};
                    check(&p, &caps, SLI_PERSIST_KIND_CLUSTER, backward, &taken[backward]);
                    check(&p, &caps, SLI_PERSIST_KIND_GRID, backward, &grid);
                    if (sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_CLUSTER, backward, &g, &why)) {
                        CHECK(sli_persist_builtin_index(&g) >= 0);
                        cluster = sli_persist_cluster(&g);
                    } else {
                        CHECK(strstr(why.text, "no built-in kernel") && strstr(why.text, "NVRTC"));
                    }
                }
                CHECK(taken[0] == taken[1] && grid == 0);
                if (taken[0]) {
                    CHECK(most == units - 1);
                    most = units;
                    if (p.batch <= 8) CHECK(cluster == (units <= 256 ? 8 : 16));
                }
            }
            CHECK(most == (dtypes[d] == SL_F32X3 && op == SLI_OP_LSTM ? 384 : 512));
        }
    sli_caps ampere = invented(80), small = invented(120);
    ampere.no_compiler = small.no_compiler = true;
    for (int backward = 0; backward < 2; backward++) {
        sli_persist_geometry g;
        sli_why why = {""};
        const sli_problem few = problem(SLI_OP_GRU, 200, 8, SL_BF16, false);
        const sli_problem many = problem(SLI_OP_GRU, 300, 8, SL_BF16, false);
        CHECK(!sli_persist_choose(&few, &ampere, SLI_PERSIST_KIND_CLUSTER, backward, &g, &why));
        CHECK(strstr(why.text, "sm_80"));
        CHECK(sli_persist_choose(&few, &small, SLI_PERSIST_KIND_CLUSTER, backward, &g, &why));
        CHECK(!sli_persist_choose(&many, &small, SLI_PERSIST_KIND_CLUSTER, backward, &g, &why)); /* clusters of 16 */
        CHECK(strstr(why.text, "no built-in kernel for 300 units, and NVRTC is missing"));
        sli_problem before = few;
        before.reset_before = true;
        CHECK(!sli_persist_choose(&before, &small, SLI_PERSIST_KIND_CLUSTER, backward, &g, &why));
        CHECK(strstr(why.text, "no built-in kernel for reset before the product, and NVRTC is missing"));
    }
}
/* Reset before the product: whole parts of the weights, r's, z's and n's rows or columns each; not in turns. */
static bool covers_parts(const sli_persist_geometry *g) {
    const int rows = g->warps_m * sli_persist_tile_rows(g->math), columns = g->warps_k * sli_persist_tile_k(g->math);
    const int m = g->reduce * g->units, k = g->spread * g->units, new_k = sli_persist_new_k(g);
    if (!g->before || g->couriers > 0 || (sli_persist_streamed(g) > 0 && g->halves > 1)) return false;
    if (!g->backward) return g->tiles_m % 3 == 0 && g->tiles_m / 3 * rows >= m && g->tiles_k * columns >= k;
    return g->tiles_m * rows >= m && new_k * columns >= k && (g->tiles_k - new_k) * columns >= 2 * k &&
           (g->tiles_k - new_k) % 2 == 0;
}
TEST(cuda_persist_geometry_has_parts_of_reset_before) {
    static const sl_dtype dtypes[] = {SL_F32, SL_TF32, SL_BF16, SL_F32X3};
    static const int units[] = {1, 7, 33, 100, 257, 650, 1000}, batches[] = {1, 3, 17, 64};
    const sli_caps caps = invented(90);
    int grids = 0;
    for (int i = 0; i < 7 * 4 * 4 * 4; i++) {
        sli_persist_geometry g;
        sli_problem p = problem(SLI_OP_GRU, units[i % 7], batches[i / 7 % 4], dtypes[i / 28 % 4], false);
        const bool backward = i / 112 % 2 == 1;
        const sli_persist_kind kind = i / 224 ? SLI_PERSIST_KIND_GRID : SLI_PERSIST_KIND_CLUSTER;
        p.reset_before = true;
        if (!sli_persist_choose(&p, &caps, kind, backward, &g, NULL)) continue;
        grids += kind == SLI_PERSIST_KIND_GRID;
        if (!covers_parts(&g) || sli_persist_shared_of(&g).total > caps.shared_memory)
            test_fail(__FILE__, __LINE__, "%d units, %d rows, dtype %d, kind %d, backward %d", p.units, p.batch,
                      (int)p.dtype, (int)kind, backward);
    }
    CHECK(grids > 150);
}

/* The search leaves out what its exchange alone makes slower than what it has: not by an exchange of fewer warps than such a cut may have. */
TEST(cuda_persist_search_drops_no_better_cut) {
    const sli_caps caps = invented(90);
    for (int batch = 1; batch <= 64; batch *= 4) {
        sli_persist_geometry chosen, g = {.gates = 4,
                                          .math = SL_BF16,
                                          .gather = SLI_PERSIST_GRID,
                                          .units = 16,
                                          .directions = 1,
                                          .reduce = 1,
                                          .spread = 16,
                                          .tiles_n = 1,
                                          .halves = 1,
                                          .warps_m = 4,
                                          .warps_k = 2,
                                          .tiles_m = 1,
                                          .tiles_k = 8,
                                          .in_registers = 8,
                                          .share = 1,
                                          .chunks = 1};
        sli_problem p = problem(SLI_OP_LSTM, 256, batch, SL_BF16, false);
        p.train = false;
        g.groups = (batch + 7) / 8;
        REQUIRE(sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_GRID, false, &chosen, NULL));
        const double best = sli_persist_step_seconds(&chosen, &p, &caps), own = sli_persist_step_seconds(&g, &p, &caps);
        if (best > own * (1 + 1e-8)) test_fail(__FILE__, __LINE__, "%d rows: %.3g s, there is %.3g", batch, best, own);
    }
}

/* By what rows are chosen stays near what orders cuts, in one slice and in two, bound by memory or not. */
TEST(cuda_persist_taken_is_near_what_orders) {
    static const int units[] = {32, 128, 512}, batches[] = {16, 500, 4096};
    int halves = 0, grids = 0;
    for (int i = 0; i < 3 * 3 * 2 * 2 * 2; i++) {
        const sli_caps caps = invented(i / 9 % 2 ? 90 : 80);
        sli_problem p = problem(i / 36 ? SLI_OP_RNN : SLI_OP_LSTM, units[i % 3], batches[i / 3 % 3],
                                i / 18 % 2 ? SL_TF32 : SL_BF16, false);
        p.train = false;
        sli_persist_geometry g;
        if (!sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_GRID, false, &g, NULL)) continue;
        const double ratio = sli_persist_taken_seconds(&g, &p, &caps) / sli_persist_step_seconds(&g, &p, &caps);
        if (ratio < 0.8 || ratio > 1.05)
            test_fail(__FILE__, __LINE__, "%d units, %d rows, dtype %d, sm_%d: %.2f", p.units, p.batch, (int)p.dtype,
                      caps.compute_capability, ratio);
        halves += g.halves == 2 && g.couriers == 0;
        grids++;
    }
    CHECK(grids > 50 && halves > 3);
}

/* What was measured best on an H200 with 63 MB of L2: of weights that stream, so many stay there. */
TEST(cuda_persist_streams_that_stay_in_l2) {
    CHECK(sli_persist_near(30e6, 63e6) == 30e6);
    CHECK(sli_persist_near(49e6, 63e6) == 49e6);
    CHECK_NEAR(sli_persist_near(67e6, 63e6), 40e6, 2e6);
    CHECK_NEAR(sli_persist_near(134e6, 63e6), 40e6, 2e6);
    CHECK(sli_persist_near(134e6, 0) == 0); /* a GPU that does not say */
}

/* As measured on that H200: LSTM of 256 units, 16 rows, 150 steps is near backward, 32 rows are not; forward reads u alone. */
TEST(cuda_persist_reads_that_lie_beyond_l2) {
    sli_problem p = {.op = SLI_OP_LSTM, .layers = 1, .batch = 16, .steps = 150, .units = 256};
    CHECK(!sli_persist_far(&p, true, 63e6) && !sli_persist_far(&p, false, 63e6));
    p.batch = 32;
    CHECK(sli_persist_far(&p, true, 63e6) && sli_persist_far(&p, false, 63e6));
    p.batch = 22;
    CHECK(sli_persist_far(&p, true, 63e6) && !sli_persist_far(&p, false, 63e6));
    p.batch = 16, p.layers = 2;
    CHECK(sli_persist_far(&p, true, 63e6));
    p.layers = 1, p.bidirectional = true;
    CHECK(sli_persist_far(&p, true, 63e6));
    p.steps = 1, p.batch = 1;
    CHECK(!sli_persist_far(&p, true, 63e6) && sli_persist_far(&p, true, 0)); /* a GPU that does not say */
}

static int defined(const char *text, const char *name) {
    char line[64];
    snprintf(line, sizeof line, "#define PERSIST_%s ", name);
    const char *at = strstr(text, line);
    if (!at) test_fail(__FILE__, __LINE__, "no %s", line);
    return at ? atoi(at + strlen(line)) : -1;
}

/* A compiled kernel has the layer's own units, strides and places as constants: those that a launch works out, in a text that is not cut. */
TEST(cuda_persist_constants_are_the_layers) {
    static const int units[] = {1, 7, 37, 100, 257, 650, 1500};
    const sli_caps caps = invented(90);
    int chosen = 0;
    for (int i = 0; i < 7 * 2 * 2 * 2; i++) {
        char text[SLI_PERSIST_DEFINES];
        sli_persist_geometry g;
        const sli_problem p = problem(i / 7 % 2 ? SLI_OP_GRU : SLI_OP_LSTM, units[i % 7], 33, SL_BF16, i / 14 % 2);
        if (!sli_persist_choose(&p, &caps, SLI_PERSIST_KIND_GRID, i / 28 % 2, &g, NULL)) continue;
        const sli_step_shape s = sli_step_shape_of(&p, 1);
        const sli_persist_shared at = sli_persist_shared_of(&g);
        chosen++;
        sli_persist_defines(&g, &s, 1 << 20, 1 << 20, -100, -100, text, sizeof text);
        CHECK(strlen(text) + 1 < sizeof text && text[strlen(text) - 1] == '\n');
        CHECK(defined(text, "H") == p.units && defined(text, "US") == s.us && defined(text, "HS") == s.hs &&
              defined(text, "ZS") == s.zs);
        CHECK(defined(text, "SHARED_PARTIAL") == (int)at.partial &&
              defined(text, "SHARED_ARRIVING") == (int)at.arriving &&
              defined(text, "SHARED_WEIGHTS") == (int)at.weights && defined(text, "SHARED_RING") == (int)at.ring &&
              defined(text, "SHARED_BARRIERS") == (int)at.barriers && defined(text, "SHARED_STATE") == (int)at.state);
    }
    CHECK(chosen > 40);
}
