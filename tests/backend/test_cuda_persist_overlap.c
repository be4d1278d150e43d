/* Which products run beside the persistent recurrence, on GPUs that need not exist. */
#include "backend/cuda/persist_overlap.h"
#include "cuda_caps.h"
#include "test.h"

#include <string.h>

typedef struct layer {
    sli_problem p;
    sli_caps caps;
    sli_persist_pair pair;
    int chunk;
} layer;

static layer layer_of(const char *text, sli_persist_kind kind, int multiprocessors) {
    layer l = {.caps = invented(90)};
    sli_why why = {""};
    if (multiprocessors > 0) l.caps.multiprocessors = multiprocessors;
    REQUIRE_OK(sli_problem_parse(text, &l.p));
    REQUIRE(sli_persist_pair_of(&l.p, (sli_planned){0}, &l.caps, kind, &l.pair, &why));
    l.chunk = sli_caps_chunk(&l.caps, l.p.batch, l.p.steps);
    return l;
}

static sli_persist_pass pass_of(const layer *l, bool backward) {
    return sli_persist_pass_of(&l->p, &l->caps, &l->pair, l->chunk, backward);
}

static int chunks_of_span(const layer *l) {
    return (sli_persist_span(&l->p, &l->pair, l->chunk) + l->chunk - 1) / l->chunk;
}

static const char *const layers[] = {
    "lstm:b32_t1024_i768_h512_tf32_train",  "lstm:b16_t1000_i256_h256_f32_train",
    "gru:b16_t1024_i768_h768_f32_train",    "lstm:b64_t1000_i512_h512_bf16",
    "rnn:b8_t3000_i900_h200_tf32_train",    "lstm:b16_t1000_i1024_h256_bi_bf16_train",
    "lstm:b20_t35_i650_h650_bf16_train",    "gru:b1_t50000_i64_h64_f16_train",
    "lstm:b64_t4000_i4096_h512_bf16_train", "lstm:b256_t2000_i1024_h512_tf32_train",
};
enum { LAYERS = (int)(sizeof layers / sizeof *layers) };

/* Pieces are whole chunks, at most SLI_PERSIST_MOST_PIECES, and only where the prediction says that they gain. */
TEST(cuda_persist_overlap_pieces_are_chunks) {
    int cut = 0;
    for (int i = 0; i < LAYERS; i++)
        for (int kind = 0; kind < 2; kind++)
            for (int backward = 0; backward < 2; backward++) {
                sli_persist_geometry g;
                sli_problem p;
                const sli_caps caps = invented(90);
                REQUIRE_OK(sli_problem_parse(layers[i], &p));
                if (!sli_persist_choose(&p, &caps, (sli_persist_kind)kind, false, &g, NULL)) continue;
                if (p.train ? !sli_persist_choose(&p, &caps, (sli_persist_kind)kind, true, &g, NULL) : backward)
                    continue;
                const layer l = layer_of(layers[i], (sli_persist_kind)kind, 0);
                const sli_persist_pass pass = pass_of(&l, backward);
                const int chunks = chunks_of_span(&l);
                const int each = sli_persist_piece(&l.p, &l.caps, &l.pair, l.chunk, backward);
                const double plain = pass.launches_us + pass.steps_us + pass.products_us;
                CHECK(pass.pieces >= 1 && pass.pieces <= SLI_PERSIST_MOST_PIECES && pass.pieces <= chunks);
                CHECK((chunks + each - 1) / each == pass.pieces);
                CHECK(pass.pieces == 1 ? pass.us == plain && each == chunks : pass.us < plain && pass.idle > 0);
                CHECK(pass.us >= pass.steps_us && pass.us >= pass.products_us);
                cut += pass.pieces > 1;
            }
    CHECK(cut >= 5);
}

/* Backward of 512 units and 16 rows takes 64 of 132 multiprocessors. */
TEST(cuda_persist_overlap_uses_what_is_idle) {
    const layer l = layer_of("lstm:b16_t1024_i768_h512_tf32_train", SLI_PERSIST_KIND_GRID, 0);
    const sli_persist_pass forward = pass_of(&l, false), backward = pass_of(&l, true);
    CHECK(backward.idle == 132 - sli_persist_ctas(&l.pair.backward) && backward.idle >= 16);
    CHECK(backward.pieces > 1 &&
          backward.us < 0.95 * (backward.launches_us + backward.steps_us + backward.products_us));
    CHECK(forward.idle == 132 - sli_persist_ctas(&l.pair.forward));
}

