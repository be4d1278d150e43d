/* Memory and queue of a real GPU; skipped with the reason where there is none. */
#include <time.h>
#include "backend/cuda/cuda.h"
#include "test.h"

typedef struct bench {
    const sli_cuda_plugin *plugin;
    const sli_device_ops *ops;
    sli_caps caps;
    sli_device *device;
    sli_queue *queue;
} bench;

static bench open_bench(void) {
    bench b = {.ops = &sli_cuda_device};
    sli_why why = {""};
    b.plugin = sli_cuda_get(&why);
    if (!b.plugin) test_skip("%s", why.text);
    if (b.ops->caps("cuda:0", 0, &b.caps) != SL_OK) test_skip("%s", sl_error_detail());
    REQUIRE_OK(b.ops->open(&b.caps, NULL, &b.device));
    REQUIRE_OK(b.ops->queue_new(b.device, &b.queue));
    return b;
}

static void close_bench(bench *b) {
    b->ops->queue_free(b->queue);
    b->ops->close(b->device);
}

static unsigned char *noise(size_t bytes, uint64_t seed) {
    unsigned char *data = malloc(bytes);
    REQUIRE(data != NULL);
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        data[i] = (unsigned char)(seed >> 56);
    }
    return data;
}

/* More than the pinned ring, in one piece and in many. */
TEST(cuda_queue_uploads_of_all_sizes) {
    bench b = open_bench();
    const size_t bytes = ((size_t)9 << 20) + 13;
    unsigned char *sent = noise(bytes, test_seed), *got = malloc(bytes);
    REQUIRE(got != NULL);
    void *block = NULL;
    REQUIRE_OK(b.ops->alloc(b.device, bytes, &block));
    REQUIRE_OK(b.ops->download(b.queue, got, block, bytes));
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != 0) {
            test_fail(__FILE__, __LINE__, "byte %zu of a new block is not 0", i);
            break;
        }
    REQUIRE_OK(b.ops->upload(b.queue, block, sent, bytes));
    REQUIRE_OK(b.ops->download(b.queue, got, block, bytes));
    CHECK(memcmp(sent, got, bytes) == 0);
    REQUIRE_OK(b.ops->zero(b.queue, block, bytes));
    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = 1 + at * 7 % 4099 < bytes - at ? 1 + at * 7 % 4099 : bytes - at;
        REQUIRE_OK(b.ops->upload(b.queue, (char *)block + at, sent + at, piece));
    }
    REQUIRE_OK(b.ops->download(b.queue, got, block, bytes));
    CHECK(memcmp(sent, got, bytes) == 0);
    b.ops->free(b.device, block, bytes);
    free(sent);
    free(got);
    close_bench(&b);
}

TEST(cuda_queue_reads_slots_in_any_order) {
    bench b = open_bench();
    void *block = NULL;
    REQUIRE_OK(b.ops->alloc(b.device, SLI_READ_BYTES, &block));
    for (int slot = 0; slot < SLI_READ_SLOTS; slot++) {
        const double value = 1.5 + slot;
        REQUIRE_OK(b.ops->upload(b.queue, block, &value, sizeof value));
        REQUIRE_OK(b.ops->read_later(b.queue, slot, block, sizeof value));
    }
    for (int slot = SLI_READ_SLOTS - 1; slot >= 0; slot--) {
        double value = 0;
        REQUIRE_OK(b.ops->read_slot(b.queue, slot, &value, sizeof value));
        CHECK_NEAR(value, 1.5 + slot, 0);
    }
    CHECK_FAILS(b.ops->read_later(b.queue, SLI_READ_SLOTS, block, 8), SL_ERR_INTERNAL, "read slot");
    b.ops->free(b.device, block, SLI_READ_BYTES);
    close_bench(&b);
}

