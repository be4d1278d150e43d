/* Fibers, their scheduler and shared memory of emulate.h. */
#include "emulate.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <map>
#include <memory>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulate {
namespace {

#if defined(__SANITIZE_ADDRESS__)
enum : size_t { STACK = 256 << 10 };
#else
enum : size_t { STACK = 64 << 10 };
#endif
/* Shared addresses: block of the launch, from bit 20 on, and offset. Offsets begin behind what the hardware keeps. */
enum : uint32_t { OFFSET_BITS = 20, OFFSET_MASK = (1u << OFFSET_BITS) - 1, FIRST_OFFSET = 1024, PAGE = 4096 };
const uint64_t CANARY = 0x5afe57ac5afe57acu;

struct block;
struct warp;

struct late_copy {
    uint32_t to;
    const void *from;
    place at;
    int group;
};

struct fiber {
    registers regs; /* first: `now` points here */
    void *stack_pointer = nullptr;
#if !defined(__x86_64__)
    ucontext_t context;
#endif
    unsigned char *stack = nullptr;
    void *fake_stack = nullptr; /* ASan's */
    block *home = nullptr;
    warp *team = nullptr;
    int lane = 0, index = 0;
    bool done = false, waiting = false;
    const char *what = "";
    long detail[2] = {0, 0};
    place at = {"", 0};
    std::vector<late_copy> copies;
    int groups = 0;                   /* of copies that are complete as such */
    const uint32_t *polled = nullptr; /* counter that it read last, what it saw, how often in a row */
    uint32_t seen = 0;
    int polls = 0;
    std::vector<std::pair<void *, size_t>> cleared; /* given as zeros since its last fence */
};

struct warp {
    fiber *lanes[32];
    uint32_t present = 0, arrived = 0, mask[32];
    void *arguments[32];
    warp_function compute[32];
    int id = 0;
};

struct barrier {
    int threads = 0;
    std::vector<fiber *> arrived;
};

struct arrivals {
    uint64_t phase = 0;
    long count = 1, pending = 1, bytes = 0;
    std::vector<fiber *> waiters;
};

struct cluster {
    std::vector<fiber *> arrived;
    std::vector<block *> blocks;
    size_t alive = 0;
    bool begun = false;
};

struct block {
    uint32_t index = 0, rank = 0;
    cluster *home = nullptr;
    unsigned char *map = nullptr, *shared = nullptr;
    size_t map_bytes = 0, bytes = 0;
    size_t alive = 0;
    bool begun = false;
    std::vector<std::unique_ptr<fiber>> fibers;
    std::vector<std::unique_ptr<warp>> warps;
    barrier barriers[16];
    std::map<uint32_t, arrivals> arrivals_at; /* by offset */
};

struct delivery {
    fiber *sender;
    uint32_t to, bytes, barrier;
    const void *from; /* global memory, or nullptr: `data` */
    unsigned char data[16];
    bool arrives = false; /* an arrival, no bytes */
    place at;
};

/* Who runs only when nobody else can: a block, a warp, the warps of one number in all blocks, a half of all warps, the lanes of
 * one number, a thread. */
enum { LAG_NONE, LAG_BLOCK, LAG_WARP, LAG_WARPS, LAG_HALF, LAG_LANES, LAG_THREAD, LAGS };

struct state {
    launch_config config;
    const std::function<void()> *kernel = nullptr;
    launch_result result;
    std::vector<std::unique_ptr<block>> blocks;
    std::vector<std::unique_ptr<cluster>> clusters;
    std::vector<fiber *> ready, lagging, pollers;
    std::vector<delivery> deliveries;
    size_t next_cluster = 0, alive = 0;
    uint64_t random = 0;
    bool failed = false;
    /* Manners of this launch, drawn from the seed. */
    bool ordered = false;
    uint32_t at_once = 0,
             on_the_way = 0; /* of 256: sends that arrive at once, chance of an arrival between two fibers */
    int lag = LAG_NONE;
    unsigned lag_block = 0, lag_warp = 0, lag_lane = 0, lag_factor = 1;
    unsigned redraw = 0;
};

state *run = nullptr;
fiber *current = nullptr;
registers host_registers;
std::string death_text;
void *scheduler_pointer;
#if !defined(__x86_64__)
ucontext_t scheduler_context;
#endif

uint32_t draw() { /* splitmix64 */
    uint64_t z = (run->random += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 16);
}
uint32_t draw_below(size_t n) {
    return (uint32_t)((uint64_t)draw() * n >> 32);
}
bool chance(uint32_t of_256) {
    return (draw() & 255u) < of_256;
}

/* ------------------------------------------------------------------------------------------------------- stacks -- */
/* Kept from launch to launch. */
std::vector<unsigned char *> free_stacks;

unsigned char *take_stack() {
    if (free_stacks.empty()) {
        enum { AT_ONCE = 64 };
        unsigned char *all = (unsigned char *)mmap(nullptr, AT_ONCE * STACK, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) {
            fprintf(stderr, "emulate: no memory for stacks\n");
            abort();
        }
        for (int i = AT_ONCE; i-- > 0;) free_stacks.push_back(all + i * STACK);
    }
    unsigned char *stack = free_stacks.back();
    free_stacks.pop_back();
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack, STACK); /* frames of a thread that never returned */
#endif
    memcpy(stack, &CANARY, sizeof CANARY);
    return stack;
}

