/* cuda:step on libsluice's side: what it takes, where everything lies in its
 * memory, shapes of its launches; on devices that need not exist. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/persist_layout.h"
#include "backend/cuda/step_layout.h"
#include "problem_text.h"
#include "test.h"

static sli_caps invented(int capability) {
    sli_caps caps = {.kind = SLI_DEVICE_CUDA, .invented = true, .compute_capability = capability};
    caps.multiprocessors = capability == 86 ? 84 : 132;
    caps.shared_memory = capability == 86 ? 99 << 10 : 227 << 10;
    caps.l2_bytes = (size_t)50 << 20;
    return caps;
}

static const sli_kernel *row_of(const sli_problem *p) {
    return p->op == SLI_OP_LSTM ? &sli_cuda_lstm : p->op == SLI_OP_GRU ? &sli_cuda_gru : &sli_cuda_rnn;
}

/* Every option, every size, every GPU; what it leaves to others it says. */
TEST(cuda_step_takes_everything_but) {
    static const int capabilities[] = {80, 86, 90, 100};
    const struct {
        const char *text, *refusal; /* NULL: taken */
    } cases[] = {
        {"lstm:b1_t1_i1_h1_f32", NULL},
        {"lstm:b3_t4_i5_h6_p3_f32_train+clip=0.5+forget=1+peephole+rdrop=0.3+"
         "zoneout_c=0.2+zoneout_h=0.1",
         NULL},
        {"lstm:b256_t2_i4096_h8191_bf16_train+mask=holes+maskout=repeat+reverse", NULL},
        {"gru:b3_t4_i5_h6_tf32_train+bias=none+reset=before", NULL},
        {"gru:b3_t4_i5_h6_f16_bi_train+merge=mul+lengths", NULL},
        {"rnn:b3_t4_i5_h6_train+act=softsign", NULL},
        {"lstm:b3_t4_i5_h6_f64_train", "f64"},
        {"lstm:b3_t4_i5_h6_f32x3_bi_train+peephole", NULL},
        {"lstm:b3_t4_i5_h6_i8", "i8"},
        {"lstm:l2_b3_t4_i5_h6_f32_train", "layers run one after the other"},
    };
    for (size_t c = 0; c < sizeof capabilities / sizeof *capabilities; c++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const sli_caps caps = invented(capabilities[c]);
            const sli_problem p = problem(cases[i].text);
            sli_why why = {""};
            const bool taken = row_of(&p)->eligible(&p, &caps, &why);
            if (taken != !cases[i].refusal) test_fail(__FILE__, __LINE__, "%s: \"%s\"", cases[i].text, why.text);
            if (!taken && !strstr(why.text, cases[i].refusal)) test_fail(__FILE__, __LINE__, "%s", why.text);
        }
}

TEST(cuda_step_leaves_both_directions_apart_where_time_is_cut) {
    sli_caps caps = invented(90);
    const sli_problem both = problem("lstm:b3_t4_i5_h6_bi_train"), one = problem("lstm:b3_t4_i5_h6_train");
    sli_why why = {""};
    CHECK(sli_cuda_lstm.eligible(&both, &caps, &why));
    caps.recomputes = true;
    CHECK(!sli_cuda_lstm.eligible(&both, &caps, &why));
    CHECK(strstr(why.text, "segments") != NULL);
    CHECK(sli_cuda_lstm.eligible(&one, &caps, &why));
}

/* ------------------------------------------------------------------------------------------------------
 * layouts -- */
/* A part by hand: offset and bytes. */
typedef struct piece {
    size_t at, bytes;
} piece;

/* Pieces follow each other without overlap, each from a multiple of 256, and
 * fill `stride` but for rounding. */
static void check_pieces(const char *text, const piece *pieces, int count, size_t stride) {
    size_t end = 0;
    for (int i = 0; i < count; i++) {
        if (pieces[i].bytes == 0) continue;
        if (pieces[i].at % 256 != 0 || pieces[i].at != (end + 255) / 256 * 256)
            test_fail(__FILE__, __LINE__, "%s: piece %d at %zu, the one before ends at %zu", text, i, pieces[i].at,
                      end);
        end = pieces[i].at + pieces[i].bytes;
    }
    if ((end + 255) / 256 * 256 != stride) test_fail(__FILE__, __LINE__, "%s: ends at %zu of %zu", text, end, stride);
}

