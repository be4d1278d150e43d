/* Sampling: the distribution and its cuts, and generators that repeat themselves. */
#include "test.h"
#include "train/generate.h"
#include "train/train_helpers.h"

/* Draws by 1000 equally spaced uniforms: counts are exact to 1 or 2. */
static void draw(const float *logits, int count, sl_sampling sampling, int *counts) {
    sli_candidate room[8];
    memset(counts, 0, sizeof(int) * (size_t)count);
    for (int i = 0; i < 1000; i++) {
        int token = sli_sample(logits, count, &sampling, (i + 0.5) / 1000, room);
        REQUIRE(token >= 0 && token < count);
        counts[token]++;
    }
}

TEST(sample_temperature_top_k_top_p) {
    /* Probabilities 0.1 0.4 0.2 0.3. */
    const float logits[4] = {logf(0.1f) + 3, logf(0.4f) + 3, logf(0.2f) + 3, logf(0.3f) + 3};
    int n[4];
    draw(logits, 4, (sl_sampling){.temperature = 1}, n);
    CHECK(abs(n[0] - 100) <= 1 && abs(n[1] - 400) <= 1 && abs(n[2] - 200) <= 1 && abs(n[3] - 300) <= 1);
    draw(logits, 4, (sl_sampling){.temperature = 0}, n);
    CHECK(n[1] == 1000);
    draw(logits, 4, (sl_sampling){.temperature = 0.5}, n); /* squares: 1 16 4 9 of 30 */
    CHECK(abs(n[0] - 33) <= 1 && abs(n[1] - 533) <= 1 && abs(n[2] - 133) <= 1 && abs(n[3] - 300) <= 1);
    draw(logits, 4, (sl_sampling){.temperature = 1, .top_k = 2}, n);
    CHECK(abs(n[1] - 571) <= 1 && abs(n[3] - 429) <= 1);
    draw(logits, 4, (sl_sampling){.temperature = 1, .top_p = 0.75}, n); /* 0.4 + 0.3 < 0.75: three are kept */
    CHECK(n[0] == 0 && abs(n[1] - 444) <= 1 && abs(n[3] - 333) <= 1 && abs(n[2] - 222) <= 1);
    draw(logits, 4, (sl_sampling){.temperature = 1, .top_p = 0.39}, n);
    CHECK(n[1] == 1000);
    draw(logits, 4, (sl_sampling){.temperature = 1, .top_k = 3, .top_p = 0.5}, n); /* 4/9 < 0.5 <= 7/9 */
    CHECK(abs(n[1] - 571) <= 1 && abs(n[3] - 429) <= 1);
}

TEST(sample_extremes) {
    sli_candidate room[3];
    sl_sampling plain = {.temperature = 1}, greedy = {0};
    const float tie[3] = {1, 1, 0}, huge[3] = {-3e38f, 3e38f, 0}, nan[3] = {0, NAN, 0}, inf[3] = {0, INFINITY, 0},
                none[3] = {-INFINITY, -INFINITY, -INFINITY}, one[3] = {-INFINITY, 0, -INFINITY};
    CHECK(sli_sample(tie, 3, &greedy, 0.9, room) == 0);
    CHECK(sli_sample(huge, 3, &plain, 0.999, room) == 1);
    CHECK(sli_sample(nan, 3, &plain, 0.5, room) == -1);
    CHECK(sli_sample(inf, 3, &plain, 0.5, room) == -1);
    CHECK(sli_sample(none, 3, &greedy, 0.5, room) == -1);
    CHECK(sli_sample(one, 3, &plain, 0.001, room) == 1);
}

static sl_file *trained(void) {
    sl_model *model = helper_model(0);
    sl_dataset data = helper_data(HELPER_TOKENS);
    sl_training training = helper_training(30);
    const char *path = helper_path("generate.sluice");
    sl_trainer *trainer = helper_trainer(model, &training, &data, path);
    sl_file *file = NULL;
    REQUIRE_OK(sl_trainer_fit(trainer, NULL, NULL));
    sl_trainer_free(trainer);
    sl_model_free(model);
    REQUIRE_OK(sl_file_open(NULL, path, &file));
    return file;
}

