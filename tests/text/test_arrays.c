/* Array batches: layout, types, orders, checks. */
#include "data/arrays.h"
#include "test.h"

static sl_array array_of(sl_array_type type, void *data, size_t element, int rank, int64_t a, int64_t b, int64_t c) {
    sl_array array = {.type = type, .rank = rank, .shape = {a, b, c}, .data = data};
    array.bytes = element;
    for (int i = 0; i < rank; i++) array.bytes *= (size_t)array.shape[i];
    return array;
}

static const sli_array_needs sequence_needs = {
    .features = 2, .input_steps = true, .labels = true, .classes = 3, .output_steps = true};

TEST(arrays_fill_is_time_major) {
    double x[3 * 2 * 2];
    int64_t y[3 * 2] = {0, 1, 2, -1, 1, 0}, lengths[3] = {2, 1, 0};
    for (int i = 0; i < 12; i++) x[i] = i + 0.5;
    sl_array xa = array_of(SL_ARRAY_F64, x, 8, 3, 3, 2, 2), ya = array_of(SL_ARRAY_I64, y, 8, 2, 3, 2, 0),
             la = array_of(SL_ARRAY_I64, lengths, 8, 1, 3, 0, 0);
    sli_array_data data;
    REQUIRE_OK(sli_array_data_new(&xa, &ya, &la, &sequence_needs, &data));
    CHECK(data.rows == 3 && data.steps == 2);
    CHECK(sli_array_input_bytes(&data) == 2 * 2 * sizeof(float));
    CHECK(sli_array_target_bytes(&data) == 2 * sizeof(int32_t));
    const uint32_t order[3] = {2, 0, 1};
    float inputs[8];
    int32_t targets[4], got[2];
    sli_array_fill(&data, order, 0, 2, inputs, targets, got);
    static const float expected[8] = {0, 0, 0.5f, 1.5f, 0, 0, 2.5f, 3.5f}; /* row 2 has no step */
    CHECK(memcmp(inputs, expected, sizeof inputs) == 0);
    CHECK(targets[0] == 1 && targets[1] == 0 && targets[2] == 0 && targets[3] == 1);
    CHECK(got[0] == 0 && got[1] == 2);
    sli_array_fill(&data, NULL, 1, 1, inputs, targets, got);
    CHECK(inputs[0] == 4.5f && inputs[2] == 0 && targets[0] == 2 && targets[1] == -1 && got[0] == 1);
}

TEST(arrays_may_hold_anything_beyond_lengths) {
    float x[3 * 2 * 2] = {0}, y[3 * 2 * 2] = {0};
    int32_t lengths[3] = {2, 1, 0};
    const sl_array xa = array_of(SL_ARRAY_F32, x, 4, 3, 3, 2, 2), ya = array_of(SL_ARRAY_F32, y, 4, 3, 3, 2, 2),
                   la = array_of(SL_ARRAY_I32, lengths, 4, 1, 3, 0, 0);
    sli_array_needs needs = sequence_needs, last_needs = sequence_needs;
    sli_array_data data;
    float inputs[12], targets[12];
    needs.labels = last_needs.labels = last_needs.output_steps = false;
    needs.classes = last_needs.classes = 2;
    for (int i = 6; i < 12; i++) x[i] = y[i] = i % 2 ? NAN : INFINITY;
    REQUIRE_OK(sli_array_data_new(&xa, &ya, &la, &needs, &data));
    sli_array_fill(&data, NULL, 0, 3, inputs, targets, NULL);
    for (int i = 0; i < 12; i++) CHECK(inputs[i] == 0 && targets[i] == 0);
    CHECK_FAILS(sli_array_data_new(&xa, &ya, NULL, &needs, &data), SL_ERR_NUMBERS,
                "x: element 6 is not a finite number");
    const sl_array lasts = array_of(SL_ARRAY_F32, y + 6, 4, 2, 3, 2, 0); /* which have no steps to lie beyond */
    CHECK_FAILS(sli_array_data_new(&xa, &lasts, &la, &last_needs, &data), SL_ERR_NUMBERS, "y: element 0 is not");
    x[5] = NAN;
    CHECK_FAILS(sli_array_data_new(&xa, &ya, &la, &needs, &data), SL_ERR_NUMBERS,
                "x: element 5 is not a finite number");
    x[5] = 0;
    y[2] = NAN;
    CHECK_FAILS(sli_array_data_new(&xa, &ya, &la, &needs, &data), SL_ERR_NUMBERS,
                "y: element 2 is not a finite number");
}

