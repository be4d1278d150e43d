/* The `far` device: see far.h. A device keeps a list of its blocks; they are open (readable) while at least one queue is at
 * work, and shut otherwise. Runs on several threads share blocks, hence the count under a mutex. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "backend/cpu/cpu.h"
#include "backend/far/far.h"

enum {
    QUEUE_ENTRIES = 48,     /* work held back at most */
    STAGING_BYTES = 1 << 16 /* copies of what was uploaded, until the queue runs */
};

typedef struct far_block {
    void *address;
    size_t bytes; /* whole pages */
    struct far_block *next;
} far_block;

struct sli_device {
    sl_allocator allocator;
    sli_caps caps;
    sli_cpu engine;
    pthread_mutex_t mutex; /* of blocks and open */
    far_block *blocks;
    int open; /* queues at work */
};

typedef enum work_kind { WORK_MOVE, WORK_ZERO, WORK_CALL } work_kind;
typedef struct work {
    work_kind kind;
    void *to;
    const void *from; /* device memory, or the queue's staging */
    size_t bytes;
    sli_kernel_fn function;
    sli_call call;
} work;

struct sli_queue {
    sli_device *device;
    sli_threads *threads;
    int count;
    size_t staged; /* bytes of staging in use */
    work entries[QUEUE_ENTRIES];
    _Alignas(SLI_ALIGN) unsigned char staging[STAGING_BYTES];
};

/* ----------------------------------------------------------------------------------------------- capabilities -- */
static sl_status far_caps(const char *device_name, int threads, sli_caps *caps) {
    SLI_FAIL_IF(strcmp(device_name, "far") != 0, SL_ERR_UNKNOWN,
                "device \"%s\" is unknown: the test device is called far", device_name);
    SLI_TRY(sli_cpu_caps("cpu", threads, caps));
    snprintf(caps->name, sizeof caps->name, "far");
    return SL_OK;
}

static bool describe(int index, char *name, size_t name_capacity, char *text, size_t capacity, bool *usable) {
    snprintf(name, name_capacity, "far");
    snprintf(text, capacity, "the CPU behind unreadable memory and late work, for tests");
    *usable = true;
    return index == 0;
}

/* ------------------------------------------------------------------------------------------------------ memory -- */
static sl_status open_device(const sli_caps *caps, const sl_allocator *allocator, sli_device **device) {
    *device = NULL;
    sl_allocator resolved = sli_allocator_or_default(allocator);
    sli_device *new = sli_alloc_zero(&resolved, sizeof *new);
    if (new == NULL) return sli_fail_memory("a far device", sizeof *new);
    new->allocator = resolved;
    new->caps = *caps;
    sli_cpu_engine(caps->isa, caps->have_blas, &new->engine);
    pthread_mutex_init(&new->mutex, NULL);
    *device = new;
    return SL_OK;
}

static void close_device(sli_device *device) {
    if (device == NULL) return;
    sl_allocator allocator = device->allocator;
    pthread_mutex_destroy(&device->mutex);
    sli_free(&allocator, device, sizeof *device);
}

