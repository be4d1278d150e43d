/* Inputs with a single 1 in each row: columns of W and sums of rows, against the definition, on one thread and on three; anything
 * else is left to a product. */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/one_hot.h"
#include "test.h"

enum { STEPS = 23, BATCH = 5, ROWS = STEPS * BATCH, INPUTS = 19 };

typedef struct layer {
    sli_call call;
    sli_sums sums;
    float *x, *dz, *d_kernel;
    uint16_t *dz_half;
    int column[ROWS];
    int outputs;
} layer;

static float *floats(size_t count, uint64_t *seed) {
    float *data = malloc(count * sizeof *data);
    REQUIRE(data != NULL);
    for (size_t i = 0; i < count; i++) data[i] = (float)test_random(seed);
    return data;
}

static layer layer_new(sli_op op, int units, sl_dtype dtype) {
    uint64_t seed = test_seed;
    const int gates = sli_op_gates(op), width = op == SLI_OP_RNN ? 1 : 4;
    layer l = {.outputs = gates * units};
    l.call.chunk = STEPS;
    l.call.problem = (sli_problem){
        .op = op, .batch = BATCH, .steps = STEPS, .inputs = INPUTS, .units = units, .train = true, .dtype = dtype};
    l.call.scratch_bytes = sli_cpu_products_bytes(&l.call.problem, STEPS);
    l.call.scratch = malloc(l.call.scratch_bytes);
    l.x = calloc((size_t)ROWS * INPUTS, sizeof *l.x);
    REQUIRE(l.call.scratch && l.x);
    for (int r = 0; r < ROWS; r++) {
        l.column[r] = (int)(INPUTS * (0.5 + 0.499 * test_random(&seed)));
        l.x[r * INPUTS + l.column[r]] = 1;
    }
    l.d_kernel = floats((size_t)(l.outputs * INPUTS), &seed);
    l.dz = floats((size_t)(ROWS * width * units), &seed);
    l.dz_half = malloc((size_t)(ROWS * width * units) * sizeof *l.dz_half);
    REQUIRE(l.dz_half != NULL);
    for (int i = 0; dtype == SL_BF16 && i < ROWS * width * units; i++) {
        l.dz_half[i] = bf16_of(l.dz[i]);
        l.dz[i] = bf16_value(l.dz_half[i]);
    }
    l.call.d_param[SLI_RNN_KERNEL] = l.d_kernel;
    l.sums = (sli_sums){.call = &l.call, .rows = ROWS, .x = l.x, .ld = width * units, .dz = l.dz};
    l.sums.input[0] = (sli_gates){.count = gates};
    if (op == SLI_OP_GRU) { /* dz: n r z s */
        l.sums.input[0] = (sli_gates){.from = 1, .to = 0, .count = 2};
        l.sums.input[1] = (sli_gates){.from = 0, .to = 2, .count = 1};
    }
    return l;
}

static void layer_free(layer *l) {
    free(l->call.scratch), free(l->x), free(l->d_kernel), free(l->dz), free(l->dz_half);
}

/* Two panels of two vectors, of a W of random numbers: its columns, rounded where panels are, in the places of products. false: x is
 * not of that kind, or no line can be read. */