static void generate(const sl_file *file, sl_dtype dtype, uint64_t seed, int32_t prime, int32_t *out, int count) {
    sl_generator *g = NULL;
    sl_plan_options options = {.device = test_device, .dtype = dtype};
    sl_sampling sampling = {.temperature = 0.9, .seed = seed};
    REQUIRE_OK(sl_generator_new(file, &options, &sampling, &g));
    if (prime >= 0) REQUIRE_OK(sl_generator_feed(g, prime));
    for (int i = 0; i < count; i++) REQUIRE_OK(sl_generator_next(g, &out[i]));
    sl_generator_free(g);
}

TEST(generator_repeats_itself_and_follows_the_text) {
    enum { N = 300 };
    int32_t a[N], b[N];
    sl_file *file = trained();
    generate(file, SL_F32, 1, 0, a, N);
    generate(file, SL_F32, 1, 0, b, N);
    CHECK(memcmp(a, b, sizeof a) == 0);
    generate(file, SL_F32, 2, 0, b, N);
    CHECK(memcmp(a, b, sizeof a) != 0);
    generate(file, SL_F32, 1, -1, b, N); /* no prime: starts by itself */
    if (!test_on_gpu()) generate(file, SL_F64, 1, 0, b, N);
    /* The text only ever moves on by 1, 2 or 5; the model has learnt it. */
    int wrong = 0;
    for (int i = 1; i < N; i++) {
        int step = (a[i] - a[i - 1] + HELPER_VOCABULARY) % HELPER_VOCABULARY;
        wrong += step != 1 && step != 2 && step != 5;
    }
    CHECK(wrong < N / 10);
    sl_file_close(file);
}

TEST(generator_refuses_wrong_sampling_and_tokens) {
    sl_file *file = trained();
    sl_generator *g = NULL;
    sl_plan_options options = {.device = test_device};
    sl_sampling sampling = {.temperature = -1};
    CHECK_FAILS(sl_generator_new(file, &options, &sampling, &g), SL_ERR_INPUT, "temperature");
    sampling = (sl_sampling){.temperature = 1, .top_k = -2};
    CHECK_FAILS(sl_generator_new(file, &options, &sampling, &g), SL_ERR_INPUT, "top-k");
    sampling = (sl_sampling){.temperature = 1, .top_p = 1.5};
    CHECK_FAILS(sl_generator_new(file, &options, &sampling, &g), SL_ERR_INPUT, "top-p");
    CHECK(!g);
    REQUIRE_OK(sl_generator_new(file, &options, NULL, &g));
    CHECK_FAILS(sl_generator_feed(g, HELPER_VOCABULARY), SL_ERR_INPUT, "token 0 is 7");
    CHECK_FAILS(sl_generator_feed(g, -1), SL_ERR_INPUT, "-1");
    int32_t token = 0;
    CHECK_FAILS(sl_generator_next(NULL, &token), SL_ERR_USAGE, "generator");
    sl_generator_free(g);
    sl_file_close(file);
}

/* Blocks that are out of the file's allocator. */
static long taken;
static void *take(void *context, size_t bytes, size_t align) {
    void *pointer = NULL;
    (void)context;
    if (posix_memalign(&pointer, align, bytes) != 0) return NULL;
    taken++;
    return pointer;
}
static void give(void *context, void *pointer, size_t bytes) {
    (void)context;
    (void)bytes;
    taken--;
    free(pointer);
}

/* A generator's memory is its options' allocator's: the file's may end with the file. */
TEST(generator_takes_nothing_from_the_files_allocator) {
    const sl_allocator files = {take, give, NULL};
    const sl_plan_options options = {.device = test_device};
    sl_file_close(trained());
    sl_file *file = NULL;
    sl_generator *g = NULL;
    int32_t token;
    taken = 0;
    REQUIRE_OK(sl_file_open(&files, helper_path("generate.sluice"), &file));
    REQUIRE_OK(sl_generator_new(file, &options, NULL, &g));
    sl_file_close(file);
    CHECK(taken == 0);
    REQUIRE_OK(sl_generator_next(g, &token));
    sl_generator_free(g);
    CHECK(taken == 0);
}
