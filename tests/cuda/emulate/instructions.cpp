/* Instructions of emulate.h: of a warp, a block, a cluster, of memory, and the types of numbers. */
#include "machine.h"

namespace emulate {
using namespace machine;

void warp_nothing(void **, uint32_t, place) {}

void warp_shuffle(void **arguments, uint32_t mask, place at) {
    uint32_t words[32][4];
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) memcpy(words[lane], static_cast<shuffle_arguments *>(arguments[lane])->words, 16);
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        shuffle_arguments *a = static_cast<shuffle_arguments *>(arguments[lane]);
        if (!(mask >> a->from & 1)) fail(at, "a shuffle reads lane %d, which mask %08x has not", a->from, mask);
        memcpy(a->words, words[a->from], 4 * (size_t)a->count);
    }
}
void warp_vote(void **arguments, uint32_t mask, place) {
    uint32_t votes = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) votes |= static_cast<vote_arguments *>(arguments[lane])->votes << lane;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) static_cast<vote_arguments *>(arguments[lane])->votes = votes;
}

void warp_wide(const char *name, warp_function compute, uint32_t mask, void *arguments, place at) {
    called(at);
    warp *w = current->team;
    const int self = current->lane;
    if (!(mask >> self & 1)) fail(at, "%s with mask %08x, in which the lane is not", name, mask);
    if ((mask & w->present) != mask) fail(at, "%s with mask %08x in a warp of fewer lanes", name, mask);
    const uint32_t others = w->arrived & mask;
    if (others) {
        const int other = __builtin_ctz(others);
        const fiber *o = w->lanes[other];
        if (w->compute[other] != compute || w->mask[other] != mask || o->at.line != at.line)
            fail(at, "lanes of a warp disagree: lane %d is in %s, mask %08x, at %s:%d, lane %d in %s, mask %08x", other,
                 o->what, w->mask[other], base_name(o->at.file), o->at.line, self, name, mask);
    }
    w->arguments[self] = arguments;
    w->compute[self] = compute;
    w->mask[self] = mask;
    w->arrived |= 1u << self;
    if ((w->arrived & mask) != mask) {
        wait_for(name, (long)mask, 0, at);
        return;
    }
    run->result.collectives++;
    compute(w->arguments, mask, at);
    w->arrived &= ~mask;
    for (int lane = 0; lane < 32; lane++)
        if (lane != self && (mask >> lane & 1)) wake(w->lanes[lane]);
}

void block_barrier(const char *name, int id, int threads, place at) {
    called(at);
    block *b = current->home;
    if (id < 0 || id > 15) fail(at, "%s(%d, %d): there are barriers 0 to 15", name, id, threads);
    if (threads <= 0 || (threads % 32 != 0 && (size_t)threads != b->fibers.size()) ||
        (size_t)threads > b->fibers.size())
        fail(at, "%s(%d, %d) in a block of %zu threads", name, id, threads, b->fibers.size());
    barrier *one = &b->barriers[id];
    if (!one->arrived.empty() && one->threads != threads)
        fail(at, "%s(%d, %d), where %s waits at it for %d threads", name, id, threads, name_of(one->arrived[0]).c_str(),
             one->threads);
    one->threads = threads;
    one->arrived.push_back(current);
    if (one->arrived.size() == (size_t)threads)
        wake_all(&one->arrived);
    else
        wait_for(name, id, threads, at);
}

/* Arrivals of this thread come before it does; what it sent need not. */
static void deliver_arrivals() {
    for (size_t i = 0; i < run->deliveries.size();) {
        const delivery d = run->deliveries[i];
        if (d.sender != current || !d.arrives) {
            i++;
            continue;
        }
        run->deliveries.erase(run->deliveries.begin() + (long)i);
        deliver(d);
    }
}

void cluster_barrier(place at) {
    called(at);
    deliver_arrivals();
    cluster *c = current->home->home;
    c->arrived.push_back(current);
    if (c->arrived.size() == c->blocks.size() * current->home->fibers.size())
        wake_all(&c->arrived);
    else
        wait_for("ptx_cluster_sync", 0, 0, at);
}

