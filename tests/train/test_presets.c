/* The published configurations: sizes that their authors state or that follow from their scripts. */
#include "test.h"

static double parameters_of(const char *name, int vocabulary, sl_training *training) {
    sl_model *model = NULL;
    sl_plan *plan = NULL;
    sl_memory memory;
    REQUIRE_OK(sl_preset(NULL, name, vocabulary, &model, training));
    sl_plan_options options = {.device = test_device, .batch = 1, .steps = 1};
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    sl_plan_memory(plan, &memory);
    sl_plan_free(plan);
    sl_model_free(model);
    return (double)memory.parameters / sizeof(float);
}

TEST(preset_char_rnn) {
    sl_training t;
    /* 4*128*(65+128) + 2*512, 4*128*(128+128) + 2*512, 65*128 + 65: char-rnn prints "number of parameters: 240321". */
    CHECK_NEAR(parameters_of("char-rnn", 65, &t), 240321, 64);
    CHECK(t.batch == 50 && t.steps == 50 && t.epochs == 50);
    CHECK(t.optimizer.kind == SL_RMSPROP && t.optimizer.rho == 0.95 && t.optimizer.epsilon == 1e-8);
    CHECK(t.learning_rate == 2e-3 && t.schedule.factor == 0.97 && t.schedule.hold == 10);
    CHECK(t.clip.kind == SL_CLIP_VALUE && t.clip.value == 5);
    CHECK(t.reduction == SL_REDUCE_SUM_TIME && t.split == SL_SPLIT_BLOCKS && t.valid_fraction == 0.05);
}

TEST(preset_ptb) {
    static const struct {
        const char *name;
        int units, steps, epochs, hold;
        double clip, decay;
    } published[] = {{"ptb-small", 200, 20, 13, 4, 5, 0.5},
                     {"ptb-medium", 650, 35, 39, 6, 5, 0.8},
                     {"ptb-large", 1500, 35, 55, 14, 10, 1 / 1.15}};
    for (int i = 0; i < 3; i++) {
        sl_training t;
        double h = published[i].units, v = 10000;
        double count = parameters_of(published[i].name, 10000, &t);
        CHECK_NEAR(count, v * h + 2 * (4 * h * 2 * h + 4 * h) + h * v + v, 64);
        CHECK(t.batch == 20 && t.steps == published[i].steps && t.epochs == published[i].epochs);
        CHECK(t.optimizer.kind == SL_SGD && t.learning_rate == 1 && t.optimizer.momentum == 0);
        CHECK(t.schedule.hold == published[i].hold && t.schedule.factor == published[i].decay);
        CHECK(t.clip.kind == SL_CLIP_GLOBAL_NORM && t.clip.value == published[i].clip);
        CHECK(t.reduction == SL_REDUCE_SUM_TIME && t.drop_partial && !t.keep_state);
    }
    sl_model *model = NULL;
    sl_training t;
    CHECK_FAILS(sl_preset(NULL, "ptb-huge", 10, &model, &t), SL_ERR_UNKNOWN, "ptb-small");
    CHECK_FAILS(sl_preset(NULL, "ptb-small", 0, &model, &t), SL_ERR_USAGE, "vocabulary");
}

/* Every parameter lies in U(-scale, scale), except forget biases of char-rnn, which are 1 in one of the two
 * biases, and the LSTM biases of ptb-small, which are 0. */
TEST(preset_initial_values) {
    static const struct {
        const char *name;
        double scale;
    } presets[] = {{"char-rnn", 0.08}, {"ptb-small", 0.1}};
    for (int k = 0; k < 2; k++) {
        sl_model *model = NULL;
        sl_plan *plan = NULL;
        sl_params *params = NULL;
        sl_training t;
        double largest = 0;
        int ones = 0, zero_biases = 0;
        REQUIRE_OK(sl_preset(NULL, presets[k].name, 30, &model, &t));
        sl_plan_options options = {.device = test_device, .batch = 1, .steps = 1};
        REQUIRE_OK(sl_plan_new(model, &options, &plan));
        REQUIRE_OK(sl_params_new(plan, &params));
        REQUIRE_OK(sl_params_init(params, 3));
        for (int i = 0; i < sl_params_count(params); i++) {
            int rows, columns;
            const char *name = sl_params_name(params, i, &rows, &columns);
            size_t count = (size_t)rows * (size_t)columns;
            double *values = malloc(count * sizeof *values), sum = 0;
            REQUIRE(values);
            REQUIRE_OK(sl_params_get(params, name, values, count));
            for (size_t j = 0; j < count; j++) {
                if (values[j] == 1)
                    ones++;
                else if (fabs(values[j]) > largest)
                    largest = fabs(values[j]);
                sum += values[j] * values[j];
            }
            /* TensorFlow's LSTM cells start their biases at 0, whatever the scope's initializer is. */
            bool zeros = k == 1 && (strcmp(name, "lstm1.bias") == 0 || strcmp(name, "lstm2.bias") == 0);
            zero_biases += zeros;
            CHECK(zeros ? sum == 0 : sum > 0);
            free(values);
        }
        CHECK(largest <= presets[k].scale && largest > 0.999 * presets[k].scale);
        CHECK(zero_biases == (k == 0 ? 0 : 2));
        CHECK(ones == (k == 0 ? 2 * 128 : 0));
        sl_params_free(params);
        sl_plan_free(plan);
        sl_model_free(model);
    }
}