/* ------------------------------------------------------------------------------------------------------- switch -- */
void leave(fiber *from, bool for_good);

void fiber_main();

#if defined(__x86_64__)
/* Saves the registers that a function keeps, changes stacks, restores. */
extern "C" void emulate_switch(void **save, void *load);
asm(R"(
.text
.globl emulate_switch
.type emulate_switch, @function
emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulate_switch, .-emulate_switch
)");
#endif

void prepare(fiber *f) {
    f->stack = take_stack();
    /* Tops of stacks at different places of a page, or all of them compete for a few lines of the cache. */
    unsigned char *top = f->stack + STACK - 64 - 192 * (f->index % 61);
#if defined(__x86_64__)
    void **slot = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--slot = nullptr; /* a return address that nobody uses: the stack is aligned as after a call */
    *--slot = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--slot = nullptr;
    f->stack_pointer = slot;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = (size_t)(top - f->stack);
    f->context.uc_link = nullptr;
    makecontext(&f->context, fiber_main, 0);
#endif
}

#if defined(__SANITIZE_ADDRESS__)
const void *host_stack;
size_t host_stack_bytes;
#endif

void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &host_stack, &host_stack_bytes);
#endif
    (*run->kernel)();
    fiber *self = current;
    if (!self->copies.empty()) fail(self->copies[0].at, "a thread ended without ptx_copies_wait after ptx_copy16");
    self->done = true;
    leave(self, true);
    abort();
}

void enter(fiber *f) {
    current = f;
    now = &f->regs;
    run->result.switches++;
#if defined(__SANITIZE_ADDRESS__)
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, f->stack, STACK);
#endif
#if defined(__x86_64__)
    emulate_switch(&scheduler_pointer, f->stack_pointer);
#else
    swapcontext(&scheduler_context, &f->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    current = nullptr;
    now = &host_registers;
    if (!f->done) return;
    uint64_t canary; /* looked at once: at each switch it took an eighth of the time, of a line that nothing else reads */
    memcpy(&canary, f->stack, sizeof canary);
    if (canary != CANARY) {
        fprintf(stderr, "emulate: a thread used more than %zu KiB of stack\n", (size_t)STACK >> 10);
        abort();
    }
}

void leave(fiber *from, bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from->fake_stack, host_stack, host_stack_bytes);
#else
    (void)for_good;
#endif
#if defined(__x86_64__)
    emulate_switch(&from->stack_pointer, scheduler_pointer);