static sl_status alloc_block(sli_device *device, size_t bytes, void **block) {
    *block = NULL;
    if (bytes == 0) return SL_OK;
    far_block *new = sli_alloc_zero(&device->allocator, sizeof *new);
    if (new == NULL) return sli_fail_memory("a block on device far", sizeof *new);
    new->bytes = sli_round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
    pthread_mutex_lock(&device->mutex);
    new->address =
        mmap(NULL, new->bytes, device->open ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (new->address != MAP_FAILED) {
        new->next = device->blocks;
        device->blocks = new;
    }
    pthread_mutex_unlock(&device->mutex);
    if (new->address == MAP_FAILED) {
        sli_free(&device->allocator, new, sizeof *new);
        return sli_fail_memory("a block on device far", bytes);
    }
    *block = new->address;
    return SL_OK;
}

static void free_block(sli_device *device, void *block, size_t bytes) {
    (void)bytes;
    if (block == NULL) return;
    pthread_mutex_lock(&device->mutex);
    far_block **at = &device->blocks;
    while (*at && (*at)->address != block) at = &(*at)->next;
    far_block *found = *at;
    if (found) {
        *at = found->next;
        munmap(found->address, found->bytes);
    }
    pthread_mutex_unlock(&device->mutex);
    if (found) sli_free(&device->allocator, found, sizeof *found);
}

static void protect(const sli_device *device, int protection) {
    for (const far_block *b = device->blocks; b; b = b->next) mprotect(b->address, b->bytes, protection);
}

static void open_blocks(sli_device *device) {
    pthread_mutex_lock(&device->mutex);
    if (device->open++ == 0) protect(device, PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&device->mutex);
}

static void shut_blocks(sli_device *device) {
    pthread_mutex_lock(&device->mutex);
    if (--device->open == 0) protect(device, PROT_NONE);
    pthread_mutex_unlock(&device->mutex);
}

/* ------------------------------------------------------------------------------------------------------- queue -- */
static sl_status queue_new(sli_device *device, sli_queue **queue) {
    *queue = NULL;
    sli_queue *new = sli_alloc_zero(&device->allocator, sizeof *new);
    if (new == NULL) return sli_fail_memory("a queue", sizeof *new);
    new->device = device;
    sl_status status = sli_threads_new(&device->allocator, device->caps.threads, &new->threads);
    if (status != SL_OK) {
        sli_free(&device->allocator, new, sizeof *new);
        return status;
    }
    *queue = new;
    return SL_OK;
}

static void run_entry(const sli_queue *queue, work *entry) {
    switch (entry->kind) {
    case WORK_MOVE:
        memmove(entry->to, entry->from, entry->bytes);
        break;
    case WORK_ZERO:
        memset(entry->to, 0, entry->bytes);
        break;
    case WORK_CALL:
        entry->call.threads = queue->threads;
        entry->call.cpu = &queue->device->engine;
        entry->function(&entry->call);
        break;
    }
}

/* Runs what is queued, then copies to the host or from it (to may be NULL). */
static void drain(sli_queue *queue, void *to, const void *from, size_t bytes) {
    if (queue->count == 0 && bytes == 0) return;
    open_blocks(queue->device);
    for (int i = 0; i < queue->count; i++) run_entry(queue, &queue->entries[i]);
    if (bytes > 0) memcpy(to, from, bytes);
    shut_blocks(queue->device);
    queue->count = 0;
    queue->staged = 0;
}

static void queue_free(sli_queue *queue) {
    if (queue == NULL) return;
    drain(queue, NULL, NULL, 0);
    sli_threads_free(queue->threads);
    sli_free(&queue->device->allocator, queue, sizeof *queue);
}

static work *push(sli_queue *queue, work_kind kind, void *to, const void *from, size_t bytes) {
    if (queue->count == QUEUE_ENTRIES) drain(queue, NULL, NULL, 0);
    work *entry = &queue->entries[queue->count++];
    entry->kind = kind;
    entry->to = to;
    entry->from = from;
    entry->bytes = bytes;
    return entry;
}

static sl_status upload(sli_queue *queue, void *to, const void *source, size_t bytes) {
    if (bytes == 0) return SL_OK;
    const size_t room = sli_round_up(bytes, SLI_ALIGN);
    if (room > STAGING_BYTES) { /* too large to keep: waits, as the interface allows */
        drain(queue, to, source, bytes);
        return SL_OK;
    }
    if (queue->staged + room > STAGING_BYTES || queue->count == QUEUE_ENTRIES) drain(queue, NULL, NULL, 0);
    void *kept = memcpy(queue->staging + queue->staged, source, bytes);
    queue->staged += room;
    push(queue, WORK_MOVE, to, kept, bytes);
    return SL_OK;
}

static sl_status download(sli_queue *queue, void *to_host, const void *from, size_t bytes) {
    drain(queue, to_host, from, bytes);
    return SL_OK;
}

static sl_status copy(sli_queue *queue, void *to, const void *from, size_t bytes) {
    if (bytes > 0) push(queue, WORK_MOVE, to, from, bytes);
    return SL_OK;
}

static sl_status zero(sli_queue *queue, void *to, size_t bytes) {
    if (bytes > 0) push(queue, WORK_ZERO, to, NULL, bytes);
    return SL_OK;
}

static sl_status submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call) {
    work *entry = push(queue, WORK_CALL, NULL, NULL, 0);
    entry->function = function;
    entry->call = *call;
    return SL_OK;
}

static sl_status wait_done(sli_queue *queue) {
    drain(queue, NULL, NULL, 0);
    return SL_OK;
}

const sli_device_ops sli_far_device = {.name = "far",
                                       .caps = far_caps,
                                       .describe = describe,
                                       .open = open_device,
                                       .close = close_device,
                                       .alloc = alloc_block,
                                       .free = free_block,
                                       .queue_new = queue_new,
                                       .queue_free = queue_free,
                                       .upload = upload,
                                       .download = download,
                                       .copy = copy,
                                       .zero = zero,
                                       .submit = submit,
                                       .wait = wait_done,
                                       .blas_buffers = sli_cpu_blas_buffers};