TEST(cuda_recordings_replay_what_memory_holds_then) {
    bench b = open_bench();
    int32_t *block = NULL;
    REQUIRE_OK(b.ops->alloc(b.device, 4096, (void **)&block));
    REQUIRE_OK(b.ops->record_begin(b.queue));
    REQUIRE_OK(b.ops->copy(b.queue, block + 512, block, 1024));
    REQUIRE_OK(b.ops->zero(b.queue, block, 4));
    int32_t value = 7;
    CHECK_FAILS(b.ops->upload(b.queue, block, &value, sizeof value), SL_ERR_INTERNAL, "recorded");
    sli_recording *recording = NULL;
    REQUIRE_OK(b.ops->record_end(b.queue, &recording));
    for (int32_t round = 1; round <= 3; round++) {
        const int32_t numbers[2] = {10 * round, 10 * round + 1};
        REQUIRE_OK(b.ops->upload(b.queue, block, numbers, sizeof numbers));
        REQUIRE_OK(b.ops->replay(b.queue, recording));
        int32_t got[2], first;
        REQUIRE_OK(b.ops->download(b.queue, got, block + 512, sizeof got));
        REQUIRE_OK(b.ops->download(b.queue, &first, block, sizeof first));
        CHECK(got[0] == numbers[0] && got[1] == numbers[1] && first == 0);
    }
    b.ops->recording_free(b.queue, recording);
    b.ops->free(b.device, block, 4096);
    close_bench(&b);
}

/* More copies than are recorded together, each of what the one before wrote; zeros between. */
TEST(cuda_recorded_copies_keep_their_order) {
    enum { PIECES = 13, WORDS = 40 };
    bench b = open_bench();
    int32_t *block = NULL, got[(PIECES + 1) * WORDS], sent[WORDS];
    REQUIRE_OK(b.ops->alloc(b.device, sizeof got, (void **)&block));
    REQUIRE_OK(b.ops->record_begin(b.queue));
    for (int i = 0; i < PIECES; i++) {
        REQUIRE_OK(b.ops->copy(b.queue, block + (i + 1) * WORDS, block + i * WORDS, sizeof sent));
        REQUIRE_OK(b.ops->zero(b.queue, block + (i + 1) * WORDS, (size_t)(i + 1) * sizeof *block));
    }
    REQUIRE_OK(b.ops->zero(b.queue, block, 4));
    sli_recording *recording = NULL;
    REQUIRE_OK(b.ops->record_end(b.queue, &recording));
    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < WORDS; i++) sent[i] = 1000 * round + i;
        REQUIRE_OK(b.ops->upload(b.queue, block, sent, sizeof sent));
        REQUIRE_OK(b.ops->replay(b.queue, recording));
        REQUIRE_OK(b.ops->download(b.queue, got, block, sizeof got));
        CHECK(got[0] == 0 && got[1] == sent[1]);
        for (int i = 1; i <= PIECES; i++)
            for (int k = 0; k < WORDS; k++) CHECK(got[i * WORDS + k] == (k < i ? 0 : sent[k]));
    }
    b.ops->recording_free(b.queue, recording);
    b.ops->free(b.device, block, sizeof got);
    close_bench(&b);
}

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Replays four calls, the first of them tagged, 40 times: their seconds are those that went by, a fourth of them the tag's. */
static bool profile_is_right(const bench *b, sli_recording *recording) {
    double seconds[SLI_PHASE_COUNT], tagged[SLI_PROFILE_TAGS], sum = 0;
    REQUIRE_OK(b->ops->profile_begin(b->queue));
    const double start = seconds_now();
    for (int i = 0; i < 40; i++) REQUIRE_OK(b->ops->replay(b->queue, recording));
    REQUIRE_OK(b->ops->wait(b->queue));
    const double wall = seconds_now() - start;
    REQUIRE_OK(b->ops->profile_end(b->queue, seconds));
    b->ops->profile_tagged(b->queue, tagged);
    for (int i = 0; i < SLI_PHASE_COUNT; i++) sum += seconds[i];
    return seconds[SLI_PHASE_OTHER] > 0.5 * wall && sum <= 1.1 * wall && tagged[7] > 0.15 * sum &&
           tagged[7] < 0.4 * sum && tagged[6] == 0;
}