#else
    swapcontext(&from->context, &scheduler_context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->fake_stack, &host_stack, &host_stack_bytes);
#endif
}

/* ---------------------------------------------------------------------------------------------------- scheduler -- */
void wake(fiber *f) {
    f->waiting = false;
    run->ready.push_back(f);
}
void wake_all(std::vector<fiber *> *fibers) {
    for (fiber *f : *fibers)
        if (f != current) wake(f);
    fibers->clear();
}
/* The running fiber waits until it is woken. */
void wait_for(const char *what, long d0, long d1, place at) {
    fiber *self = current;
    self->waiting = true;
    self->what = what;
    self->detail[0] = d0;
    self->detail[1] = d1;
    self->at = at;
    leave(self, false);
}
void called(place at) {
    current->at = at;
    current->polls = 0;
}

bool lags(const fiber *f) {
    const bool of_block = f->home->index == run->lag_block, of_warp = (unsigned)f->team->id == run->lag_warp;
    switch (run->lag) {
    case LAG_BLOCK:
        return of_block;
    case LAG_WARP:
        return of_block && of_warp;
    case LAG_WARPS:
        return of_warp;
    case LAG_HALF:
        return ((f->home->index * 16 + (unsigned)f->team->id) * run->lag_factor >> 31) != 0;
    case LAG_LANES:
        return (unsigned)f->lane == run->lag_lane;
    case LAG_THREAD:
        return of_block && of_warp && (unsigned)f->lane == run->lag_lane;
    default:
        return false;
    }
}
void draw_lag() {
    run->ready.insert(run->ready.end(), run->lagging.begin(), run->lagging.end());
    run->lagging.clear();
    run->lag = (int)draw_below(LAGS);
    run->lag_factor = draw() | 1;
    run->lag_block = draw_below(run->blocks.size());
    run->lag_warp = draw_below((run->config.block.x * run->config.block.y * run->config.block.z + 31) / 32);
    run->lag_lane = draw_below(32);
    run->redraw = 200 + draw_below(20000);
}
fiber *pick() {
    if (run->ordered) {
        if (run->ready.empty()) return nullptr;
        fiber *f = run->ready.back();
        run->ready.pop_back();
        return f;
    }
    for (;;) {
        if (run->redraw-- == 0) draw_lag();
        if (run->ready.empty()) {
            if (run->lagging.empty()) return nullptr;
            draw_lag();
            continue;
        }
        const size_t at = draw_below(run->ready.size());
        fiber *f = run->ready[at];
        run->ready[at] = run->ready.back();
        run->ready.pop_back();
        if (!lags(f)) return f;
        run->lagging.push_back(f);
    }
}

unsigned char *host_of(uint32_t address, size_t bytes, size_t align, place at) {
    const uint32_t index = address >> OFFSET_BITS, offset = address & OFFSET_MASK;
    if (index >= run->blocks.size() || offset < FIRST_OFFSET ||
        offset - FIRST_OFFSET + bytes > run->blocks[index]->bytes)
        fail(at, "%zu bytes at byte %ld of the shared memory of block %u, which has %zu", bytes,
             (long)offset - (long)FIRST_OFFSET, index, index < run->blocks.size() ? run->blocks[index]->bytes : 0);
    if (offset % align != 0) fail(at, "byte %u of shared memory is not aligned to %zu", offset - FIRST_OFFSET, align);
    block *b = run->blocks[index].get();
    if (!b->begun || b->alive == 0)
        fail(at, "an access to the shared memory of block %u, which has %s", index, b->begun ? "ended" : "not begun");
    return b->shared + (offset - FIRST_OFFSET);
}

