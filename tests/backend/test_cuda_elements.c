/* cuda:embed, cuda:onehot, cuda:dropout, cuda:merge, cuda:flip on libsluice's side: what they take and book, on devices that
 * need not exist. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/elements_layout.h"
#include "problem_text.h"
#include "test.h"

static const sli_caps invented = {.kind = SLI_DEVICE_CUDA, .invented = true, .compute_capability = 90};

static bool computes(int dtype) {
    return dtype == SL_F32 || dtype == SL_TF32 || dtype == SL_BF16 || dtype == SL_F16 || dtype == SL_F32X3;
}

TEST(cuda_elements_take_their_types) {
    static const sli_kernel *const rows[] = {&sli_cuda_embed, &sli_cuda_onehot, &sli_cuda_dropout, &sli_cuda_merge,
                                             &sli_cuda_flip};
    static const char *const shapes[] = {"embed:b3_t4_i5_h7", "onehot:b3_t4_i5", "dropout:b3_t4_h7", "merge:b3_t4_h6",
                                         "flip:b3_t4_h7"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sli_problem p = problem(shapes[i]);
        REQUIRE(p.op == rows[i]->op && rows[i]->device == SLI_DEVICE_CUDA);
        for (int dtype = SL_F32; dtype <= SL_F64; dtype++) {
            sli_why why = {""};
            p.dtype = (sl_dtype)dtype;
            const bool taken = rows[i]->eligible(&p, &invented, &why);
            if (taken != computes(dtype)) test_fail(__FILE__, __LINE__, "%s: %s", rows[i]->name, why.text);
            if (!taken) CHECK(strstr(why.text, sli_dtype_name(p.dtype)) != NULL);
        }
    }
}

TEST(cuda_embed_refuses_too_many_tokens) {
    sli_problem p = problem("embed:b65536_t32768_i5_h1_train");
    sli_why why = {""};
    CHECK(!sli_cuda_embed.eligible(&p, &invented, &why));
    CHECK(strstr(why.text, "2147483648") != NULL);
    p.batch--;
    CHECK(sli_cuda_embed.eligible(&p, &invented, &why));
}

/* Backward may find the memory of everything but the tokens given to others. */
TEST(cuda_elements_backward_reads_little) {
    CHECK(sli_cuda_embed.backward_reads_in == 1u << SLI_EMBED_TOKENS);
    CHECK(sli_cuda_merge.backward_reads_in == 0 && sli_cuda_dropout.backward_reads_in == 0);
    CHECK(sli_cuda_merge.backward_reads_out == 0 && sli_cuda_dropout.backward_reads_out == 0);
    CHECK(sli_cuda_onehot.backward == NULL);
}

TEST(cuda_merge_books_the_factors_of_a_product) {
    sli_booking booking;
    sli_problem p = problem("merge:b5_t3_h12_train+mode=mul+parts=3");
    sli_cuda_merge.book(&p, &invented, 1, &booking);
    CHECK(booking.saved == (size_t)3 * 5 * 3 * 12 * 4 && booking.scratch_backward == 0);
    p.train = false;
    sli_cuda_merge.book(&p, &invented, 1, &booking);
    CHECK(booking.saved == 0);
    p = problem("merge:b5_t3_h12_train+mode=ave+parts=3");
    sli_cuda_merge.book(&p, &invented, 1, &booking);
    CHECK(booking.saved == 0);
}

TEST(cuda_merge_widths) {
    sli_problem p = problem("merge:b3_t4_h9+mode=concat+parts=4+widths=2:3:1:3");
    static const int widths[] = {2, 3, 1, 3};
    for (int k = 0; k < 4; k++) CHECK(sli_merge_width(&p, k) == widths[k]);
    p = problem("merge:b3_t4_h12+mode=concat+parts=3");
    for (int k = 0; k < 3; k++) CHECK(sli_merge_width(&p, k) == 4);
}

