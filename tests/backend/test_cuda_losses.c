/* cuda:xent, cuda:bce, cuda:mse on libsluice's side, and what their kernels compute of one row or piece, as host code. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/losses_layout.h"
#include "problem_text.h"
#include "test.h"

static const sli_caps invented = {.kind = SLI_DEVICE_CUDA, .invented = true, .compute_capability = 80};
static const sli_kernel *const rows[] = {&sli_cuda_xent, &sli_cuda_bce, &sli_cuda_mse};
static const char *const shapes[] = {"xent:b5_t7_h9_train", "bce:b5_t7_h9_train", "mse:b5_t7_h9_train"};

static bool computes(int dtype) {
    return dtype == SL_F32 || dtype == SL_TF32 || dtype == SL_BF16 || dtype == SL_F16 || dtype == SL_F32X3;
}

TEST(cuda_losses_take_their_types) {
    for (int i = 0; i < 3; i++) {
        sli_problem p = problem(shapes[i]);
        REQUIRE(p.op == rows[i]->op && rows[i]->gradient_in_place);
        for (int dtype = SL_F32; dtype <= SL_F64; dtype++) {
            sli_why why = {""};
            p.dtype = (sl_dtype)dtype;
            CHECK(rows[i]->eligible(&p, &invented, &why) == computes(dtype));
            CHECK(computes(dtype) || strstr(why.text, sli_dtype_name(p.dtype)) != NULL);
        }
        sli_why why = {""};
        p = problem(shapes[i]);
        p.batch = 1 << 16;
        p.steps = 1 << 15;
        CHECK(!rows[i]->eligible(&p, &invented, &why) && strstr(why.text, "2147483648") != NULL);
    }
}

TEST(cuda_losses_book_their_rows) {
    for (int i = 0; i < 3; i++) {
        sli_booking booking;
        sli_problem p = problem(shapes[i]);
        rows[i]->book(&p, &invented, 3, &booking);
        CHECK(booking.scratch_forward == 35 * sizeof(sli_row_loss) && booking.scratch_backward == 0);
        CHECK(booking.saved == (i == 0 ? 35 * 2 * sizeof(float) : 0));
        p.train = false;
        p.steps = 0;
        rows[i]->book(&p, &invented, 3, &booking);
        CHECK(booking.scratch_forward == 5 * sizeof(sli_row_loss) && booking.saved == 0);
    }
}

TEST(cuda_losses_share_out_every_width) {
    for (int width = 1; width < 40000; width += width < 2000 ? 1 : 997) {
        const sli_loss_shape shape = sli_loss_shape_of(width);
        CHECK(shape.threads % 32 == 0 && shape.threads <= 1024);
        CHECK(shape.lanes >= 1 && (shape.lanes & (shape.lanes - 1)) == 0);
        CHECK(shape.lanes <= 32 || shape.lanes == shape.threads);
        CHECK(width > 2 || shape.lanes == 1);
    }
}

/* Pieces go through the rows in order without a gap, and none lies across the start of a chunk. */
static void check_pieces(int batch, int steps, int chunk) {
    sli_problem p = problem("xent:b1_t1_h2");
    p.batch = batch;
    p.steps = steps;
    const sli_loss_pieces pieces = sli_loss_pieces_of(&p, chunk);
    const size_t chunk_rows = (size_t)(steps > 0 ? chunk : 1) * (size_t)batch;
    size_t next = 0;
    for (size_t k = 0; k < pieces.pieces; k++) {
        size_t first, end;
        sli_loss_piece(&pieces, k, &first, &end);
        CHECK(first == next && end > first && end - first <= SLI_LOSS_PIECE);
        CHECK(first / chunk_rows == (end - 1) / chunk_rows);
        CHECK((first % chunk_rows) % SLI_LOSS_PIECE == 0);
        next = end;
    }
    CHECK(next == sli_cuda_rows_of(&p));
}

TEST(cuda_loss_pieces_cover_the_rows) {
    check_pieces(1, 0, 0);
    check_pieces(5000, 0, 7);
    check_pieces(20, 35, 35);
    check_pieces(20, 100, 50);
    check_pieces(3, 1000, 333);
    check_pieces(1500, 5, 1);
    check_pieces(1024, 4, 1);
    check_pieces(1, 4096, 1024);
    check_pieces(17, 131, 60);
}