arrivals *arrivals_of(uint32_t address, place at) {
    host_of(address, 8, 8, at);
    block *b = run->blocks[address >> OFFSET_BITS].get();
    auto found = b->arrivals_at.find(address & OFFSET_MASK);
    if (found == b->arrivals_at.end())
        fail(at, "no barrier was initialised at byte %u of the shared memory of block %u",
             (address & OFFSET_MASK) - FIRST_OFFSET, b->index);
    return &found->second;
}
void end_phase(arrivals *a) {
    if (a->pending != 0 || a->bytes != 0) return;
    a->phase++;
    a->pending = a->count;
    wake_all(&a->waiters);
}
void deliver(const delivery &d) {
    run->result.deliveries++;
    if (d.arrives) {
        arrivals *a = arrivals_of(d.barrier, d.at);
        if (a->pending <= 0) fail(d.at, "an arrival too many at a barrier in its phase %lu", (unsigned long)a->phase);
        a->pending--;
        end_phase(a);
        return;
    }
    unsigned char *to = host_of(d.to, d.bytes, d.bytes < 16 ? d.bytes : 16, d.at);
    memcpy(to, d.from ? d.from : d.data, d.bytes);
    arrivals *a = arrivals_of(d.barrier, d.at);
    a->bytes -= (long)d.bytes;
    end_phase(a);
}
void deliver_one() {
    const size_t at = draw_below(run->deliveries.size());
    const delivery d = run->deliveries[at];
    run->deliveries[at] = run->deliveries.back();
    run->deliveries.pop_back();
    deliver(d);
}

void begin_block(block *b) {
    const launch_config &c = run->config;
    const size_t threads = (size_t)c.block.x * c.block.y * c.block.z;
    /* Shared memory ends where a page begins that nobody may touch. */
    const size_t bytes = (c.shared + 127) / 128 * 128, pages = (bytes + PAGE - 1) / PAGE * PAGE;
    b->map_bytes = pages + 2 * PAGE;
    b->map = (unsigned char *)mmap(nullptr, b->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED || mprotect(b->map + PAGE, pages, PROT_READ | PROT_WRITE) != 0) abort();
    b->shared = b->map + PAGE + pages - bytes;
    b->bytes = c.shared;
    memset(b->map + PAGE, 0xff, pages);
    for (size_t i = 0; i < threads; i++) {
        if (i % 32 == 0) {
            b->warps.emplace_back(new warp);
            b->warps.back()->id = (int)(i / 32);
        }
        fiber *f = new fiber;
        b->fibers.emplace_back(f);
        f->home = b;
        f->team = b->warps.back().get();
        f->lane = (int)(i % 32);
        f->index = (int)i;
        f->team->lanes[f->lane] = f;
        f->team->present |= 1u << f->lane;
        f->regs.thread = {(unsigned)(i % c.block.x), (unsigned)(i / c.block.x % c.block.y),
                          (unsigned)(i / c.block.x / c.block.y)};
        f->regs.block = {b->index % c.grid.x, b->index / c.grid.x % c.grid.y, b->index / c.grid.x / c.grid.y};
        f->regs.block_dim = c.block;
        f->regs.grid_dim = c.grid;
        f->regs.cluster_rank = b->rank;
        f->regs.shared = b->shared;
        prepare(f);
        run->ready.push_back(f);
    }
    b->alive = threads;
    b->begun = true;
    run->alive += threads;
}
void begin_cluster() {
    cluster *c = run->clusters[run->next_cluster++].get();
    c->begun = true;
    c->alive = c->blocks.size();
    for (block *b : c->blocks) begin_block(b);
}
void end_block(block *b) {
    for (delivery &d : run->deliveries)
        if (d.to >> OFFSET_BITS == b->index && !run->failed)
            fail(d.at, "block %u ended before these bytes of block %u arrived", b->index, d.sender->home->index);
    for (size_t i = b->bytes; i < (b->bytes + 127) / 128 * 128; i++)
        if (b->shared[i] != 0xff)
            fail(b->fibers[0]->at, "a store past the end of the shared memory of block %u", b->index);
}
void release_block(block *b) {
    for (auto &f : b->fibers) free_stacks.push_back(f->stack);
    b->fibers.clear();
    b->warps.clear();
    if (b->map) munmap(b->map, b->map_bytes);
    b->map = nullptr;
}
void ended(fiber *f) {
    run->alive--;
    block *b = f->home;
    if (--b->alive > 0) return;
    end_block(b);
    if (run->failed || --b->home->alive > 0) return;
    for (block *each : b->home->blocks) release_block(each);
    if (run->next_cluster < run->clusters.size()) begin_cluster();
}