/* Of calls that are two or three chunks long the products are a quarter: as timed on an H200, 2026-11-24, in two and three pieces 5 to 13% less. */
TEST(cuda_persist_overlap_of_few_chunks) {
    static const struct {
        const char *text;
        int chunks, forward, backward;
    } calls[] = {{"lstm:b64_t150_i256_h256_bf16_train", 3, 3, 3},  {"lstm:b64_t150_i256_h256_tf32_train", 3, 3, 3},
                 {"lstm:b32_t150_i256_h256_bf16_train", 2, 2, 2},  {"lstm:b32_t150_i256_h256_tf32_train", 2, 2, 2},
                 {"lstm:b16_t1000_i256_h256_bf16_train", 4, 2, 4}, {"lstm:b16_t150_i256_h256_bf16_train", 1, 1, 1}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const layer l = layer_of(calls[i].text, SLI_PERSIST_KIND_CLUSTER, 0);
        CHECK(chunks_of_span(&l) == calls[i].chunks);
        CHECK(pass_of(&l, false).pieces == calls[i].forward && pass_of(&l, true).pieces == calls[i].backward);
    }
}

/* A step of the cut that is taken: through a cluster training has become shorter since cuts were timed, elsewhere it is as it was. */
TEST(cuda_persist_taken_steps) {
    static const struct {
        const char *text;
        sli_persist_kind kind;
        bool shorter;
    } steps[] = {{"lstm:b16_t1000_i256_h256_bf16_train", SLI_PERSIST_KIND_CLUSTER, true},
                 {"gru:b32_t50_i16_h64_tf32_train", SLI_PERSIST_KIND_CLUSTER, true},
                 {"lstm:b16_t25_i1024_h1024_bf16_train", SLI_PERSIST_KIND_GRID, false},
                 {"gru:b32_t100_i256_h256_bf16_train+reset=before", SLI_PERSIST_KIND_CLUSTER, false}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const layer l = layer_of(steps[i].text, steps[i].kind, 0);
        for (int backward = 0; backward < 2; backward++) {
            const sli_persist_geometry *g = backward ? &l.pair.backward : &l.pair.forward;
            if (backward && l.pair.backward_in_steps) continue;
            const double ordered = sli_persist_step_seconds(g, &l.p, &l.caps);
            const double taken = sli_persist_taken_seconds(g, &l.p, &l.caps);
            CHECK(taken > 0 && (steps[i].shorter ? taken < ordered : taken == ordered));
        }
    }
    const layer infers = layer_of("lstm:b16_t1000_i256_h256_bf16", SLI_PERSIST_KIND_CLUSTER, 0);
    CHECK(sli_persist_taken_seconds(&infers.pair.forward, &infers.p, &infers.caps) ==
          sli_persist_step_seconds(&infers.pair.forward, &infers.p, &infers.caps));
}

TEST(cuda_persist_overlap_needs_idle_multiprocessors_chunks_and_work) {
    layer full = layer_of("lstm:b16_t1024_i768_h512_tf32_train", SLI_PERSIST_KIND_GRID, 0);
    full.caps.multiprocessors = sli_persist_ctas(&full.pair.backward);
    CHECK(sli_persist_idle(&full.pair.backward, &full.caps) == 0 && pass_of(&full, true).pieces == 1);
    layer waves = layer_of("lstm:b16_t1000_i1024_h256_tf32_train", SLI_PERSIST_KIND_CLUSTER, 0);
    CHECK(pass_of(&waves, true).pieces > 1);
    waves.pair.backward.groups = 40;
    CHECK(sli_persist_idle(&waves.pair.backward, &waves.caps) == 0 && pass_of(&waves, true).pieces == 1);
    const layer one_chunk = layer_of("lstm:b16_t250_i1024_h256_tf32_train", SLI_PERSIST_KIND_CLUSTER, 0);
    CHECK(one_chunk.chunk >= 250 && pass_of(&one_chunk, true).idle > 0 && pass_of(&one_chunk, true).pieces == 1);
    const layer little = layer_of("lstm:b1_t9000_i3_h64_bf16_train", SLI_PERSIST_KIND_CLUSTER, 0);
    CHECK(chunks_of_span(&little) > 1 && pass_of(&little, true).pieces == 1);
}

/* More inputs: more to run beside, and never less time than the products take on what is idle, less the pieces at the ends. */
TEST(cuda_persist_overlap_counts_products_that_are_longer_than_the_steps) {
    double before = 0;
    for (int inputs = 256; inputs <= 16384; inputs *= 4) {
        char text[64];
        snprintf(text, sizeof text, "lstm:b16_t1000_i%d_h256_tf32_train", inputs);
        const layer l = layer_of(text, SLI_PERSIST_KIND_CLUSTER, 0);
        const sli_persist_pass pass = pass_of(&l, true);
        CHECK(pass.us > before);
        CHECK(pass.us > pass.products_us);
        before = pass.us;
    }
}

