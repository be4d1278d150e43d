/* Learning-rate schedules against hand-made numbers. */
#include "test.h"
#include "train/training.h"

static double rate(sl_schedule schedule, double base, int64_t step, int epoch, int plateaus) {
    sli_schedule_point point = {step, 100, epoch, plateaus};
    return sli_schedule_rate(&schedule, base, &point);
}

TEST(schedule_constant_step_exponential) {
    sl_schedule constant = {.kind = SL_SCHEDULE_CONSTANT}, step = {SL_SCHEDULE_STEP, .factor = 0.5, .every = 10},
                exponential = {SL_SCHEDULE_EXPONENTIAL, .factor = 0.25, .every = 10, .minimum = 0.01};
    CHECK(rate(constant, 0.3, 99, 9, 3) == 0.3);
    CHECK(rate(step, 1, 9, 0, 0) == 1);
    CHECK(rate(step, 1, 10, 0, 0) == 0.5);
    CHECK(rate(step, 1, 39, 0, 0) == 0.125);
    CHECK_NEAR(rate(exponential, 1, 5, 0, 0), 0.5, 1e-15);
    CHECK_NEAR(rate(exponential, 1, 20, 0, 0), 0.0625, 1e-15);
    CHECK(rate(exponential, 1, 90, 0, 0) == 0.01);
}

TEST(schedule_cosine_warms_up_and_ends_at_the_minimum) {
    sl_schedule s = {.kind = SL_SCHEDULE_COSINE, .warmup = 4, .total = 24, .minimum = 0.1};
    CHECK_NEAR(rate(s, 1, 0, 0, 0), 0.25, 1e-15);
    CHECK_NEAR(rate(s, 1, 3, 0, 0), 1, 1e-15);
    CHECK_NEAR(rate(s, 1, 4, 0, 0), 1, 1e-15);
    CHECK_NEAR(rate(s, 1, 14, 0, 0), 0.55, 1e-15);
    CHECK_NEAR(rate(s, 1, 24, 0, 0), 0.1, 1e-15);
    CHECK_NEAR(rate(s, 1, 99, 0, 0), 0.1, 1e-15);
    s.total = 0; /* the whole training: 100 steps */
    CHECK_NEAR(rate(s, 1, 52, 0, 0), 0.55, 1e-15);
}

TEST(schedule_epoch_decay_is_the_published_one) {
    /* ptb_word_lm.py: lr_decay ** max(i + 1 - max_epoch, 0), i from 0. char-rnn: from the end of epoch 10. */
    sl_schedule ptb = {.kind = SL_SCHEDULE_EPOCH_DECAY, .factor = 0.5, .hold = 4};
    static const double expected[7] = {1, 1, 1, 1, 0.5, 0.25, 0.125};
    for (int epoch = 0; epoch < 7; epoch++) CHECK(rate(ptb, 1, 0, epoch, 0) == expected[epoch]);
    sl_schedule char_rnn = {.kind = SL_SCHEDULE_EPOCH_DECAY, .factor = 0.97, .hold = 10};
    CHECK(rate(char_rnn, 2e-3, 0, 9, 0) == 2e-3);
    CHECK_NEAR(rate(char_rnn, 2e-3, 0, 10, 0), 2e-3 * 0.97, 1e-18);
}

TEST(schedule_plateau_divides) {
    sl_schedule s = {.kind = SL_SCHEDULE_PLATEAU, .factor = 4, .minimum = 0.5};
    CHECK(rate(s, 20, 0, 5, 0) == 20);
    CHECK(rate(s, 20, 0, 5, 2) == 1.25);
    CHECK(rate(s, 20, 0, 5, 9) == 0.5);
}