static size_t padded(size_t count, size_t multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

enum { CHUNK = 3 };
static const char *const layouts[] = {
    "lstm:b3_t7_i5_h11_f32_train",
    "lstm:b3_t7_i5_h11_bf16_train+peephole",
    "lstm:b5_t7_i65_h11_p3_tf32_train+zoneout_c=0.1+zoneout_h=0.1+rdrop=0.2",
    "lstm:b5_t7_i65_h11_p3_tf32_train+rdrop=0.2+mask=holes",
    "lstm:b1_t1_i1_h1_f16",
    "lstm:b900_t7_i2001_h1101_p801_f32x3_train",
    "lstm:b900_t7_i2001_h1101_p801_tf32_train",
    "gru:b900_t7_i901_h1001_tf32_bi_train",
    "gru:b900_t7_i901_h1001_f32x3_bi+reset=before",
    "gru:b3_t7_i9_h13_f32_train",
    "gru:b3_t7_i9_h13_bf16_train+rdrop=0.1",
    "gru:b3_t7_i9_h13_f16_bi_train+reset=before+lengths",
    "gru:b2_t7_i9_h13_tf32_train+bias=none",
    "rnn:b3_t7_i5_h11_bf16_train+zoneout_h=0.2",
    "rnn:b3_t7_i5_h11_f32_bi+merge=sum",
    "lstm:b3_t7_i5_h11_bf16_bi_train+recompute",
    "lstm:b5_t7_i65_h11_p3_tf32_train+recompute+zoneout_c=0.1+mask=holes",
    "lstm:b900_t7_i2001_h1101_f32x3_train+recompute",
    "gru:b3_t7_i9_h13_f16_train+recompute+rdrop=0.1",
    "gru:b3_t7_i9_h13_f32_train+recompute+reset=before",
    "rnn:b3_t7_i5_h11_bf16_train+recompute",
    "lstm:b3_t2_i512_h512_bf16_train",
    "gru:b3_t2_i300_h300_f16_train",
};

static void check_history(const char *text, const sli_problem *p) {
    const sli_step_history at = sli_step_layout_history(p, CHUNK);
    const size_t B = (size_t)p->batch, T = (size_t)p->steps, H = (size_t)p->units, O = (size_t)sli_problem_output(p);
    const bool narrow = p->dtype == SL_BF16 || p->dtype == SL_F16, lstm = p->op == SLI_OP_LSTM,
               gru = p->op == SLI_OP_GRU;
    const size_t operand = narrow ? 2 : 4, hs = padded(O, narrow ? 8 : p->dtype == SL_F32 ? 1 : 4);
    const size_t us = padded((size_t)sli_op_gates(p->op) * H, narrow ? 8 : 4), states = p->train ? T + 1 : 1;
    const bool keep_gates = p->train && !p->recompute;
    const bool keeps = gru || p->mask != SLI_MASK_NONE || p->zoneout_h > 0;
    const bool own = keeps && (narrow || (p->train && p->recurrent_dropout > 0));
    const bool pairs = sli_step_shape_of(p, CHUNK).pairs;
    const piece pieces[] = {
        {at.u, keep_gates ? T * B * us * 4 : 0},
        {at.sn, keep_gates && gru && !p->reset_before ? T * B * H * 4 : 0},
        /* of several chunks, and one direction */
        {at.x, keep_gates && narrow && !p->bidirectional && (T > CHUNK || pairs)
                   ? T * B * padded((size_t)p->inputs, 8) * 2
                   : 0},
        {at.h, (p->train ? states : 2) * B * hs * operand},
        {at.hf, own ? (gru ? states : 1) * B * O * 4 : 0},
        {at.c, lstm ? states * B * H * 4 : 0},
        {at.v, keep_gates && p->zoneout_c > 0 ? T * B * H * 4 : 0},
    };
    check_pieces(text, pieces, (int)(sizeof pieces / sizeof *pieces), at.stride);
    CHECK(at.total == at.stride * (p->bidirectional ? 2 : 1));
}

static void check_scratch(const char *text, const sli_problem *p, const sli_caps *caps) {
    const sli_step_shape s = sli_step_shape_of(p, CHUNK);
    const size_t B = (size_t)p->batch, T = (size_t)p->steps, H = (size_t)p->units, O = (size_t)sli_problem_output(p);
    const size_t rows = CHUNK * B, hs = (size_t)s.hs, ms = (size_t)s.ms, zs = (size_t)s.zs, us = (size_t)s.us;
    const bool bias = p->bias != SL_BIAS_NONE, after = s.gru && !s.before;
    const size_t gates = rows * us * 4, GH = (size_t)s.GH;
    const bool transposes = sli_step_transpose_gain(&s, p->dtype, caps, s.rows) > 0;
    const size_t row_t = transposes ? (rows + 7) / 8 * 32 : 0;
    const size_t x = s.copy_x ? rows * (size_t)s.xs * s.operand : 0, flags = s.mask ? T * B : 0;
    const size_t factor = s.drop ? B * O * 4 : 0;
    const sli_step_scratch f = sli_step_layout_forward(p, caps, CHUNK, true),
                           b = sli_step_layout_backward(p, caps, CHUNK, CHUNK, true);
    const piece forward[] = {
        {f.history, p->train ? 0 : sli_step_layout_history(p, CHUNK).stride},
        {f.x, x},
        {f.flags, flags},
        {f.factor, factor},
        {f.u, p->train && !p->recompute ? 0 : gates},
        {f.s, B * us * 4},
        {f.reset, s.before ? B * hs * s.operand : 0},
        {f.m, s.project ? B * ms * s.operand : 0},
        {f.q, s.project ? B * O * 4 : 0},
        {f.h_tiled, 0},
        {f.split, f.split_bytes},
        {f.workspace, f.workspace_bytes},
    };
    check_pieces(text, forward, (int)(sizeof forward / sizeof *forward), f.stride);
    const piece backward[] = {
        {b.x, x},
        {b.flags, flags},
        {b.factor, factor},
        {b.u, p->recompute ? gates : 0},
        {b.sn, p->recompute && after ? rows * H * 4 : 0},
        {b.v, p->recompute && p->zoneout_c > 0 ? rows * H * 4 : 0},
        {b.dz, rows * zs * s.operand},
        {b.dr, after ? rows * zs * s.operand : 0},
        {b.dpeep, p->peephole ? rows * 3 * H * 4 : 0},
        {b.dp, (size_t)b.dp_pieces * B * hs * 4},
        {b.pw, s.gru || s.mask || p->zoneout_h > 0 ? B * O * 4 : 0},
        {b.dc, s.lstm ? B * H * 4 : 0},
        {b.dq, s.project ? rows * hs * s.operand : 0},
        {b.m, s.project ? rows * ms * s.operand : 0},
        {b.dm, s.project || s.before ? B * ms * 4 : 0},
        {b.resets, s.before ? rows * hs * s.operand : 0},
        {b.dz_t, GH * row_t},
        {b.dr_t, after ? GH * row_t : 0},
        {b.x_t, (size_t)s.xs * row_t},
        {b.h_t, hs * row_t},
        {b.columns, bias || p->peephole ? (rows + 127) / 128 * 4 * H * 4 : 0},
        {b.pad, b.pad_bytes},
        {b.split, b.split_bytes},
        {b.workspace, b.workspace_bytes},
    };
    check_pieces(text, backward, (int)(sizeof backward / sizeof *backward), b.stride);
    CHECK(f.total == f.stride * (p->bidirectional ? 2 : 1) && b.total == b.stride * (p->bidirectional ? 2 : 1));
}

TEST(cuda_step_layouts_fit_together) {
    const sli_caps caps = invented(90);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const sli_problem p = problem(layouts[i]);
        check_history(layouts[i], &p);
        check_scratch(layouts[i], &p, &caps);
    }
}