/* Segments are whole chunks: their pieces are those of the whole sequence. */
TEST(cuda_loss_pieces_of_segments) {
    enum { BATCH = 17, STEPS = 151, CHUNK = 60 };
    sli_problem p = problem("xent:b17_t151_h2");
    const sli_loss_pieces whole = sli_loss_pieces_of(&p, CHUNK);
    size_t piece = 0;
    for (int t0 = 0; t0 < STEPS; t0 += CHUNK) {
        p.steps = t0 + CHUNK < STEPS ? CHUNK : STEPS - t0;
        const sli_loss_pieces part = sli_loss_pieces_of(&p, CHUNK);
        for (size_t k = 0; k < part.pieces; k++, piece++) {
            size_t first, end, whole_first, whole_end;
            sli_loss_piece(&part, k, &first, &end);
            sli_loss_piece(&whole, piece, &whole_first, &whole_end);
            CHECK(first + (size_t)t0 * BATCH == whole_first && end + (size_t)t0 * BATCH == whole_end);
        }
    }
    CHECK(piece == whole.pieces);
}

/* ------------------------------------------------------------------------------------------------------- softmax --
 * `lanes` threads see every lanes-th logit and join, as the kernels do. */
static sli_softmax running(const float *z, int width, int lanes, int label) {
    sli_softmax parts[64];
    for (int lane = 0; lane < lanes; lane++) {
        parts[lane] = (sli_softmax){-INFINITY, 0, 0};
        for (int j = lane; j < width; j += lanes) {
            sli_softmax_raise(&parts[lane], z[j]);
            sli_softmax_count(&parts[lane], z[j], j, label, z[label]);
        }
    }
    for (int apart = lanes / 2; apart > 0; apart /= 2)
        for (int lane = 0; lane < apart; lane++) sli_softmax_join(&parts[lane], &parts[lane + apart]);
    return parts[0];
}

static void check_softmax(const float *z, int width, int lanes) {
    double largest = (double)z[0], sum = 0;
    int best = 0;
    for (int j = 1; j < width; j++)
        if ((double)z[j] > largest) largest = (double)z[j], best = j;
    for (int j = 0; j < width; j++) sum += exp((double)z[j] - largest);
    for (int label = 0; label < width; label++) {
        const sli_softmax s = running(z, width, lanes, label);
        CHECK((double)s.largest == largest);
        CHECK_NEAR((double)s.sum / sum, 1, 2e-6);
        CHECK(!s.beaten == (label == best));
    }
}

TEST(cuda_softmax_is_that_of_the_definition) {
    enum { WIDTH = 130 };
    float z[WIDTH];
    uint64_t state = test_seed;
    for (int i = 0; i < 60; i++) {
        const int width = 1 + (int)((test_random(&state) + 1) * 0.5 * (WIDTH - 1));
        const double scale = i % 3 == 0 ? 100 : 6;
        for (int j = 0; j < width; j++) z[j] = (float)(scale * test_random(&state));
        if (i % 4 == 1) /* ties */
            for (int j = 0; j < width; j++) z[j] = (float)(int)(2 * test_random(&state));
        if (i % 4 == 2) /* forbidden tokens */
            for (int j = 1; j < width; j += 2) z[j] = -INFINITY;
        if (i % 8 == 6) { /* forbidden but for the last */
            for (int j = 0; j + 1 < width; j++) z[j] = -INFINITY;
            z[width - 1] = 1;
        }
        check_softmax(z, width, 1 << (i % 6));
    }
}

TEST(cuda_softmax_shows_what_is_no_number) {
    float z[40] = {0};
    z[3] = NAN;
    CHECK(isnan(running(z, 40, 8, 0).sum));
    for (int j = 0; j < 40; j++) z[j] = -INFINITY;
    const sli_softmax none = running(z, 40, 4, 0);
    CHECK(isnan(logf(none.sum) + none.largest - z[0]));
    z[0] = INFINITY;
    const sli_softmax all = running(z, 40, 4, 1);
    CHECK(!isfinite(logf(all.sum) + all.largest - z[1]));
}