unsigned char *at_shared(uint32_t address, size_t bytes, size_t align, reach whose, place at) {
    const uint32_t index = address >> OFFSET_BITS;
    if (whose == OWN_BLOCK && index != current->home->index)
        fail(at, "an instruction that reaches its own block's shared memory was given an address of block %u", index);
    if (index < run->blocks.size() && run->blocks[index]->home != current->home->home)
        fail(at, "an address of block %u, which is of another cluster", index);
    return host_of(address, bytes, align, at);
}
void load_shared(uint32_t (&to)[4], uint32_t from, place at) {
    memcpy(to, at_shared(from, 16, 16, OWN_BLOCK, at), 16);
}
void load_global(void *to, const void *from, size_t bytes, place at) {
    current->at = at;
    if ((uintptr_t)from % bytes != 0) fail(at, "%zu bytes at %p, which is not aligned to it", bytes, from);
    memcpy(to, from, bytes);
}
uint32_t shared_address(const void *pointer, place at) {
    const block *b = current->home;
    const unsigned char *p = (const unsigned char *)pointer;
    if (p < b->shared || p > b->shared + b->bytes) fail(at, "ptx_shared of a pointer that is not into shared memory");
    return b->index << OFFSET_BITS | (FIRST_OFFSET + (uint32_t)(p - b->shared));
}
uint32_t map_shared(uint32_t address, uint32_t rank, place at) {
    const cluster *c = current->home->home;
    if (address >> OFFSET_BITS != current->home->index) fail(at, "ptx_map of an address that is not of its own block");
    if (rank >= c->blocks.size()) fail(at, "ptx_map to rank %u of a cluster of %zu", rank, c->blocks.size());
    return c->blocks[rank]->index << OFFSET_BITS | (address & OFFSET_MASK);
}

void copy_later(uint32_t to, const void *from, size_t bytes, place at) {
    called(at);
    unsigned char *host = at_shared(to, bytes, bytes, OWN_BLOCK, at);
    if ((uintptr_t)from % bytes != 0) fail(at, "ptx_copy%zu from %p, which is not aligned to it", bytes, from);
    if (chance(run->at_once))
        memcpy(host, from, bytes);
    else
        current->copies.push_back({to, from, bytes, at, current->groups});
}
void copies_group() {
    current->groups++;
}
void copies_wait(int but, place at) {
    called(at);
    std::vector<late_copy> left;
    for (const late_copy &c : current->copies)
        if (c.group < current->groups - but)
            memcpy(host_of(c.to, c.bytes, c.bytes, c.at), c.from, c.bytes);
        else
            left.push_back(c);
    current->copies.swap(left);
}

void arrive_at(uint32_t barrier, place at) {
    called(at);
    at_shared(barrier, 8, 8, WHOLE_CLUSTER, at);
    delivery d;
    d.sender = current;
    d.to = d.barrier = barrier;
    d.bytes = 0;
    d.from = nullptr;
    d.arrives = true;
    d.at = at;
    if (chance(run->at_once))
        deliver(d);
    else
        run->deliveries.push_back(d);
}

void arrivals_init(uint32_t address, uint32_t count, place at) {
    called(at);
    at_shared(address, 8, 8, OWN_BLOCK, at);
    arrivals &a = current->home->arrivals_at[address & OFFSET_MASK];
    if (!a.waiters.empty()) fail(at, "a barrier is initialised while threads wait at it");
    a = arrivals();
    a.count = a.pending = (long)count;
}
void arrivals_expect(uint32_t address, uint32_t bytes, place at) {
    called(at);
    at_shared(address, 8, 8, OWN_BLOCK, at);
    arrivals *a = arrivals_of(address, at);
    if (a->pending <= 0) fail(at, "an arrival too many at a barrier in its phase %lu", (unsigned long)a->phase);
    a->pending--;
    a->bytes += (long)bytes;
    if (a->bytes >= 1 << 20) fail(at, "a barrier counts at most 2^20 - 1 bytes");
    end_phase(a);
}
void arrivals_wait(uint32_t address, uint32_t parity, place at) {
    called(at);
    at_shared(address, 8, 8, OWN_BLOCK, at);
    arrivals *a = arrivals_of(address, at);
    if (parity > 1) fail(at, "ptx_arrivals_wait for parity %u", parity);
    /* Asked again after it was woken: a thread that comes too late sees the next phase, as on the GPU. */
    while ((a->phase & 1) == parity) {
        a->waiters.push_back(current);
        wait_for("ptx_arrivals_wait", (long)((address & OFFSET_MASK) - FIRST_OFFSET), (long)parity, at);
    }
}
bool arrivals_came(uint32_t address, uint32_t parity, place at) {
    called(at);
    at_shared(address, 8, 8, OWN_BLOCK, at);
    if (parity > 1) fail(at, "ptx_arrivals_came for parity %u", parity);
    return (arrivals_of(address, at)->phase & 1) != parity;
}
void send_later(uint32_t to, const void *data, const void *from, uint32_t bytes, uint32_t barrier, place at) {
    called(at);
    delivery d;
    at_shared(to, bytes, bytes < 16 ? bytes : 16, WHOLE_CLUSTER, at);
    at_shared(barrier, 8, 8, WHOLE_CLUSTER, at);
    if (to >> OFFSET_BITS != barrier >> OFFSET_BITS) fail(at, "a store to one block with a barrier of another");
    if (from && (bytes % 16 != 0 || bytes == 0 || (uintptr_t)from % 16 != 0))
        fail(at, "ptx_bring of %u bytes from %p: multiples of 16", bytes, from);
    d.sender = current;
    d.to = to;
    d.bytes = bytes;
    d.barrier = barrier;
    d.from = from;
    d.at = at;
    if (!from) memcpy(d.data, data, bytes);
    if (chance(run->at_once))
        deliver(d);
    else
        run->deliveries.push_back(d);
}