/* Tiles of 128 x 64 once around 132 multiprocessors: 32 of 2048 units, 64 of 4096, 64 of 256 rows and 2048 units. */
TEST(cuda_step_cuts_k_of_small_products) {
    const struct {
        const char *text;
        int capability, pieces;
    } cases[] = {
        {"lstm:b128_t9_i5_h2048_bf16_train", 90, 4}, {"lstm:b128_t9_i5_h4096_f16_train", 90, 2},
        {"lstm:b256_t9_i5_h2048_bf16_train", 90, 2}, {"lstm:b256_t9_i5_h4096_bf16_train", 90, 1},
        {"gru:b128_t9_i5_h2048_bf16_train", 90, 4},  {"lstm:b128_t9_i5_h2048_bf16_train", 80, 1},
        {"lstm:b128_t9_i5_h2048_tf32_train", 90, 1}, {"lstm:b128_t9_i5_h2048_train", 90, 1},
        {"lstm:b20_t9_i5_h1500_bf16_train", 90, 1},  {"gru:b32_t9_i5_h1024_bf16_train", 90, 1},
        {"rnn:b32_t9_i5_h2048_bf16_train", 90, 1},   {"gru:b128_t9_i5_h2048_bf16_train+reset=before", 90, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sli_problem p = problem(cases[i].text);
        sli_caps caps = invented(cases[i].capability);
        caps.multiprocessors = 132;
        const sli_step_scratch at = sli_step_layout_backward(&p, &caps, 3, 3, true);
        if (at.dp_pieces != cases[i].pieces)
            test_fail(__FILE__, __LINE__, "%s: %d pieces, not %d", cases[i].text, at.dp_pieces, cases[i].pieces);
    }
}

/* Room for the widest gradient whose rows the fast kernels do not take: 1500 is 187.5 times 8, 375 times 4. */
TEST(cuda_step_pads_gradients_of_large_products) {
    const struct {
        const char *text;
        int capability;
        size_t bytes;
    } cases[] = {
        {"lstm:b20_t35_i1500_h1500_bf16_train", 90, (size_t)6000 * 1504 * 4},
        {"lstm:b20_t35_i1500_h1500_bf16_train", 80, 0},
        {"lstm:b20_t35_i1500_h1500_tf32_train", 90, 0},
        {"lstm:b20_t35_i1500_h1500_f32_train", 90, 0},
        {"lstm:b20_t35_i650_h650_tf32_train", 90, (size_t)2600 * 652 * 4},
        {"lstm:b20_t35_i650_h650_f16_train", 90, (size_t)2600 * 656 * 4},
        {"lstm:b20_t35_i10002_h656_f16_train", 90, (size_t)2624 * 10008 * 4},
        {"lstm:b20_t35_i648_h648_bf16_train", 90, 0},
        {"lstm:b20_t35_i201_h201_bf16_train", 90, (size_t)2 * 808 * 208 * 4}, /* both gradients at once */
        {"lstm:b20_t35_i201_h201_bf16_bi_train", 90, (size_t)808 * 208 * 4},
        {"lstm:b20_t35_i209_h201_bf16_train", 90, (size_t)808 * 216 * 4},
        {"lstm:b4_t35_i201_h201_bf16_train", 90, 0},
        {"lstm:b2_t35_i101_h101_bf16_train", 90, 0}, /* too small to pay */
        {"lstm:b20_t35_i2048_h2048_p1001_bf16_train", 90, (size_t)8192 * 1008 * 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sli_caps caps = invented(cases[i].capability);
        const sli_problem p = problem(cases[i].text);
        const sli_step_scratch at = sli_step_layout_backward(&p, &caps, 35, 35, true);
        if (at.pad_bytes != cases[i].bytes)
            test_fail(__FILE__, __LINE__, "%s: %zu bytes, not %zu", cases[i].text, at.pad_bytes, cases[i].bytes);
        CHECK(at.pad + at.pad_bytes <= at.workspace);
    }
}

/* Sums over time of large layers in tf32 read transposed copies of their operands. */
TEST(cuda_step_transposes_large_layers) {
    const struct {
        const char *text;
        int capability, chunk;
        bool gains;
    } cases[] = {
        {"lstm:b32_t100_i2048_h2048_tf32_train", 90, 100, true},
        {"lstm:b33_t97_i1501_h1503_tf32_bi_train", 90, 97, true}, /* rows of d kernel and d recurrent are padded */
        {"lstm:b20_t35_i1500_h1500_tf32_train", 100, 35, true},
        {"gru:b64_t50_i4096_h4096_tf32_train", 90, 50, true},
        {"lstm:b64_t50_i2048_h2048_p1800_tf32_train", 90, 50, true},
        {"lstm:b64_t50_i3_h4096_tf32_train", 90, 50, true}, /* what d recurrent wins is enough */
        {"lstm:b64_t50_i3_h512_tf32_train", 90, 50, false}, /* and is not */
        {"gru:b64_t50_i768_h768_tf32_train", 90, 50, false},
        {"lstm:b32_t100_i2048_h2048_tf32_train", 80, 100, false},
        {"lstm:b32_t100_i2048_h2048_f32_train", 90, 100, false},
        {"lstm:b32_t100_i2048_h2048_f32x3_train", 90, 100, false},
        {"lstm:b32_t100_i2048_h2048_bf16_train", 90, 100, false},
        {"gru:b64_t50_i4096_h4096_tf32_train+reset=before", 90, 50, false},
        {"lstm:b64_t50_i128_h128_tf32_train", 90, 50, false},
        {"lstm:b1_t50_i1024_h1024_tf32_train", 90, 50, false}, /* not worth a launch */
        /* Timed with and without (overlap_h200_2026-11-24.txt, 8); */
        {"lstm:b16_t25_i512_h512_tf32_train", 90, 25, true},
        {"lstm:b32_t25_i512_h512_tf32_train", 90, 25, true},
        {"lstm:b64_t25_i512_h512_tf32_train", 90, 25, true},
        {"lstm:b128_t25_i512_h512_tf32_train", 90, 25, true},
        {"lstm:b16_t25_i1024_h1024_tf32_train", 90, 25, true},
        {"lstm:b20_t35_i650_h650_tf32_train", 90, 35, true},
        {"lstm:b16_t150_i256_h256_tf32_train", 90, 150, false},
        {"lstm:b32_t150_i256_h256_tf32_train", 90, 128, false},
        {"lstm:b64_t150_i256_h256_tf32_train", 90, 64, false},
        {"gru:b64_t1000_i512_h512_tf32_train", 90, 64, false},
        /* and what they do not speak of. */
        {"lstm:b15_t26_i512_h512_tf32_train", 90, 26, false},
        {"lstm:b16_t25_i508_h512_tf32_train", 90, 25, false},
        {"lstm:b16_t25_i513_h512_tf32_train", 90, 25, false},
        {"lstm:b16_t25_i512_h512_tf32_bi_train", 90, 25, false},
        {"lstm:b16_t25_i512_h600_p512_tf32_train", 90, 25, false},
        {"gru:b16_t25_i512_h512_tf32_train", 90, 25, false},
        {"lstm:b16_t25_i512_h512_tf32_train", 80, 25, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sli_caps caps = invented(cases[i].capability);
        sli_problem p = problem(cases[i].text);
        const sli_step_shape s = sli_step_shape_of(&p, cases[i].chunk);
        const sli_step_scratch at = sli_step_layout_backward(&p, &caps, cases[i].chunk, cases[i].chunk, true);
        const size_t row = (size_t)sli_cuda_transposed_row(s.rows) * sizeof(float);
        const bool gains = sli_step_transpose_gain(&s, p.dtype, &caps, s.rows) > 0;
        if (gains != cases[i].gains) test_fail(__FILE__, __LINE__, "%s: %d", cases[i].text, (int)gains);
        CHECK(!gains == (at.columns == at.dz_t));
        if (!gains) continue;
        CHECK((s.gru ? at.dr_t : at.x_t) - at.dz_t >= (size_t)s.GH * row);
        CHECK(at.x_t - at.dr_t >= (s.gru ? (size_t)s.GH * row : 0));
        CHECK(at.h_t - at.x_t >= (size_t)s.xs * row && at.columns - at.h_t >= (size_t)s.hs * row);
        CHECK(at.dz_t % 16 == 0 && at.dr_t % 16 == 0 && at.x_t % 16 == 0 && at.h_t % 16 == 0);
        for (p.batch--; p.batch > 0; p.batch -= 3) /* smaller calls of the plan */
            CHECK(sli_step_layout_backward(&p, &caps, cases[i].chunk, cases[i].chunk, true).total <= at.total);
    }
}

TEST(cuda_step_books_its_layouts) {
    const sli_caps caps = invented(100);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const sli_problem p = problem(layouts[i]);
        sli_booking booking;
        row_of(&p)->book(&p, &caps, CHUNK, &booking);
        CHECK(booking.saved == (p.train ? sli_step_layout_history(&p, CHUNK).total : 0));
        CHECK(booking.scratch_forward == sli_step_layout_forward(&p, &caps, CHUNK, true).total);
        CHECK(booking.scratch_backward ==
              (p.train ? sli_step_layout_backward(&p, &caps, CHUNK, CHUNK, true).total : 0));
        CHECK(booking.packed == sli_step_layout_packed(&p, &caps).total);
    }
}

/* States alone are saved, of every direction; the gates of one chunk lie in scratch. By hand: 20 rows of 100 units, 40 steps in
 * chunks of 8; 400 gate columns, 104 operands of 2 bytes. */
TEST(cuda_step_recompute_books_states_and_one_chunk) {
    const sli_caps caps = invented(90);
    sli_problem p = problem("lstm:b20_t40_i30_h100_bf16_train"), again = p;
    again.recompute = true;
    sli_booking kept, few;
    sli_cuda_lstm.book(&p, &caps, 8, &kept);
    sli_cuda_lstm.book(&again, &caps, 8, &few);
    const size_t gates = (size_t)20 * 400 * 4, h = (size_t)41 * 20 * 104 * 2, c = (size_t)41 * 20 * 100 * 4;
    CHECK(few.saved == padded(h, 256) + padded(c, 256));
    const size_t x = (size_t)40 * 20 * 32 * 2;
    CHECK(kept.saved == few.saved + 40 * gates + x);
    CHECK(few.scratch_forward == kept.scratch_forward + 8 * gates);
    CHECK(few.scratch_backward == kept.scratch_backward + 8 * gates);
    CHECK(few.packed == kept.packed);

    /* GRU: s_n goes too; h stays as float and as operand. */
    p = problem("gru:b20_t40_i30_h100_bf16_bi_train");
    again = p;
    again.recompute = true;
    sli_cuda_gru.book(&p, &caps, 8, &kept);
    sli_cuda_gru.book(&again, &caps, 8, &few);
    const size_t of_step = (size_t)20 * (304 + 100) * 4; /* 300 gates in rows of whole eights */
    CHECK(few.saved == 2 * (padded(h, 256) + padded(c, 256)));
    CHECK(kept.saved == few.saved + 2 * 40 * of_step);
    CHECK(few.scratch_backward == kept.scratch_backward + 2 * 8 * of_step);

    /* Inference keeps nothing: the option says nothing there. */
    p = problem("lstm:b20_t40_i30_h100_bf16+recompute");
    CHECK(!p.recompute);
}

/* One more product of each kind, and more time, in training alone. */
TEST(cuda_step_recompute_costs_products) {
    const sli_caps caps = invented(90);
    const sli_problem p = problem("lstm:b64_t100_i256_h512_bf16_train"),
                      again = problem("lstm:b64_t100_i256_h512_bf16_train+recompute");
    sli_cost kept, few;
    sli_cuda_lstm.cost(&p, &caps, &kept);
    sli_cuda_lstm.cost(&again, &caps, &few);
    CHECK(few.flops == kept.flops / 3 * 4);
    const double more = sli_cuda_lstm.seconds(&again, &caps) - sli_cuda_lstm.seconds(&p, &caps);
    const double products = 2.0 * 64 * 100 * 2048 * (256 + 512) / 560e12;
    CHECK(more > products && more < products + 100e-6);
}

/* Weights are copied where products need other rows than the parameters have;
 * rows of zeros follow where the gates' gradients are padded. */
TEST(cuda_step_packs_what_is_not_aligned) {
    const sli_caps caps = invented(90);
    sli_problem p = problem("lstm:b3_t7_i5_h11_f32_train");
    CHECK(sli_step_layout_packed(&p, &caps).total == 256); /* 44 biases */

    p = problem("lstm:b3_t7_i8_h12_tf32_train");
    CHECK(sli_step_layout_packed(&p, &caps).total == 256);

    p = problem("gru:b3_t7_i8_h10_tf32_train"); /* 30 gate columns: 32 rows of 8
                                                 and of 12 */
    sli_step_packed at = sli_step_layout_packed(&p, &caps);
    CHECK(at.kernel == 0 && at.recurrent == 32 * 8 * 4 && at.bias == 1024 + 32 * 12 * 4 && at.total == at.bias + 256);

    p = problem("lstm:b3_t7_i5_h11_p3_bf16_bi_train"); /* 48 rows of 8, 48 of 8, 3
                                                        of 16 */
    at = sli_step_layout_packed(&p, &caps);
    CHECK(at.recurrent == 48 * 8 * 2 && at.projection == 2 * 768 && at.bias == 1536 + 256 && at.stride == 1792 + 256);
    CHECK(at.total == 2 * at.stride);
}

/* Steps of many rows in f32 are tiled where that is faster: R is packed as they read it, d h lies transposed, twice. */
TEST(cuda_step_tiles_many_rows) {
    static const struct {
        const char *text;
        int rows;
    } of[] = {{"lstm:b256_t128_i1024_h1024", 64},
              {"gru:b256_t128_i1024_h1024_train", 64},
              {"lstm:b128_t25_i1024_h1024_train+lengths+peephole", 32},
              {"lstm:b256_t128_i1024_h1024_f32x3", 64},
              {"lstm:b256_t128_i1024_h1024_tf32", 0},
              {"lstm:b256_t128_i1024_h1024_bf16", 0},
              {"lstm:b256_t128_i1024_h1024_p512", 0},
              {"gru:b256_t128_i1024_h1024+reset=before", 0},
              {"rnn:b256_t128_i1024_h1024", 0},
              {"lstm:b128_t25_i4096_h4096", 0}, /* twice as many blocks as multiprocessors */
              {"lstm:b16_t25_i1024_h1024", 0},
              {"lstm:b64_t25_i64_h64", 0}};
    sli_caps caps = invented(90);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const sli_problem p = problem(of[i].text);
        CHECK(sli_step_tiled(&p, &caps) == of[i].rows);
        const sli_step_packed whole = sli_step_layout_packed(&p, &caps), without = sli_step_layout_packed(&p, NULL);
        const size_t gates = p.op == SLI_OP_LSTM ? 4 : 3;
        if (p.dtype != SL_TF32) CHECK(whole.total - without.total == (of[i].rows > 0 ? gates * 1024 * 1024 * 4 : 0));
    }
    const sli_problem p = problem("lstm:b250_t128_i1024_h1000"); /* 1008 lines of 256 rows, of 32 blocks of units */
    CHECK(sli_step_tiled(&p, &caps) == 64);
    const sli_step_scratch at = sli_step_layout_forward(&p, &caps, 16, true);
    CHECK(at.split - at.h_tiled == 2 * 1008 * 256 * 4);
    CHECK(at.total - sli_step_layout_forward(&p, &caps, 16, false).total == 2 * 1008 * 256 * 4);
    CHECK(sli_step_layout_packed(&p, &caps).total - sli_step_layout_packed(&p, NULL).total == 1008 * 4 * 1024 * 4);
    caps.shared_memory = 99 << 10;
    CHECK(sli_step_tiled(&p, &caps) == 0);
}

/* Steps of many rows and large layers in tf32 on sm_90 are wide, a launch each where they are no runs: R, and R^T in training, are packed in 20 bits as they read them, v lies once more, and sums
 * come in pieces. */
TEST(cuda_step_multiplies_wide_steps) {
    static const struct {
        const char *text;
        int rows, blocks[2], tiles, stages[2], pieces[2]; /* forward, backward */
    } of[] = {{"lstm:b128_t25_i2048_h2048_tf32_train", 128, {64, 16}, 1, {64, 256}, {2, 8}},
              {"lstm:b64_t25_i4096_h4096_tf32_train", 64, {128, 32}, 1, {128, 512}, {1, 4}},
              {"gru:b256_t128_i1024_h1024_tf32_train+lengths+rdrop=0.2", 128, {24, 8}, 2, {32, 96}, {2, 8}},
              {"lstm:b129_t25_i9_h1031_tf32_train", 128, {33, 9}, 2, {33, 129}, {2, 7}}};
    static const char *const not_so[] = {
        "lstm:b128_t25_i2048_h2048_train",           "lstm:b128_t25_i2048_h2048_bf16_train",
        "lstm:b128_t25_i2048_h2048_f32x3",           "lstm:b16_t25_i2048_h2048_tf32_train",
        "lstm:b128_t25_i512_h512_tf32_train",        "lstm:b128_t25_i2048_h2048_p512_tf32_train",
        "gru:b128_t25_i2048_h2048_tf32+reset=before"};
    sli_caps caps = invented(90), older = invented(80), newer = invented(100);
    caps.no_compiler = true; /* no runs */
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const sli_problem p = problem(of[i].text);
        size_t bytes[2];
        for (int backward = 0; backward < 2; backward++) {
            const sli_step_wide w = sli_step_wide_of(&p, &caps, backward);
            CHECK(w.rows == of[i].rows && w.tiles == of[i].tiles && w.blocks == of[i].blocks[backward]);
            CHECK(w.stages == of[i].stages[backward] && w.pieces == of[i].pieces[backward]);
            CHECK(w.blocks * w.tiles * w.pieces <= caps.multiprocessors);
            CHECK(sli_step_wide_of(&p, &older, backward).rows == 0 && sli_step_wide_of(&p, &newer, backward).rows == 0);
            bytes[backward] = sli_round_up(sli_step_wide_bytes(&w), 256);
            CHECK(sli_step_wide_bytes(&w) == (size_t)w.blocks * 128 * (size_t)w.stages * 32 * 20 / 8);
            CHECK(!w.runs && sli_step_wide_v(&w) == (size_t)(w.tiles * w.rows * w.stages) * 32 * sizeof(float));
        }
        const sli_step_packed whole = sli_step_layout_packed(&p, &caps), without = sli_step_layout_packed(&p, NULL);
        CHECK(whole.stride - without.stride == bytes[0] + bytes[1] && whole.wide_backward == without.stride);
        CHECK(sli_step_layout_packed(&p, &older).stride == without.stride);
    }
    for (size_t i = 0; i < sizeof not_so / sizeof *not_so; i++) {
        const sli_problem p = problem(not_so[i]);
        CHECK(sli_step_wide_of(&p, &caps, false).rows == 0 && sli_step_wide_of(&p, &caps, true).rows == 0);
    }
    const sli_problem many = problem("lstm:b256_t25_i4096_h4096_tf32_train"); /* 256 blocks forward, 64 backward */
    CHECK(sli_step_wide_of(&many, &caps, false).rows == 0 && sli_step_wide_of(&many, &caps, true).rows == 128);
    const sli_problem p = problem(of[0].text);
    const sli_step_wide forward = sli_step_wide_of(&p, &caps, false), backward = sli_step_wide_of(&p, &caps, true);
    const sli_step_scratch f = sli_step_layout_forward(&p, &caps, 25, true),
                           b = sli_step_layout_backward(&p, &caps, 25, 25, true);
    CHECK(f.reset - f.s == 2 * 128 * 8192 * 4 + 128 * 2048 * 4 && b.wide - b.dp == 8 * 128 * 2048 * 4);
    CHECK(f.wide - f.s == 2 * 128 * 8192 * 4 && b.pw - b.wide == 128 * 8192 * 4);
    const double stage = (double)sli_step_wide_bytes(&forward) / forward.stages, part = (double)caps.l2_bytes / 4;
    const int near = sli_step_wide_near(&forward, 1, &caps);
    CHECK(near * stage <= part && (near + 1) * stage > part && sli_step_wide_near(&backward, 1, &caps) >= 4 * near);
}

