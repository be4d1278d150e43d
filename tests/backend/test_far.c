/* The far device: unreadable memory, late work, blocks shared by several threads. */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "backend/far/far.h"
#include "test.h"

typedef struct far {
    sli_device *device;
    sli_queue *queue;
} far;

static far far_open(int threads) {
    far f;
    sli_caps caps;
    REQUIRE_OK(sli_far_device.caps("far", threads, &caps));
    CHECK(strcmp(caps.name, "far") == 0 && caps.kind == SLI_DEVICE_CPU && !caps.invented);
    REQUIRE_OK(sli_far_device.open(&caps, NULL, &f.device));
    REQUIRE_OK(sli_far_device.queue_new(f.device, &f.queue));
    return f;
}

static void far_close(far f) {
    sli_far_device.queue_free(f.queue);
    sli_far_device.close(f.device);
}

static int ran; /* how often the kernel ran; tests run one after another */
static void add_one(const sli_call *call) {
    float *y = call->out[0];
    const float *x = call->in[0];
    for (int i = 0; i < call->problem.units; i++) y[i] = x[i] + 1;
    __atomic_add_fetch(&ran, 1, __ATOMIC_RELAXED);
}

/* True if a child that reads, or writes, the address dies of it. */
static bool touching_kills(volatile float *address, bool write) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL); /* sanitizers catch it otherwise */
        if (write)
            *address = 1;
        else
            (void)*address;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

TEST(far_memory_is_unreadable) {
    far f = far_open(1);
    void *block;
    REQUIRE_OK(sli_far_device.alloc(f.device, 100 * sizeof(float), &block));
    CHECK(touching_kills(block, false));
    CHECK(touching_kills(block, true));
    float x[100] = {3}, y[100];
    REQUIRE_OK(sli_far_device.upload(f.queue, block, x, sizeof x));
    CHECK(touching_kills(block, false));
    REQUIRE_OK(sli_far_device.download(f.queue, y, block, sizeof y));
    CHECK(y[0] == 3 && y[99] == 0);
    CHECK(touching_kills(block, false)); /* shut again after work */
    sli_far_device.free(f.device, block, 100 * sizeof(float));
    far_close(f);
}

TEST(far_work_is_late) {
    far f = far_open(2);
    void *block;
    REQUIRE_OK(sli_far_device.alloc(f.device, 64 * sizeof(float), &block));
    float *at = block, x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[24];
    ran = 0;
    sli_call call = {.problem.units = 8};
    call.in[0] = at;
    call.out[0] = at + 8;
    REQUIRE_OK(sli_far_device.upload(f.queue, at, x, sizeof x));
    x[0] = 1000; /* the upload took a copy */
    REQUIRE_OK(sli_far_device.submit(f.queue, add_one, &call));
    call.out[0] = NULL; /* so did submit */
    REQUIRE_OK(sli_far_device.copy(f.queue, at + 16, at + 8, 8 * sizeof(float)));
    REQUIRE_OK(sli_far_device.zero(f.queue, at, 8 * sizeof(float)));
    CHECK(ran == 0);
    REQUIRE_OK(sli_far_device.download(f.queue, y, at, sizeof y));
    CHECK(ran == 1);
    for (int i = 0; i < 8; i++) CHECK(y[i] == 0 && y[8 + i] == (float)i + 2 && y[16 + i] == (float)i + 2);
    call.out[0] = at + 8;
    REQUIRE_OK(sli_far_device.submit(f.queue, add_one, &call));
    CHECK(ran == 1);
    REQUIRE_OK(sli_far_device.wait(f.queue));
    CHECK(ran == 2);
    sli_far_device.free(f.device, block, 64 * sizeof(float));
    far_close(f);
}