std::string name_of(const fiber *f) {
    char text[100];
    snprintf(text, sizeof text, "block %u warp %d lane %d", f->home->index, f->team->id, f->lane);
    return text;
}
const char *base_name(const char *file) {
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

/* Who waits where, a line for lanes of a warp that wait alike. */
void report_stuck() {
    std::string text = "threads wait for ever:";
    int lines = 0;
    for (auto &b : run->blocks) {
        if (!b->begun || b->alive == 0) continue;
        for (auto &w : b->warps) {
            std::map<std::string, uint32_t> where;
            for (int lane = 0; lane < 32; lane++) {
                if (!(w->present >> lane & 1)) continue;
                const fiber *f = w->lanes[lane];
                char line[300];
                if (f->done)
                    snprintf(line, sizeof line, "ended");
                else
                    snprintf(line, sizeof line, "%s(%ld, %ld) at %s:%d", f->what, f->detail[0], f->detail[1],
                             base_name(f->at.file), f->at.line);
                where[line] |= 1u << lane;
            }
            for (auto &one : where) {
                if (++lines > 60) continue;
                char line[400];
                snprintf(line, sizeof line, "\n    block %u warp %d lanes %08x: %s", b->index, w->id, one.second,
                         one.first.c_str());
                text += line;
            }
        }
        for (auto &one : b->arrivals_at) {
            if (one.second.waiters.empty() || ++lines > 60) continue;
            char line[300];
            snprintf(
                line, sizeof line,
                "\n    block %u: barrier at shared byte %u is in phase %lu, %ld arrivals and %ld bytes are missing",
                b->index, one.first - FIRST_OFFSET, (unsigned long)one.second.phase, one.second.pending,
                one.second.bytes);
            text += line;
        }
    }
    if (lines > 60) text += "\n    and more";
    run->result.failure = text;
    run->failed = true;
}

bool wake_pollers() {
    bool any = false;
    for (size_t i = 0; i < run->pollers.size();) {
        fiber *f = run->pollers[i];
        if (*f->polled != f->seen) {
            run->pollers[i] = run->pollers.back();
            run->pollers.pop_back();
            wake(f);
            any = true;
        } else {
            i++;
        }
    }
    return any;
}

void schedule() {
    while (!run->failed) {
        const bool idle = run->ready.empty() && run->lagging.empty();
        if (!run->deliveries.empty() && (idle || chance(run->on_the_way))) {
            deliver_one();
            if (run->failed) return;
        }
        fiber *f = pick();
        if (!f) {
            if (!run->deliveries.empty() || wake_pollers()) continue;
            if (run->alive > 0) report_stuck();
            return;
        }
        enter(f);
        if (f->done) ended(f);
    }
}

/* ------------------------------------------------------------------------------------------------------ signals -- */
void died(int number, siginfo_t *info, void *) {
    const uintptr_t address = (uintptr_t)info->si_addr;
    fprintf(stderr, "\nemulate: signal %d (%s), address %p\n", number, strsignal(number), info->si_addr);
    if (run && current) {
        fprintf(stderr, "    in %s, after %s:%d\n", name_of(current).c_str(), base_name(current->at.file),
                current->at.line);
        for (auto &b : run->blocks) {
            if (!b->map || address < (uintptr_t)b->map || address >= (uintptr_t)b->map + b->map_bytes) continue;
            fprintf(stderr, "    that is byte %ld of the shared memory of block %u, which has %zu\n",
                    (long)(address - (uintptr_t)b->shared), b->index, b->bytes);
        }
        if (number == SIGILL || number == SIGTRAP)
            fprintf(stderr, "    a misaligned or out-of-bounds access, found by -fsanitize; gdb shows where\n");
    }
    fprintf(stderr, "%s\n", death_text.c_str());
    _exit(1);
}
void catch_signals() {
    static bool once = false;
    if (once) return;
    once = true;
#if !defined(__SANITIZE_ADDRESS__)
    static unsigned char alternative[64 << 10];
    stack_t stack = {};
    stack.ss_sp = alternative;
    stack.ss_size = sizeof alternative;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = died;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGALRM, SIGTRAP}) sigaction(number, &action, nullptr);