/* Steps of layers whose weights L2 does not hold, in 16 bits, one direction and 9 to 128 rows, backward to 64, are runs, in tf32 forward, of more than 16 rows, where blocks or pairs
 * have whole units, or operands are scaled: as many blocks as are resident at once, R as they read it, in place of R where nothing else multiplies it, v twice, and counters. */
TEST(cuda_step_runs_many_steps_in_a_launch) {
    static const struct {
        const char *text;
        int rows, blocks[2], stages[2], pieces[2]; /* forward, backward; pieces 0: no run */
        int units;
    } of[] = {{"lstm:b128_t25_i4096_h4096_bf16_train", 128, {128, 32}, {64, 256}, {1, 0}, 32},
              {"lstm:b64_t25_i4096_h4096_f16_train+recompute", 64, {128, 32}, {64, 256}, {1, 4}, 32},
              {"lstm:b33_t25_i9_h4095_bf16_train+zoneout_h=0.1+lengths", 64, {128, 32}, {64, 256}, {1, 4}, 32},
              {"gru:b32_t187_i2816_h2816_bf16_train", 32, {66, 22}, {44, 132}, {2, 6}, 0},
              {"gru:b17_t187_i2880_h2880_bf16_train", 32, {72, 23}, {45, 135}, {1, 5}, 40},
              {"rnn:b9_t5_i9_h6000_f16_train", 16, {47, 47}, {94, 94}, {2, 2}, 128},
              {"lstm:b128_t25_i2048_h2048_tf32", 128, {64, 0}, {64, 0}, {2, 0}, 32},
              {"lstm:b17_t25_i4095_h4095_tf32+act=relu", 32, {128, 0}, {128, 0}, {1, 0}, 32},
              {"lstm:b64_t25_i4096_h4096_tf32_train+rdrop=0.2", 64, {128, 0}, {64, 0}, {1, 0}, 32}, /* scaled */
              {"gru:b9_t25_i9_h2816_tf32", 16, {66, 0}, {44, 0}, {2, 0}, 0}};
    static const char *const not_so[] = {
        "lstm:b8_t25_i4096_h4096_bf16_train",       "lstm:b129_t25_i4096_h4096_bf16_train",
        "lstm:b64_t25_i4096_h4096_bf16_bi_train",   "lstm:b64_t25_i2048_h2048_bf16_train",
        "lstm:b64_t25_i4096_h4096_p512_bf16_train", "gru:b32_t25_i4096_h4096_bf16+reset=before"};
    const sli_caps caps = invented(90), older = invented(80), newer = invented(100);
    sli_caps bare = caps;
    bare.no_compiler = true;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const sli_problem p = problem(of[i].text);
        size_t bytes[2] = {0};
        for (int backward = 0; backward < 2; backward++) {
            const sli_step_wide w = sli_step_wide_of(&p, &caps, backward);
            CHECK(w.runs == (of[i].pieces[backward] > 0));
            CHECK(sli_step_wide_of(&p, &older, backward).rows == 0 && sli_step_wide_of(&p, &newer, backward).rows == 0);
            CHECK(!sli_step_wide_of(&p, &bare, backward).runs &&
                  (!w.narrow || w.scaled || sli_step_wide_of(&p, &bare, backward).rows == 0));
            CHECK(w.scaled == (w.narrow && p.dtype == SL_TF32));
            if (p.train || !backward)
                bytes[backward] = sli_round_up(sli_step_wide_bytes(&w), 256) + (w.scaled ? 128 * sizeof(float) : 0);
            if (!w.runs) continue;
            CHECK(w.rows == of[i].rows && w.tiles == 1 && w.blocks == of[i].blocks[backward]);
            CHECK(w.stages == of[i].stages[backward] && w.pieces == of[i].pieces[backward]);
            CHECK(sli_step_wide_grid(&w) <= caps.multiprocessors && w.stages / w.pieces >= 10);
            CHECK(sli_step_wide_bytes(&w) ==
                  (size_t)w.blocks * 128 * (size_t)w.stages * (w.narrow ? 64 * 2 : 32 * 20 / 8));
            CHECK(sli_step_wide_v(&w) == (size_t)(w.rows * w.stages) * 128);
        }
        const sli_step_packed whole = sli_step_layout_packed(&p, &caps), without = sli_step_layout_packed(&p, NULL);
        const bool all = (!p.train || of[i].pieces[1] > 0) && !p.recompute;
        CHECK(sli_step_all_runs(&p, &caps) == all);
        CHECK(whole.stride ==
              without.stride + bytes[0] + bytes[1] - (all ? whole.kernel + without.projection - without.recurrent : 0));
        const sli_step_scratch f = sli_step_layout_forward(&p, &caps, 5, true);
        const sli_step_wide forward = sli_step_wide_of(&p, &caps, false);
        CHECK(forward.units == of[i].units &&
              sli_step_wide_pairs(&forward) == (forward.units > 0 && forward.pieces == 2));
        CHECK(forward.units == 0 || (forward.blocks * forward.units >= p.units && f.wide == sli_round_up(f.s, 256)));
        CHECK(f.counts - f.wide >= 2 * sli_step_wide_v(&forward));       /* by turns */
        CHECK(f.reset - f.counts >= 128 * (size_t)(1 + forward.blocks)); /* counters */
    }
    for (size_t i = 0; i < sizeof not_so / sizeof *not_so; i++) {
        const sli_problem p = problem(not_so[i]);
        CHECK(sli_step_wide_of(&p, &caps, false).rows == 0 && sli_step_wide_of(&p, &caps, true).rows == 0);
    }
    /* A call of 5 rows is fused, and reads R, where one of 1 and one of 17 is not. */
    sli_caps small = caps;
    small.multiprocessors = 78;
    small.l2_bytes = 60 << 20;
    const sli_problem fused = problem("rnn:b17_t5_i8_h3889_tf32");
    CHECK(sli_step_wide_of(&fused, &small, false).runs && !sli_step_all_runs(&fused, &small));
    /* Pairs that are not resident at once. */
    small = caps;
    small.resident[0] = small.resident[1] = 132;
    small.resident[2] = 63;
    const sli_problem pairs = problem("lstm:b128_t25_i2048_h2048_tf32");
    CHECK(!sli_step_wide_of(&pairs, &small, false).runs && sli_step_wide_of(&pairs, &small, false).rows == 128);
    small.resident[2] = 64;
    CHECK(sli_step_wide_pairs(&(sli_step_wide){.units = 32, .pieces = 2}) &&
          sli_step_wide_of(&pairs, &small, false).runs);
    const sli_problem many = problem("lstm:b64_t25_i8192_h8192_bf16_train"); /* 256 blocks forward, 64 backward */
    CHECK(!sli_step_wide_of(&many, &caps, false).runs && sli_step_wide_of(&many, &caps, true).runs);
    /* cuda:grid may go backward in them, and has R^T where cuda:step has it, which may have no other copy of R. */
    static const char *const of_grid[] = {"lstm:b32_t25_i4096_h4096_bf16_train", "lstm:b32_t25_i6000_h6000_bf16_train"};
    for (size_t i = 0; i < sizeof of_grid / sizeof *of_grid; i++) {
        const sli_problem p = problem(of_grid[i]);
        sli_persist_pair pair;
        sli_why why = {""};
        REQUIRE(sli_persist_pair_of(&p, (sli_planned){0}, &caps, SLI_PERSIST_KIND_GRID, &pair, &why));
        const sli_step_packed own = sli_step_layout_packed(&p, &caps);
        const sli_persist_packed grid = sli_persist_layout_packed(&p, &pair);
        CHECK(pair.backward_in_steps && sli_step_wide_of(&p, &caps, true).runs &&
              pair.steps_run == sli_step_all_runs(&p, &caps));
        CHECK(grid.step.kernel == own.kernel && grid.step.bias == own.bias &&
              grid.step.wide_backward == own.wide_backward);
        CHECK(grid.forward == own.wide_forward); /* what comes behind */
    }
    /* A fifth of L2 is kept for weights that are far more than it, half of it for others. */
    const sli_problem far = problem(of[1].text), less = problem(of[3].text);
    const sli_step_wide w = sli_step_wide_of(&far, &caps, false), v = sli_step_wide_of(&less, &caps, false);
    const double l2 = (double)caps.l2_bytes;
    CHECK(fabs(sli_step_wide_near(&w, 1, &caps) - 0.2 * l2 / (double)sli_step_wide_bytes(&w) * w.stages) <= 1);
    CHECK(fabs(sli_step_wide_near(&v, 1, &caps) - 0.55 * l2 / (double)sli_step_wide_bytes(&v) * v.stages) <= 1);
}