TEST(far_queue_overflows_and_large_uploads) {
    enum { LARGE = 100000, MANY = 500 };
    far f = far_open(1);
    void *block;
    REQUIRE_OK(sli_far_device.alloc(f.device, LARGE * sizeof(float), &block));
    float *x = malloc(LARGE * sizeof *x), *y = malloc(LARGE * sizeof *y), *at = block;
    for (int i = 0; i < LARGE; i++) x[i] = (float)i;
    REQUIRE_OK(sli_far_device.upload(f.queue, at, x, LARGE * sizeof *x));
    ran = 0;
    sli_call call = {.problem.units = 8};
    call.in[0] = call.out[0] = at;
    for (int i = 0; i < MANY; i++) {
        REQUIRE_OK(sli_far_device.submit(f.queue, add_one, &call));
        REQUIRE_OK(sli_far_device.upload(f.queue, at + 8, x, 4000)); /* overflows the staging, too */
    }
    CHECK(ran > 0 && ran < MANY);
    REQUIRE_OK(sli_far_device.download(f.queue, y, at, LARGE * sizeof *y));
    CHECK(ran == MANY);
    CHECK(y[0] == MANY && y[7] == MANY + 7 && y[8] == 0 && y[LARGE - 1] == (float)(LARGE - 1));
    sli_far_device.free(f.device, block, LARGE * sizeof(float));
    free(x);
    free(y);
    far_close(f);
}

/* Several queues of one device on threads of their own read one shared block. */
typedef struct shared {
    sli_device *device;
    const float *source;
    bool right;
} shared;

static void *share(void *argument) {
    shared *s = argument;
    sli_queue *queue;
    void *block;
    s->right = false;
    if (sli_far_device.queue_new(s->device, &queue) != SL_OK) return NULL;
    if (sli_far_device.alloc(s->device, 16 * sizeof(float), &block) != SL_OK) return NULL;
    bool right = true;
    for (int i = 0; i < 200; i++) {
        float y[16] = {0};
        sli_call call = {.problem.units = 16};
        call.in[0] = s->source;
        call.out[0] = block;
        sli_far_device.submit(queue, add_one, &call);
        sli_far_device.download(queue, y, block, sizeof y);
        for (int k = 0; k < 16; k++) right = right && y[k] == (float)k + 1;
    }
    sli_far_device.queue_free(queue);
    sli_far_device.free(s->device, block, 16 * sizeof(float));
    s->right = right;
    return NULL;
}