/* Of both directions the gradients of x stay behind: less gain than one direction of as much work has. */
TEST(cuda_persist_overlap_of_both_directions) {
    const layer both = layer_of("lstm:b16_t1024_i512_h512_bi_f32_train", SLI_PERSIST_KIND_CLUSTER, 0);
    const sli_persist_pass pass = pass_of(&both, true);
    const double behind = pass.products_us * 512 / (2 * 512 + 512);
    CHECK(pass.pieces > 1 && pass.us > pass.steps_us + behind);
}

/* Memory does not depend on pieces: that of a shorter call, or of fewer rows, lies in the plan's. */
static void check_booked(const char *text) {
    const layer l = layer_of(text, SLI_PERSIST_KIND_GRID, 0);
    const sli_persist_scratch at = sli_persist_layout_backward(&l.p, &l.caps, &l.pair, l.chunk);
    const sli_persist_geometry *g = &l.pair.backward;
    REQUIRE(!l.pair.backward_in_steps);
    const bool grid = g->gather == SLI_PERSIST_GRID; /* else backward through clusters, which count nothing in memory */
    const size_t owners = g->meets ? (size_t)(g->groups * g->halves * g->spread) : 0; /* of sums that meet in memory */
    const size_t slices = grid ? (size_t)(g->groups * g->halves * g->reduce) + owners : 0;
    if (!sli_persist_words_tell(g))
        CHECK(at.zeros == at.counters && at.zeros_bytes == sizeof(uint32_t) * slices);
    else
        CHECK(at.zeros == at.exchange &&
              at.zeros_bytes >= 2 * slices * (size_t)(sli_persist_rows(g) * sli_persist_k(g)));
    /* what forward clears lies in saved memory */
    const sli_persist_saved saved = sli_persist_layout_saved(&l.p, &l.pair, l.chunk);
    CHECK((at.kept_bytes > 0) == (grid && !l.p.bidirectional) &&
          at.kept_bytes >= (grid && !l.p.bidirectional ? at.zeros_bytes : 0));
    CHECK(saved.kept >= saved.step.stride && saved.stride == saved.kept + (at.kept_bytes + 255) / 256 * 256);
    for (int steps = 1; steps <= l.p.steps; steps += 93)
        for (int batch = 1; batch <= l.p.batch; batch += 5) {
            sli_problem shorter = l.p;
            sli_persist_pair pair;
            shorter.steps = steps;
            shorter.batch = batch;
            REQUIRE(sli_persist_pair_of(&shorter, (sli_planned){l.p.batch, l.p.steps}, &l.caps, SLI_PERSIST_KIND_GRID,
                                        &pair, NULL));
            CHECK(sli_persist_layout_backward(&shorter, &l.caps, &pair, l.chunk).total <= at.total);
            const int each = sli_persist_piece(&shorter, &l.caps, &pair, l.chunk, true);
            const int chunks = (sli_persist_span(&shorter, &pair, l.chunk) + l.chunk - 1) / l.chunk;
            CHECK(each >= 1 && each <= chunks && (chunks + each - 1) / each <= SLI_PERSIST_MOST_PIECES);
        }
}

TEST(cuda_persist_overlap_books_nothing_but_counters) {
    check_booked("lstm:b32_t1024_i768_h512_tf32_train");
    check_booked("lstm:b32_t1024_i768_h768_tf32_train");
    check_booked(
        "gru:b257_t10_i1024_h1024_tf32_train");         /* which in steps would be cut in more pieces with fewer rows */
    check_booked("lstm:b16_t64_i8192_h512_tf32_train"); /* products that fill the GPU, but not of half the rows */
    check_booked("lstm:b16_t64_i65536_h512_bf16_train");
}