/* A call of fewer rows or steps than the plan's must fit in what the plan
 * booked. */
TEST(cuda_step_smaller_calls_fit) {
    sli_caps caps = invented(90);
    caps.shared_memory = 0; /* no tiled and no wide steps: those of a smaller call lie as the plan's do */
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const sli_problem plan = problem(layouts[i]);
        sli_booking most, least;
        row_of(&plan)->book(&plan, &caps, CHUNK, &most);
        for (int batch = 1; batch <= plan.batch; batch++)
            for (int steps = 0; steps <= plan.steps; steps++) {
                sli_problem call = plan;
                call.batch = batch;
                call.steps = steps;
                row_of(&call)->book(&call, &caps, CHUNK, &least);
                CHECK(least.saved <= most.saved && least.scratch_forward <= most.scratch_forward);
                CHECK(least.scratch_backward <= most.scratch_backward && least.packed == most.packed);
            }
    }
}

/* Segments of whole chunks: the workspace, which decides algorithms, must not
 * change with their length. */
TEST(cuda_step_workspace_does_not_depend_on_steps) {
    const sli_caps caps = invented(90);
    sli_problem p = problem("lstm:b64_t60_i650_h650_bf16_train");
    const size_t forward = sli_step_layout_forward(&p, &caps, 16, true).workspace_bytes;
    const size_t backward = sli_step_layout_backward(&p, &caps, 16, 16, true).workspace_bytes;
    for (int steps = 1; steps < 60; steps += 7) {
        p.steps = steps;
        CHECK(sli_step_layout_forward(&p, &caps, 16, true).workspace_bytes == forward);
        CHECK(sli_step_layout_backward(&p, &caps, 16, 16, true).workspace_bytes == backward);
    }
}

