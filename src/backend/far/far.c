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

typedef enum work_kind { WORK_MOVE, WORK_ZERO, WORK_CALL, WORK_REPLAY, WORK_READ } work_kind;
typedef struct work {
    work_kind kind;
    int slot; /* WORK_READ: `to` is its memory */
    void *to;
    const void *from; /* device memory, the queue's staging, or WORK_REPLAY: a recording */
    size_t bytes;
    sli_kernel_fn function;
    sli_call call;
} work;

/* Moves, zeros and calls, in order. */
struct sli_recording {
    work *entries;
    int count, capacity;
};

typedef struct read_slot_memory {
    size_t bytes; /* asked for; 0: nobody did */
    bool done;
    unsigned char data[SLI_READ_BYTES];
} read_slot_memory;

struct sli_queue {
    sli_device *device;
    sli_threads *threads;
    int count;
    size_t staged;            /* bytes of staging in use */
    sli_recording *recording; /* now under way, or NULL */
    read_slot_memory slots[SLI_READ_SLOTS];
    work entries[QUEUE_ENTRIES];
    _Alignas(SLI_ALIGN) unsigned char staging[STAGING_BYTES];
};

/* ----------------------------------------------------------------------------------------------- capabilities -- */
static sl_status far_caps(const char *device_name, int threads, sli_caps *caps) {
    const bool known = strcmp(device_name, "far") == 0 || strcmp(device_name, SLI_FAR_WIDE) == 0 ||
                       strcmp(device_name, SLI_FAR_FRESH) == 0;
    SLI_FAIL_IF(!known, SL_ERR_UNKNOWN, "device \"%s\" is unknown: the test device is called far", device_name);
    SLI_TRY(sli_cpu_caps("cpu", threads, caps));
    snprintf(caps->name, sizeof caps->name, "%s", device_name);
    caps->graphs = true;
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

/* An entry of a recording is run again and again: it stays as it is. */
static void run_entry(sli_queue *queue, const work *entry) {
    sli_call call;
    switch (entry->kind) {
    case WORK_MOVE:
        memmove(entry->to, entry->from, entry->bytes);
        break;
    case WORK_ZERO:
        memset(entry->to, 0, entry->bytes);
        break;
    case WORK_CALL:
        call = entry->call;
        call.threads = queue->threads;
        call.cpu = &queue->device->engine;
        call.queue = queue;
        entry->function(&call);
        break;
    case WORK_REPLAY: {
        const sli_recording *recording = entry->from;
        for (int i = 0; i < recording->count; i++) run_entry(queue, &recording->entries[i]);
        break;
    }
    case WORK_READ:
        memcpy(entry->to, entry->from, entry->bytes);
        queue->slots[entry->slot].done = true;
        break;
    }
}

/* Runs the first `count` entries, then copies to the host or from it (to may be NULL). */
static void run_first(sli_queue *queue, int count, void *to, const void *from, size_t bytes) {
    if (count == 0 && bytes == 0) return;
    open_blocks(queue->device);
    for (int i = 0; i < count; i++) run_entry(queue, &queue->entries[i]);
    if (bytes > 0) memcpy(to, from, bytes);
    shut_blocks(queue->device);
    queue->count -= count;
    memmove(queue->entries, queue->entries + count, sizeof *queue->entries * (size_t)queue->count);
    if (queue->count == 0) queue->staged = 0;
}

static void drain(sli_queue *queue, void *to, const void *from, size_t bytes) {
    run_first(queue, queue->count, to, from, bytes);
}

static void release(const sli_queue *queue, sli_recording *recording) {
    const sl_allocator *allocator = &queue->device->allocator;
    if (recording == NULL) return;
    sli_free(allocator, recording->entries, sizeof *recording->entries * (size_t)recording->capacity);
    sli_free(allocator, recording, sizeof *recording);
}

static void queue_free(sli_queue *queue) {
    if (queue == NULL) return;
    release(queue, queue->recording);
    drain(queue, NULL, NULL, 0);
    sli_threads_free(queue->threads);
    sli_free(&queue->device->allocator, queue, sizeof *queue);
}

/* Room for one more entry of a recording; NULL without memory. */
static work *record_entry(const sli_queue *queue, sli_recording *recording) {
    const sl_allocator *allocator = &queue->device->allocator;
    if (recording->count == recording->capacity) {
        const int capacity = recording->capacity ? 2 * recording->capacity : 16;
        work *entries = sli_alloc(allocator, sizeof *entries * (size_t)capacity);
        if (entries == NULL) return NULL;
        if (recording->count) memcpy(entries, recording->entries, sizeof *entries * (size_t)recording->count);
        sli_free(allocator, recording->entries, sizeof *entries * (size_t)recording->capacity);
        recording->entries = entries;
        recording->capacity = capacity;
    }
    return &recording->entries[recording->count++];
}

static sl_status push(sli_queue *queue, const work *new) {
    work *entry;
    if (queue->recording) {
        entry = record_entry(queue, queue->recording);
        if (entry == NULL) return sli_fail_memory("a recording", sizeof *entry);
    } else {
        if (queue->count == QUEUE_ENTRIES) drain(queue, NULL, NULL, 0);
        entry = &queue->entries[queue->count++];
    }
    *entry = *new;
    return SL_OK;
}

static sl_status check_not_recording(const sli_queue *queue, const char *what) {
    SLI_FAIL_IF(queue->recording, SL_ERR_INTERNAL, "%s while work is being recorded", what);
    return SL_OK;
}

static sl_status upload(sli_queue *queue, void *to, const void *source, size_t bytes) {
    SLI_TRY(check_not_recording(queue, "an upload"));
    if (bytes == 0) return SL_OK;
    const size_t room = sli_round_up(bytes, SLI_ALIGN);
    if (room > STAGING_BYTES) { /* too large to keep: waits, as the interface allows */
        drain(queue, to, source, bytes);
        return SL_OK;
    }
    if (queue->staged + room > STAGING_BYTES || queue->count == QUEUE_ENTRIES) drain(queue, NULL, NULL, 0);
    void *kept = memcpy(queue->staging + queue->staged, source, bytes);
    queue->staged += room;
    return push(queue, &(work){.kind = WORK_MOVE, .to = to, .from = kept, .bytes = bytes});
}

static sl_status download(sli_queue *queue, void *to_host, const void *from, size_t bytes) {
    SLI_TRY(check_not_recording(queue, "a download"));
    drain(queue, to_host, from, bytes);
    return SL_OK;
}

static sl_status copy(sli_queue *queue, void *to, const void *from, size_t bytes) {
    return bytes > 0 ? push(queue, &(work){.kind = WORK_MOVE, .to = to, .from = from, .bytes = bytes}) : SL_OK;
}

static sl_status zero(sli_queue *queue, void *to, size_t bytes) {
    return bytes > 0 ? push(queue, &(work){.kind = WORK_ZERO, .to = to, .bytes = bytes}) : SL_OK;
}

static sl_status submit(sli_queue *queue, sli_kernel_fn function, const sli_call *call) {
    return push(queue, &(work){.kind = WORK_CALL, .function = function, .call = *call});
}

static sl_status wait_done(sli_queue *queue) {
    SLI_TRY(check_not_recording(queue, "a wait"));
    drain(queue, NULL, NULL, 0);
    return SL_OK;
}

/* -------------------------------------------------------------------------------------------------- recordings -- */
static void recording_free(sli_queue *queue, sli_recording *recording) {
    drain(queue, NULL, NULL, 0); /* it may be queued */
    release(queue, recording);
}

static sl_status record_begin(sli_queue *queue) {
    SLI_TRY(check_not_recording(queue, "a recording begins"));
    queue->recording = sli_alloc_zero(&queue->device->allocator, sizeof *queue->recording);
    return queue->recording ? SL_OK : sli_fail_memory("a recording", sizeof *queue->recording);
}

static sl_status record_end(sli_queue *queue, sli_recording **recording) {
    *recording = queue->recording;
    SLI_FAIL_IF(queue->recording == NULL, SL_ERR_INTERNAL, "a recording ends that did not begin");
    queue->recording = NULL;
    return SL_OK;
}

static sl_status replay(sli_queue *queue, sli_recording *recording) {
    SLI_TRY(check_not_recording(queue, "a replay"));
    return push(queue, &(work){.kind = WORK_REPLAY, .from = recording});
}

/* ---------------------------------------------------------------------------------------------- reading back late -- */
static sl_status read_later(sli_queue *queue, int slot, const void *from, size_t bytes) {
    SLI_TRY(check_not_recording(queue, "a read"));
    SLI_FAIL_IF(slot < 0 || slot >= SLI_READ_SLOTS || bytes > SLI_READ_BYTES, SL_ERR_INTERNAL,
                "no slot %d of %zu bytes to read into", slot, bytes);
    queue->slots[slot].bytes = bytes;
    queue->slots[slot].done = false;
    return push(queue,
                &(work){.kind = WORK_READ, .slot = slot, .to = queue->slots[slot].data, .from = from, .bytes = bytes});
}

/* Runs no more than it must: later work stays late. */
static sl_status read_slot(sli_queue *queue, int slot, void *to_host, size_t bytes) {
    SLI_TRY(check_not_recording(queue, "a read"));
    SLI_FAIL_IF(slot < 0 || slot >= SLI_READ_SLOTS || bytes == 0 || queue->slots[slot].bytes != bytes, SL_ERR_INTERNAL,
                "nobody asked for %zu bytes in slot %d", bytes, slot);
    int last = queue->count - 1;
    while (last >= 0 && (queue->entries[last].kind != WORK_READ || queue->entries[last].slot != slot)) last--;
    if (!queue->slots[slot].done) run_first(queue, last + 1, NULL, NULL, 0);
    memcpy(to_host, queue->slots[slot].data, bytes);
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
                                       .record_begin = record_begin,
                                       .record_end = record_end,
                                       .replay = replay,
                                       .recording_free = recording_free,
                                       .read_later = read_later,
                                       .read_slot = read_slot,
                                       .blas_buffers = sli_cpu_blas_buffers};