/* Whose products behind the recurrence are side by side: memory of their own is booked, or is not. */
TEST(cuda_persist_overlap_side_by_side) {
    static const struct {
        const char *text;
        bool beside;
    } cases[] = {
        {"lstm:b32_t25_i2048_h2048_bf16_train", true},   {"lstm:b32_t25_i2048_h2048_tf32_train", false},
        {"lstm:b16_t25_i512_h512_tf32_train", true},     {"lstm:b16_t64_i65536_h512_bf16_train", false},
        {"lstm:b16_t25_i512_h512_bi_bf16_train", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const layer l = layer_of(cases[i].text, SLI_PERSIST_KIND_GRID, 0);
        const sli_persist_scratch at = sli_persist_layout_backward(&l.p, &l.caps, &l.pair, l.chunk);
        if ((at.beside_bytes > 0) != cases[i].beside)
            test_fail(__FILE__, __LINE__, "%s: %zu bytes", cases[i].text, at.beside_bytes);
        CHECK(at.beside + 2 * at.beside_bytes <= at.stride);
    }
}

/* `sluice plan` says it. */
TEST(cuda_persist_overlap_is_described) {
    const layer l = layer_of("lstm:b16_t1024_i768_h512_tf32_train", SLI_PERSIST_KIND_GRID, 0);
    char text[512] = "";
    sli_cuda_lstm_grid.describe(&l.p, &l.caps, text, sizeof text);
    const char *backward = strstr(text, "; backward: ");
    REQUIRE(backward != NULL);
    char wanted[96];
    snprintf(wanted, sizeof wanted, ", in %d pieces with products beside them on %d multiprocessors",
             pass_of(&l, true).pieces, pass_of(&l, true).idle);
    CHECK(strstr(backward, wanted) != NULL);
}

/* In inference of small layers a launch makes its input side itself: in shared memory that the block has, of rows that it has, and never where a product before it is
 * predicted to take less, nor in training, nor without the compiler. */
TEST(cuda_persist_overlap_small_input_sides_are_the_launch_s) {
    static const struct {
        const char *text;
        sli_persist_kind kind;
        bool own;
    } each[] = {
        {"lstm:b1_t20_i100_h128_tf32", SLI_PERSIST_KIND_CLUSTER, true},
        {"gru:b1_t20_i100_h128_bf16", SLI_PERSIST_KIND_CLUSTER, true},
        {"lstm:b1_t1_i40_h64_f16", SLI_PERSIST_KIND_CLUSTER, true},
        {"rnn:b3_t9_i7_h33_f32x3_bi", SLI_PERSIST_KIND_GRID, true},
        {"lstm:b1_t20_i100_h128_bf16_train", SLI_PERSIST_KIND_CLUSTER, false},
        {"lstm:b1_t25_i512_h512_bf16", SLI_PERSIST_KIND_CLUSTER, false},
        {"lstm:b16_t150_i256_h256_tf32", SLI_PERSIST_KIND_CLUSTER, false},
        {"lstm:b1_t20_i100_h128_p64_bf16", SLI_PERSIST_KIND_CLUSTER, false},
        {"lstm:b1_t2000_i16_h64_bf16", SLI_PERSIST_KIND_CLUSTER, false},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        layer l = layer_of(each[i].text, each[i].kind, 0);
        sli_persist_geometry *g = &l.pair.forward;
        char text[SLI_PERSIST_DEFINES];
        CHECK((g->inputs > 0) == each[i].own);
        sli_persist_describe(g, text, sizeof text);
        CHECK((strstr(text, "input side in the launch") != NULL) == each[i].own);
        if (!each[i].own) continue;
        CHECK(g->inputs == l.p.inputs);
        CHECK(g->inputs_columns >= l.p.steps * g->inputs_rows && g->inputs_rows <= l.p.batch);
        CHECK(sli_persist_shared_of(g).inputs > 0 && sli_persist_shared_of(g).total <= l.caps.shared_memory);
        const sli_persist_pass own = pass_of(&l, false);
        CHECK(own.products_us == 0);
        g->inputs = 0;
        CHECK(own.us < pass_of(&l, false).us);
        l.caps.no_compiler = true;
        REQUIRE(!sli_persist_pair_of(&l.p, (sli_planned){0}, &l.caps, each[i].kind, &l.pair, NULL) ||
                l.pair.forward.inputs == 0);
    }
}

/* Kernels of layers that differ in inputs, steps and rows alone are the same, but where the launch makes the input side. */
TEST(cuda_persist_overlap_kernels_are_shared) {
    static const char *const each[][2] = {
        {"lstm:b16_t500_i40_h256_tf32_train", "lstm:b16_t400_i256_h256_tf32_train"},
        {"lstm:b16_t100_i256_h256_tf32", "lstm:b16_t101_i257_h256_tf32"},
        {"lstm:b1_t17_i40_h64_bf16", "lstm:b1_t30_i40_h64_bf16"},
    };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char text[2][SLI_PERSIST_DEFINES];
        for (int k = 0; k < 2; k++) {
            const layer l = layer_of(each[i][k], SLI_PERSIST_KIND_CLUSTER, 0);
            const sli_step_shape s = sli_step_shape_of(&l.p, 1);
            sli_persist_defines(&l.pair.forward, &s, 0, 0, 0, 0, text[k], sizeof text[k]);
        }
        CHECK(strcmp(text[0], text[1]) == 0);
    }
}