static bool lines_of(const layer *l, sl_dtype dtype) {
    enum { VECTORS = 2, PANELS = 2, MOST = PANELS * VECTORS * 16 };
    sli_cpu cpu;
    sli_cpu_engine(sli_cpu_isa(), false, &cpu);
    const sli_panel_ops *ops = sli_cpu_panels(&cpu, &(sli_problem){.op = SLI_OP_RNN, .dtype = dtype});
    const int columns = VECTORS * ops->lanes;
    const size_t bytes = ops->panel_bytes(INPUTS, VECTORS);
    const void *x[ROWS];
    int column[ROWS];
    uint64_t seed = test_seed;
    float *kernel = floats((size_t)MOST * INPUTS, &seed), *to = floats((size_t)ROWS * MOST, &seed);
    char *panels = sli_alloc(NULL, PANELS * bytes);
    REQUIRE(panels != NULL && ops->lanes <= 16);
    for (int i = 0; i < PANELS; i++) {
        sli_panel_source source = {
            .k = INPUTS, .vectors = VECTORS, .gap = ops->lanes, .lane_stride = INPUTS, .k_stride = 1};
        for (int v = 0; v < VECTORS; v++) {
            source.valid[v] = ops->lanes;
            source.from[v] = kernel + (size_t)((i * VECTORS + v) * ops->lanes) * INPUTS;
        }
        ops->pack(panels + (size_t)i * bytes, &source);
    }
    for (int r = 0; r < ROWS; r++) x[r] = l->x + r * INPUTS;
    const bool found = sli_one_hot_rows(cpu.ops, ops, x, ROWS, INPUTS, column);
    if (found) sli_one_hot_lines(ops, VECTORS, PANELS, panels, bytes, column, ROWS, to, (ptrdiff_t)ROWS * columns);
    for (int j = 0; found && j < PANELS * columns; j++)
        for (int r = 0; r < ROWS; r++) {
            const float *at = to + (ptrdiff_t)(j / columns) * ROWS * columns + r * columns + j % columns;
            const float w = kernel[j * INPUTS + l->column[r]];
            CHECK(column[r] == l->column[r] && *at == (dtype == SL_BF16 ? bf16_round(w) : w));
        }
    sli_free(NULL, panels, PANELS * bytes);
    free(kernel);
    free(to);
    return found;
}

/* Row of dz that belongs to row j of W. */
static int dz_row(const layer *l, int j) {
    const int units = l->call.problem.units, gate = j / units;
    for (int i = 0; i < 2; i++) {
        const sli_gates g = l->sums.input[i];
        if (gate >= g.to && gate < g.to + g.count) return j + (g.from - g.to) * units;
    }
    return -1;
}

static void check_layer(sli_op op, int units, sl_dtype dtype, int threads) {
    layer l = layer_new(op, units, dtype), before = layer_new(op, units, dtype);
    l.sums.call = &l.call;
    if (dtype == SL_BF16) { /* dz is kept in bf16, and multiplied by nobody */
        l.sums.dz_half = l.dz_half;
        l.sums.dz = NULL;
    }
    if (threads > 1) REQUIRE_OK(sli_threads_new(NULL, threads, &l.call.threads));
    CHECK(sli_one_hot_kernel(&l.sums));
    for (int j = 0; j < l.outputs; j++)
        for (int i = 0; i < INPUTS; i++) {
            float sum = 0;
            for (int r = 0; r < ROWS; r++)
                if (l.column[r] == i) sum += l.dz[r * l.sums.ld + dz_row(&l, j)];
            CHECK(l.d_kernel[j * INPUTS + i] == before.d_kernel[j * INPUTS + i] + sum);
        }
    sli_threads_free(l.call.threads);
    layer_free(&l);
    layer_free(&before);
}

TEST(one_hot_inputs) {
    sli_cpu cpu;
    sli_cpu_engine(sli_cpu_isa(), false, &cpu);
    layer l = layer_new(SLI_OP_RNN, 9, SL_F32);
    CHECK(lines_of(&l, SL_F32));
    CHECK(lines_of(&l, SL_BF16) == (cpu.ops->panel_bf16->line != NULL));
    layer_free(&l);
    check_layer(SLI_OP_LSTM, 37, SL_F32, 1);
    check_layer(SLI_OP_LSTM, 70, SL_F32, 3);
    check_layer(SLI_OP_GRU, 70, SL_F32, 3);
    check_layer(SLI_OP_RNN, 9, SL_F32, 1);
    check_layer(SLI_OP_LSTM, 37, SL_BF16, 1);
    check_layer(SLI_OP_GRU, 70, SL_BF16, 3);
}