void count_release(uint32_t *counter, place at) {
    called(at);
    ++*counter;
    wake_pollers();
}
uint32_t count_acquire(const uint32_t *counter, place at) {
    fiber *self = current;
    if (self->polled != counter || self->seen != *counter) self->polls = 0;
    self->polled = counter;
    self->seen = *counter;
    self->at = at;
    if (++self->polls > 4) { /* in a loop: nothing will change until somebody counts */
        run->pollers.push_back(self);
        wait_for("ptx_count_acquire", (long)self->seen, 0, at);
        self->polls = 0;
    }
    self->seen = *counter;
    return self->seen;
}
/* Seen by others at once, but zeros, which nobody waits for: at the thread's next fence. */
void give(void *to, const void *words, size_t bytes, place at) {
    const uint32_t zeros[4] = {0, 0, 0, 0};
    called(at);
    if ((uintptr_t)to % bytes != 0) fail(at, "%zu bytes to %p, which is not aligned to it", bytes, to);
    if (memcmp(words, zeros, bytes) == 0) {
        current->cleared.push_back({to, bytes});
        return;
    }
    memcpy(to, words, bytes);
    wake_pollers();
}
std::set<const float *> *asked_ahead;

void fence_given(place at) {
    called(at);
    for (const auto &c : current->cleared) memset(c.first, 0, c.second);
    current->cleared.clear();
}
void take(uint32_t (&to)[4], const void *from, place at) {
    fiber *self = current;
    load_global(to, from, 16, at);
    for (int word = 0; word < 4; word++) {
        if (to[word] != 0) continue;
        self->polled = static_cast<const uint32_t *>(from) + word; /* nothing will change until somebody gives it */
        self->seen = 0;
        run->pollers.push_back(self);
        wait_for("ptx_take16", word, 0, at);
        load_global(to, from, 16, at);
        return;
    }
}
void pause(place at) {
    fiber *self = current;
    self->at = at;
    run->ready.insert(run->ordered ? run->ready.begin() : run->ready.end(), self);
    leave(self, false);
}

/* ------------------------------------------------------------------------------------------------- number types -- */
float from_bf16(uint32_t bits) {
    return __uint_as_float(bits << 16);
}
uint32_t to_bf16(float x) {
    const uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
float from_f16(uint32_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ffu;
    if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) {
        const float tiny = (float)fraction * 5.9604644775390625e-8f; /* 2^-24 */
        return sign ? -tiny : tiny;
    }
    return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}
uint32_t to_f16(float x) {
    const uint32_t bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return 0x7fff;
    if (rest >= 0x477ff000u) return sign | 0x7c00u; /* 65520 and more */
    if (rest < 0x38800000u) {                       /* below 2^-14: a multiple of 2^-24, rounded by an addition */
        const float shifted = __uint_as_float(rest) + 0.5f;
        return sign | (__float_as_uint(shifted) - __float_as_uint(0.5f));
    }
    return sign | ((rest + 0xfffu + (rest >> 13 & 1) - (112u << 23)) >> 13);
}
uint32_t to_tf32(uint32_t bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffffffu;
    if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
    return (bits + 0x1000u) & 0xffffe000u;
}

} // namespace emulate