#endif
}

} // namespace

registers *now = &host_registers;

void on_death(const std::string &text) {
    death_text = text;
}

void fail(place at, const char *format, ...) {
    char text[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    char where[300];
    snprintf(where, sizeof where, " (%s:%d%s%s)", base_name(at.file), at.line, current ? ", " : "",
             current ? name_of(current).c_str() : "");
    run->result.failure = std::string(text) + where;
    run->failed = true;
    if (!current) throw 0; /* caught by launch */
    leave(current, false); /* and never comes back */
    abort();
}

launch_result launch(const launch_config &config, const std::function<void()> &kernel) {
    catch_signals();
    state all;
    all.config = config;
    all.kernel = &kernel;
    all.result = launch_result();
    all.random = config.seed * 0x9e3779b97f4a7c15u + 1;
    run = &all;
    const size_t blocks = (size_t)config.grid.x * config.grid.y * config.grid.z;
    if (config.grid.x % config.cluster != 0 || blocks > (1u << (32 - OFFSET_BITS)) || blocks == 0 ||
        config.shared > OFFSET_MASK - FIRST_OFFSET) {
        all.result.failure = "a grid of " + std::to_string(config.grid.x) + " blocks in clusters of " +
                             std::to_string(config.cluster) + " cannot be launched";
        return all.result;
    }
    for (size_t i = 0; i < blocks; i++) {
        if (i % config.cluster == 0) all.clusters.emplace_back(new cluster);
        all.blocks.emplace_back(new block);
        block *b = all.blocks.back().get();
        b->index = (uint32_t)i;
        b->rank = (uint32_t)(i % config.cluster);
        b->home = all.clusters.back().get();
        b->home->blocks.push_back(b);
    }
    all.ordered = config.seed == 0;
    if (all.ordered) {
        all.at_once = 256;
        all.redraw = ~0u;
    } else {
        static const uint32_t now_of[3] = {0, 128, 256}, between_of[3] = {0, 4, 128};
        all.at_once = now_of[draw_below(3)];
        all.on_the_way = between_of[draw_below(3)];
        draw_lag();
    }
    try {
        while (all.next_cluster < all.clusters.size() && (config.resident == 0 || all.next_cluster < config.resident))
            begin_cluster();
        schedule();
    } catch (int) {}
    for (auto &b : all.blocks) release_block(b.get());
    run = nullptr;
    return all.result;
}

/* ------------------------------------------------------------------------------------------------- instructions -- */
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

void copy_later(uint32_t to, const void *from, place at) {
    called(at);
    unsigned char *host = at_shared(to, 16, 16, OWN_BLOCK, at);
    if ((uintptr_t)from % 16 != 0) fail(at, "ptx_copy16 from %p, which is not aligned to 16", from);
    if (chance(run->at_once))
        memcpy(host, from, 16);
    else
        current->copies.push_back({to, from, at, current->groups});
}
void copies_group() {
    current->groups++;
}
void copies_wait(int but, place at) {
    called(at);
    std::vector<late_copy> left;
    for (const late_copy &c : current->copies)
        if (c.group < current->groups - but)
            memcpy(host_of(c.to, 16, 16, c.at), c.from, 16);
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