/* Arrays lie one after the other inside what is booked, and the passes cover every bit of a token and of the key of one outside the vocabulary. */
static void check_sort(size_t positions, int vocabulary) {
    const sli_sort_layout layout = sli_sort_layout_of(positions, vocabulary);
    const size_t array = positions * sizeof(int32_t);
    CHECK(layout.tokens[0] + array <= layout.rows[0]);
    CHECK(layout.rows[0] + array <= layout.tokens[1]);
    CHECK(layout.bytes >= layout.rows[0] + array);
    CHECK(layout.rows[0] % SLI_ALIGN == 0 && layout.counts % SLI_ALIGN == 0);
    if (positions <= SLI_SORT_SMALL) {
        CHECK(layout.passes == 0 && sli_sort_result(&layout) == 0);
        return;
    }
    CHECK(layout.tokens[1] + array <= layout.rows[1]);
    CHECK(layout.rows[1] + array <= layout.counts);
    CHECK(layout.tiles * SLI_SORT_TILE >= positions && (layout.tiles - 1) * SLI_SORT_TILE < positions);
    CHECK(layout.counts + layout.tiles * SLI_SORT_DIGITS * sizeof(uint32_t) == layout.bytes);
    CHECK(layout.passes >= 1 && layout.passes <= 4);
    CHECK((uint64_t)vocabulary >> (8 * layout.passes) == 0);
    if (layout.passes > 1) CHECK((uint64_t)vocabulary >> (8 * (layout.passes - 1)) != 0);
}

TEST(cuda_embed_sort_fits_its_scratch) {
    static const int vocabularies[] = {1, 2, 255, 256, 257, 10000, 65536, 65537, 1 << 24, INT32_MAX};
    static const size_t positions[] = {1, 2, 700, 4095, 4096, 4097, 6144, 6145, 300001, 5000000};
    for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++)
        for (size_t k = 0; k < sizeof positions / sizeof *positions; k++) check_sort(positions[k], vocabularies[v]);
}

TEST(cuda_embed_smaller_calls_fit) {
    sli_booking booking;
    sli_problem p = problem("embed:b33_t200_i10000_h650_train");
    sli_cuda_embed.book(&p, &invented, 8, &booking);
    CHECK(booking.scratch_forward == 0 && booking.packed == 0);
    for (size_t rows = 1; rows <= 33 * 200; rows++) {
        const sli_sort_layout layout = sli_sort_layout_of(rows, p.inputs);
        CHECK(layout.bytes <= (layout.passes > 0 ? booking.scratch_backward : booking.saved));
    }
    p = problem("embed:b33_t20_i10000_h650_train"); /* sorted with forward */
    sli_cuda_embed.book(&p, &invented, 8, &booking);
    CHECK(booking.scratch_backward == 0 && booking.saved == sli_sort_layout_of(33 * 20, p.inputs).bytes);
    p.train = false;
    sli_cuda_embed.book(&p, &invented, 8, &booking);
    CHECK(booking.scratch_backward == 0 && booking.saved == 0);
}

TEST(cuda_elements_costs) {
    sli_cost one, two;
    sli_problem p = problem("dropout:b20_t35_h650+drop=0.5");
    sli_cuda_dropout.cost(&p, &invented, &one);
    p.train = true;
    sli_cuda_dropout.cost(&p, &invented, &two);
    CHECK(one.bytes == 8.0 * 20 * 35 * 650 && two.bytes == 2 * one.bytes);
    p = problem("onehot:b20_t35_i100");
    sli_cuda_onehot.cost(&p, &invented, &one);
    CHECK(one.bytes == 4.0 * 20 * 35 * 100);
    p = problem("embed:b20_t35_i10000_h650_train");
    sli_cuda_embed.cost(&p, &invented, &one);
    CHECK(one.flops == 20.0 * 35 * 650);
    p = problem("merge:b5_t3_h12+parts=4");
    sli_cuda_merge.cost(&p, &invented, &one);
    CHECK(one.flops == 3.0 * 5 * 3 * 12 && one.bytes == 5 * 4.0 * 5 * 3 * 12);
}