TEST(far_blocks_are_shared_by_threads) {
    enum { THREADS = 6 };
    far f = far_open(1);
    void *source;
    float x[16];
    for (int k = 0; k < 16; k++) x[k] = (float)k;
    REQUIRE_OK(sli_far_device.alloc(f.device, sizeof x, &source));
    REQUIRE_OK(sli_far_device.upload(f.queue, source, x, sizeof x));
    REQUIRE_OK(sli_far_device.wait(f.queue));
    pthread_t thread[THREADS];
    shared s[THREADS];
    for (int i = 0; i < THREADS; i++) {
        s[i] = (shared){f.device, source, false};
        REQUIRE(pthread_create(&thread[i], NULL, share, &s[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < THREADS; i++) CHECK(s[i].right);
    CHECK(touching_kills(source, false));
    sli_far_device.free(f.device, source, sizeof x);
    far_close(f);
}

TEST(far_recordings_are_replayed_late) {
    enum { MANY = 100 };
    far f = far_open(1);
    void *block;
    REQUIRE_OK(sli_far_device.alloc(f.device, 16 * sizeof(float), &block));
    float *at = block, x[8] = {0}, y[16];
    sli_call call = {.problem.units = 8};
    sli_recording *recording = NULL;
    call.in[0] = call.out[0] = at;
    ran = 0;
    REQUIRE_OK(sli_far_device.record_begin(f.queue));
    for (int i = 0; i < MANY; i++)
        REQUIRE_OK(sli_far_device.submit(f.queue, add_one, &call)); /* more than a queue holds */
    REQUIRE_OK(sli_far_device.copy(f.queue, at + 8, at, 8 * sizeof(float)));
    CHECK_FAILS(sli_far_device.upload(f.queue, at, x, sizeof x), SL_ERR_INTERNAL, "recorded");
    CHECK_FAILS(sli_far_device.download(f.queue, x, at, sizeof x), SL_ERR_INTERNAL, "recorded");
    CHECK_FAILS(sli_far_device.wait(f.queue), SL_ERR_INTERNAL, "recorded");
    CHECK_FAILS(sli_far_device.record_begin(f.queue), SL_ERR_INTERNAL, "recorded");
    CHECK_FAILS(sli_far_device.read_later(f.queue, 0, at, sizeof x), SL_ERR_INTERNAL, "recorded");
    REQUIRE_OK(sli_far_device.record_end(f.queue, &recording));
    REQUIRE_OK(sli_far_device.wait(f.queue));
    CHECK(ran == 0); /* recorded is not done */
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 8; i++) x[i] = (float)(10 * k + i);
        REQUIRE_OK(sli_far_device.upload(f.queue, at, x, sizeof x));
        REQUIRE_OK(sli_far_device.replay(f.queue, recording));
        CHECK(ran == k * MANY);
        REQUIRE_OK(sli_far_device.download(f.queue, y, at, sizeof y));
        CHECK(ran == (k + 1) * MANY);
        for (int i = 0; i < 8; i++) CHECK(y[i] == x[i] + MANY && y[8 + i] == y[i]);
    }
    REQUIRE_OK(sli_far_device.replay(f.queue, recording));
    sli_far_device.recording_free(f.queue, recording); /* what is queued is done first */
    CHECK(ran == 4 * MANY);
    REQUIRE_OK(sli_far_device.record_begin(f.queue)); /* never ended: the queue takes it along */
    REQUIRE_OK(sli_far_device.submit(f.queue, add_one, &call));
    sli_far_device.free(f.device, block, 16 * sizeof(float));
    far_close(f);
    CHECK(ran == 4 * MANY);
}

TEST(far_reads_wait_for_no_more_than_they_must) {
    far f = far_open(1);
    void *block;
    REQUIRE_OK(sli_far_device.alloc(f.device, 8 * sizeof(float), &block));
    float *at = block, x[8] = {0}, y[8];
    sli_call call = {.problem.units = 8};
    call.in[0] = call.out[0] = at;
    ran = 0;
    REQUIRE_OK(sli_far_device.upload(f.queue, at, x, sizeof x));
    for (int slot = 0; slot < 3; slot++) {
        REQUIRE_OK(sli_far_device.submit(f.queue, add_one, &call));
        REQUIRE_OK(sli_far_device.read_later(f.queue, slot, at, sizeof x));
    }
    CHECK(ran == 0);
    REQUIRE_OK(sli_far_device.read_slot(f.queue, 1, y, sizeof y));
    CHECK(ran == 2 && y[0] == 2);
    REQUIRE_OK(sli_far_device.read_slot(f.queue, 0, y, sizeof y));
    CHECK(ran == 2 && y[0] == 1);
    REQUIRE_OK(sli_far_device.read_slot(f.queue, 2, y, sizeof y));
    CHECK(ran == 3 && y[7] == 3);
    CHECK_FAILS(sli_far_device.read_slot(f.queue, 3, y, sizeof y), SL_ERR_INTERNAL, "slot 3");
    CHECK_FAILS(sli_far_device.read_slot(f.queue, 2, y, 4), SL_ERR_INTERNAL, "4 bytes");
    CHECK_FAILS(sli_far_device.read_later(f.queue, SLI_READ_SLOTS, at, 4), SL_ERR_INTERNAL, "slot 4");
    sli_far_device.free(f.device, block, 8 * sizeof(float));
    far_close(f);
}

TEST(far_has_one_name) {
    sli_caps caps;
    char name[16], text[100];
    bool usable = false;
    CHECK_FAILS(sli_far_device.caps("far:1", 1, &caps), SL_ERR_UNKNOWN, "far:1");
    CHECK(sli_far_device.describe(0, name, sizeof name, text, sizeof text, &usable));
    CHECK(usable && strcmp(name, "far") == 0 && text[0]);
    CHECK(!sli_far_device.describe(1, name, sizeof name, text, sizeof text, &usable));
}