/* A process that has the GPU between two marks adds to what lies there: of several measurements one undisturbed is enough. */
TEST(cuda_profile_accounts_for_the_time) {
    bench b = open_bench();
    const size_t bytes = (size_t)256 << 20;
    void *block = NULL;
    REQUIRE_OK(b.ops->alloc(b.device, bytes, &block));
    REQUIRE_OK(b.ops->profile_begin(b.queue)); /* marks are put into what is recorded from now on */
    REQUIRE_OK(b.ops->record_begin(b.queue));
    for (int i = 0; i < 4; i++) {
        b.ops->profile_tag(b.queue, i == 0 ? 7 : 0);
        REQUIRE_OK(b.ops->zero(b.queue, block, bytes));
    }
    sli_recording *recording = NULL;
    REQUIRE_OK(b.ops->record_end(b.queue, &recording));
    bool right = false;
    for (int i = 0; i < 20 && !right; i++) right = profile_is_right(&b, recording);
    CHECK(right);
    b.ops->recording_free(b.queue, recording);
    b.ops->free(b.device, block, bytes);
    close_bench(&b);
}

TEST(cuda_out_of_memory_is_over_when_it_is_over) {
    bench b = open_bench();
    void *block = NULL;
    CHECK_FAILS(b.ops->alloc(b.device, (size_t)1 << 50, &block), SL_ERR_OUT_OF_MEMORY, "1125899906842624 bytes");
    CHECK(block == NULL);
    REQUIRE_OK(b.ops->alloc(b.device, 1000, &block));
    REQUIRE_OK(b.ops->zero(b.queue, block, 1000));
    REQUIRE_OK(b.ops->wait(b.queue));
    b.ops->free(b.device, block, 1000);
    close_bench(&b);
}

/* Each of the first calls of an upload fails once, in the upload or where it is sent: a sentence, the queue stays failed, a new queue
 * works. Few bytes are a kernel's arguments, more go through pinned memory. */
TEST(cuda_injected_failures_stay_in_their_queue) {
    static char data[16384] = "checkpoint", got[16384];
    const size_t sizes[] = {64, sizeof data};
    bench b = open_bench();
    void *block = NULL;
    REQUIRE_OK(b.ops->alloc(b.device, sizeof data, &block));
    for (int i = 0; i < 2; i++) {
        for (long call = 1; call <= 3; call++) {
            sli_queue *queue = NULL;
            REQUIRE_OK(b.ops->queue_new(b.device, &queue));
            b.plugin->inject(call, 700, false); /* cudaErrorIllegalAddress */
            sl_status status = b.ops->upload(queue, block, data, sizes[i]);
            if (status == SL_OK) status = b.ops->wait(queue);
            b.plugin->inject(0, 0, false);
            CHECK(status == SL_ERR_DEVICE);
            CHECK(strstr(sl_error_detail(), "cudaErrorIllegalAddress") != NULL);
            CHECK(strstr(sl_error_detail(), "last checkpoint") != NULL);
            CHECK_FAILS(b.ops->wait(queue), SL_ERR_DEVICE, "cudaErrorIllegalAddress");
            b.ops->queue_free(queue);
        }
        REQUIRE_OK(b.ops->upload(b.queue, block, data, sizes[i]));
        REQUIRE_OK(b.ops->download(b.queue, got, block, sizes[i]));
        CHECK(memcmp(data, got, sizes[i]) == 0);
    }
    b.ops->free(b.device, block, sizeof data);
    close_bench(&b);
}

/* A recording that breaks names the call that broke it, and the queue goes on. */
TEST(cuda_broken_recordings_leave_the_queue_usable) {
    bench b = open_bench();
    void *block = NULL;
    REQUIRE_OK(b.ops->alloc(b.device, 4096, &block));
    REQUIRE_OK(b.ops->record_begin(b.queue));
    REQUIRE_OK(b.ops->zero(b.queue, block, 4096)); /* waits for what is recorded next */
    b.plugin->inject(1, 900, false);               /* cudaErrorStreamCaptureUnsupported, of its launch */
    sli_recording *recording = NULL;
    CHECK_FAILS(b.ops->record_end(b.queue, &recording), SL_ERR_DEVICE, "launch of copy");
    b.plugin->inject(0, 0, false);
    CHECK(recording == NULL);
    REQUIRE_OK(b.ops->zero(b.queue, block, 4096));
    REQUIRE_OK(b.ops->wait(b.queue));
    b.ops->free(b.device, block, 4096);
    close_bench(&b);
}