TEST(arrays_refuse_targets_of_which_nothing_counts) {
    float x[12] = {0};
    int32_t y[6] = {-1, -1, 0, -1, -1, -1}, lengths[3] = {2, 0, 2}, last[3] = {-1, -1, -1};
    sl_array xa = array_of(SL_ARRAY_F32, x, 4, 3, 3, 2, 2), ya = array_of(SL_ARRAY_I32, y, 4, 2, 3, 2, 0),
             la = array_of(SL_ARRAY_I32, lengths, 4, 1, 3, 0, 0), lasts = array_of(SL_ARRAY_I32, last, 4, 1, 3, 0, 0);
    sli_array_needs needs = sequence_needs, last_needs = sequence_needs;
    sli_array_data data;
    last_needs.output_steps = false;
    REQUIRE_OK(sli_array_data_new(&xa, &ya, NULL, &needs, &data));
    CHECK_FAILS(sli_array_data_new(&xa, &ya, &la, &needs, &data), SL_ERR_INPUT, "nothing of it counts");
    CHECK_FAILS(sli_array_data_new(&xa, &lasts, &la, &last_needs, &data), SL_ERR_INPUT, "nothing of it counts");
    last[1] = 2; /* an output that is no sequence counts in a row without steps, too */
    REQUIRE_OK(sli_array_data_new(&xa, &lasts, &la, &last_needs, &data));
    lengths[0] = lengths[2] = 0;
    needs.labels = false;
    sl_array numbers = array_of(SL_ARRAY_F32, x, 4, 3, 3, 2, 2);
    needs.classes = 2;
    CHECK_FAILS(sli_array_data_new(&xa, &numbers, &la, &needs, &data), SL_ERR_INPUT, "nothing of it counts");
}

TEST(arrays_refuse_what_does_not_fit) {
    float x[12] = {0};
    int32_t y[6] = {0}, lengths[3] = {0, 0, 1};
    sl_array xa = array_of(SL_ARRAY_F32, x, 4, 3, 3, 2, 2), ya = array_of(SL_ARRAY_I32, y, 4, 2, 3, 2, 0),
             la = array_of(SL_ARRAY_I32, lengths, 4, 1, 3, 0, 0);
    sli_array_data data;
    REQUIRE_OK(sli_array_data_new(&xa, &ya, &la, &sequence_needs, &data));
    sl_array wrong = array_of(SL_ARRAY_F32, x, 4, 2, 3, 4, 0);
    CHECK_FAILS(sli_array_data_new(&wrong, &ya, &la, &sequence_needs, &data), SL_ERR_SHAPE, "[3][4]");
    wrong = array_of(SL_ARRAY_F32, x, 4, 3, 3, 4, 1);
    CHECK_FAILS(sli_array_data_new(&wrong, &ya, &la, &sequence_needs, &data), SL_ERR_SHAPE, "features");
    wrong = array_of(SL_ARRAY_I32, y, 4, 2, 2, 2, 0);
    CHECK_FAILS(sli_array_data_new(&xa, &wrong, &la, &sequence_needs, &data), SL_ERR_SHAPE, "rows");
    wrong = array_of(SL_ARRAY_F32, x, 4, 2, 3, 2, 0);
    CHECK_FAILS(sli_array_data_new(&xa, &wrong, &la, &sequence_needs, &data), SL_ERR_INPUT, "floats");
    wrong = array_of(SL_ARRAY_I32, lengths, 4, 1, 2, 0, 0);
    CHECK_FAILS(sli_array_data_new(&xa, &ya, &wrong, &sequence_needs, &data), SL_ERR_SHAPE, "lengths");
    wrong = array_of(SL_ARRAY_F32, x, 4, 3, 0, 2, 2);
    CHECK_FAILS(sli_array_data_new(&wrong, &ya, &la, &sequence_needs, &data), SL_ERR_SHAPE, "empty");
    y[4] = 3;
    CHECK_FAILS(sli_array_data_new(&xa, &ya, &la, &sequence_needs, &data), SL_ERR_INPUT, "element 4 is 3");
    y[4] = 0;
    lengths[1] = 3;
    CHECK_FAILS(sli_array_data_new(&xa, &ya, &la, &sequence_needs, &data), SL_ERR_INPUT, "lengths");
    lengths[1] = 0;
    x[7] = NAN;
    CHECK_FAILS(sli_array_data_new(&xa, &ya, NULL, &sequence_needs, &data), SL_ERR_NUMBERS, "element 7");
    double wide[12] = {[5] = 1e300};
    wrong = array_of(SL_ARRAY_F64, wide, 8, 3, 3, 2, 2);
    CHECK_FAILS(sli_array_data_new(&wrong, &ya, NULL, &sequence_needs, &data), SL_ERR_NUMBERS, "f32 cannot hold");
}