/* A row of zeros and a 1, and beside it, in any place, another number: in every instruction set. */
TEST(one_hot_rows_are_told_from_others) {
    enum { MOST = 70 };
    static const float others[] = {0.5f, -1, 2, 1, NAN, INFINITY, -1e-40f};
    char why[SLI_ISA_WHY];
    for (int isa = SLI_ISA_BASE; isa <= SLI_ISA_AVX512; isa++) {
        sli_cpu cpu;
        if (!sli_cpu_has((sli_isa)isa, why)) continue;
        sli_cpu_engine((sli_isa)isa, false, &cpu);
        for (int n = 1; n <= MOST; n += n < 18 ? 1 : 13)
            for (int one = 0; one < n; one++) {
                float x[MOST] = {0};
                x[one] = 1;
                CHECK(cpu.ops->one_hot(n, x) == one);
                for (int other = 0; other < n; other++)
                    for (int k = 0; other != one && k < 7; k++) {
                        x[other] = others[k];
                        if (cpu.ops->one_hot(n, x) != -1)
                            test_fail(__FILE__, __LINE__, "%s: %d numbers, 1 at %d, %g at %d", cpu.ops->name, n, one,
                                      (double)others[k], other);
                        x[other] = other % 2 ? -0.0f : 0.0f;
                    }
                x[one] = 0;
                CHECK(cpu.ops->one_hot(n, x) == -1);
            }
    }
}

/* d W^T of more numbers than the products' scratch has. */
TEST(one_hot_needs_scratch) {
    enum { STEPS_LONG = 32, INPUTS_MANY = 600, UNITS = 512, ROWS_MANY = STEPS_LONG * 32 };
    sli_call call = {.chunk = STEPS_LONG,
                     .problem = {.op = SLI_OP_LSTM,
                                 .batch = 32,
                                 .steps = STEPS_LONG,
                                 .inputs = INPUTS_MANY,
                                 .units = UNITS,
                                 .train = true,
                                 .dtype = SL_BF16}};
    float *x = calloc((size_t)ROWS_MANY * INPUTS_MANY, sizeof *x),
          *dz = calloc((size_t)ROWS_MANY * 4 * UNITS, sizeof *dz),
          *d_kernel = calloc((size_t)4 * UNITS * INPUTS_MANY, sizeof *d_kernel);
    call.scratch_bytes = sli_cpu_products_bytes(&call.problem, STEPS_LONG);
    call.scratch = malloc(call.scratch_bytes);
    REQUIRE(x && dz && d_kernel && call.scratch);
    for (int r = 0; r < ROWS_MANY; r++) x[(size_t)r * INPUTS_MANY + (size_t)(r % INPUTS_MANY)] = 1;
    call.d_param[SLI_RNN_KERNEL] = d_kernel;
    const sli_sums sums = {
        .call = &call, .rows = ROWS_MANY, .x = x, .ld = 4 * UNITS, .dz = dz, .input = {{.count = 4}}};
    REQUIRE(call.scratch_bytes < (size_t)4 * UNITS * INPUTS_MANY * sizeof(float));
    CHECK(!sli_one_hot_kernel(&sums));
    free(x), free(dz), free(d_kernel), free(call.scratch);
}

TEST(one_hot_is_left_to_products_otherwise) {
    static const float others[] = {0.5f, 1, -1, 0, NAN};
    layer l = layer_new(SLI_OP_LSTM, 8, SL_F32), before = layer_new(SLI_OP_LSTM, 8, SL_F32);
    l.sums.call = &l.call;
    for (int i = 0; i < 5; i++) { /* in the last row: another number, two numbers, none */
        float *row = l.x + (ROWS - 1) * INPUTS, *at = row + l.column[ROWS - 1];
        const float one = *at;
        if (i == 1) row[(l.column[ROWS - 1] + 1) % INPUTS] = 1;
        *at = others[i];
        CHECK(!lines_of(&l, SL_F32));
        CHECK(!sli_one_hot_kernel(&l.sums));
        row[(l.column[ROWS - 1] + 1) % INPUTS] = 0;
        *at = one;
    }
    CHECK(memcmp(l.d_kernel, before.d_kernel, (size_t)(l.outputs * INPUTS) * sizeof *l.d_kernel) == 0);
    layer_free(&l);
    layer_free(&before);
}