/* -----------------------------------------------------------------------------------------------------
 * launches -- */
TEST(cuda_step_grids_cover_and_stay_within_limits) {
    static const int64_t units[] = {1, 3, 7, 8, 9, 31, 32, 33, 127, 128, 129, 650, 1500, 8191};
    static const int64_t rows[] = {1, 2, 3, 20, 64, 65, 1000, 65535, 70000, 5000000};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int vector = 1; vector <= 4; vector += 3) {
                const sli_step_grid g = sli_step_grid_of(units[u], rows[r], vector);
                CHECK(g.bx * g.by == 128 && g.gx >= 1 && g.gy >= 1 && g.gy <= 65535);
                CHECK((int64_t)g.gx * g.bx * vector >= units[u]);
                CHECK((int64_t)(g.gx - 1) * g.bx * vector < units[u]); /* no block without work */
                CHECK((int64_t)g.gy * g.by >= rows[r] || g.gy == 65535);
                CHECK((int64_t)(g.gy - 1) * g.by < rows[r]);
            }
}

TEST(cuda_step_vectors_only_where_there_is_work) {
    const sli_caps caps = invented(90);
    const struct {
        const char *text;
        int vector;
    } cases[] = {{"lstm:b20_t35_i650_h650", 1},
                 {"lstm:b1_t35_i1024_h1024", 1},
                 {"lstm:b64_t35_i1024_h1024", 1},
                 {"lstm:b256_t35_i1024_h1024", 4},
                 {"lstm:b256_t35_i1024_h1023", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sli_problem p = problem(cases[i].text);
        const sli_step_shape s = sli_step_shape_of(&p, 1);
        CHECK(sli_step_vector(&s, &caps) == cases[i].vector);
    }
}

TEST(cuda_step_slices) {
    CHECK(sli_step_slices(0) == 1 && sli_step_slices(1) == 1 && sli_step_slices(128) == 1);
    CHECK(sli_step_slices(129) == 2 && sli_step_slices(1024) == 8);
}

/* -----------------------------------------------------------------------------------------
 * cost and prediction -- */
TEST(cuda_step_counts_flops) {
    const sli_caps caps = invented(90);
    sli_problem p = problem("lstm:b3_t7_i5_h11");
    sli_cost cost;
    sli_cuda_lstm.cost(&p, &caps, &cost);
    const double products = 2.0 * 3 * 7 * 44 * (5 + 11);
    CHECK(cost.flops == products + 30.0 * 3 * 7 * 11);
    CHECK(cost.bytes > 4.0 * (44 * 5 + 7 * 44 * 11));
    p.train = true;
    sli_cost train;
    sli_cuda_lstm.cost(&p, &caps, &train);
    CHECK(train.flops == 3 * cost.flops);
    p = problem("gru:b2_t2_i3_h4_bi");
    sli_cuda_gru.cost(&p, &caps, &cost);
    CHECK(cost.flops == 2 * 2 * 2 * (2.0 * 12 * (3 + 4) + 30.0 * 4));
}

/* Order, not numbers: those are measured. */
TEST(cuda_step_predicts_more_for_more) {
    const sli_caps caps = invented(90);
    const char *const less_to_more[] = {"lstm:b20_t35_i200_h200_bf16",
                                        "lstm:b20_t35_i650_h650_bf16",
                                        "lstm:b20_t35_i650_h650_bf16_train",
                                        "lstm:b20_t35_i1500_h1500_bf16_train",
                                        "lstm:b20_t35_i1500_h1500_tf32_train",
                                        "lstm:b20_t70_i1500_h1500_tf32_train",
                                        "lstm:b20_t70_i1500_h1500_bi_tf32_train",
                                        "lstm:b256_t70_i4096_h4096_bi_f32_train"};
    double before = 0;
    for (size_t i = 0; i < sizeof less_to_more / sizeof *less_to_more; i++) {
        const sli_problem p = problem(less_to_more[i]);
        const double seconds = sli_cuda_lstm.seconds(&p, &caps);
        if (!(seconds > before && seconds < 10)) test_fail(__FILE__, __LINE__, "%s: %g s", less_to_more[i], seconds);
        before = seconds;
    }
}