TEST(arrays_refuse_binary_targets_beyond_0_and_1) {
    float x[12] = {0}, y[6] = {0, 1, 0.5f, -1, 1, 0};
    int32_t lengths[3] = {2, 1, 2}, whole[3] = {0, 2, 1};
    sl_array xa = array_of(SL_ARRAY_F32, x, 4, 3, 3, 2, 2), ya = array_of(SL_ARRAY_F32, y, 4, 2, 3, 2, 0),
             la = array_of(SL_ARRAY_I32, lengths, 4, 1, 3, 0, 0), last = array_of(SL_ARRAY_I32, whole, 4, 1, 3, 0, 0);
    sli_array_needs needs = {
        .features = 2, .input_steps = true, .probabilities = true, .classes = 1, .output_steps = true};
    sli_array_data data;
    CHECK_FAILS(sli_array_data_new(&xa, &ya, NULL, &needs, &data), SL_ERR_INPUT, "y: element 3 is -1, but targets");
    REQUIRE_OK(sli_array_data_new(&xa, &ya, &la, &needs, &data)); /* padding is not read */
    lengths[1] = 2;
    CHECK_FAILS(sli_array_data_new(&xa, &ya, &la, &needs, &data), SL_ERR_INPUT, "element 3 is -1");
    needs.output_steps = false; /* one target a row, whatever its length */
    lengths[1] = 0;
    CHECK_FAILS(sli_array_data_new(&xa, &last, &la, &needs, &data), SL_ERR_INPUT, "element 1 is 2");
    whole[1] = 1;
    REQUIRE_OK(sli_array_data_new(&xa, &last, &la, &needs, &data));
    needs.probabilities = false;
    whole[1] = 2;
    REQUIRE_OK(sli_array_data_new(&xa, &last, &la, &needs, &data));
}

TEST(arrays_of_tokens_and_squeezed_targets) {
    uint8_t x[4] = {0, 4, 2, 1};
    float y[2] = {0.25f, -1};
    sl_array xa = array_of(SL_ARRAY_U8, x, 1, 2, 2, 2, 0), ya = array_of(SL_ARRAY_F32, y, 4, 1, 2, 0, 0);
    sli_array_needs needs = {
        .tokens = true, .vocabulary = 5, .features = 1, .input_steps = true, .classes = 1, .doubles = true};
    sli_array_data data;
    REQUIRE_OK(sli_array_data_new(&xa, &ya, NULL, &needs, &data));
    int32_t inputs[4];
    double targets[2];
    sli_array_fill(&data, NULL, 0, 2, inputs, targets, NULL);
    CHECK(inputs[0] == 0 && inputs[1] == 2 && inputs[2] == 4 && inputs[3] == 1);
    CHECK(targets[0] == 0.25 && targets[1] == -1);
    x[3] = 5;
    CHECK_FAILS(sli_array_data_new(&xa, &ya, NULL, &needs, &data), SL_ERR_INPUT, "element 3 is 5");
}

TEST(shuffle_is_a_permutation_of_seed_and_epoch) {
    enum { N = 1000 };
    uint32_t a[N], b[N];
    unsigned char seen[N] = {0};
    sli_shuffle(7, 3, N, a);
    sli_shuffle(7, 3, N, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    int fixed = 0;
    for (int i = 0; i < N; i++) {
        CHECK(a[i] < N && !seen[a[i]]++);
        fixed += a[i] == (uint32_t)i;
    }
    CHECK(fixed < 10);
    sli_shuffle(7, 4, N, b);
    CHECK(memcmp(a, b, sizeof a) != 0);
    sli_shuffle(8, 3, N, b);
    CHECK(memcmp(a, b, sizeof a) != 0);
}
