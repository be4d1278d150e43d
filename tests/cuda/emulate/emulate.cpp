/* Fibers, their scheduler and shared memory of emulate.h. */
#include "machine.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulate {
namespace machine {

#if defined(__SANITIZE_ADDRESS__)
enum : size_t { STACK = 256 << 10 };
#else
enum : size_t { STACK = 64 << 10 };
#endif

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

/* Shared memory ends where a page begins that nobody may touch. It is kept as well: zeroed pages cost the kernel a tenth of all. */
std::map<size_t, std::vector<unsigned char *>> free_maps; /* by their bytes */

unsigned char *take_map(size_t bytes) {
    std::vector<unsigned char *> &kept = free_maps[bytes];
    if (kept.empty()) {
        unsigned char *map = (unsigned char *)mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED || mprotect(map + PAGE, bytes - 2 * PAGE, PROT_READ | PROT_WRITE) != 0) {
            fprintf(stderr, "emulate: no memory for shared memory\n");
            abort();
        }
        return map;
    }
    unsigned char *map = kept.back();
    kept.pop_back();
    return map;
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
    const size_t bytes = (c.shared + 127) / 128 * 128, pages = (bytes + PAGE - 1) / PAGE * PAGE;
    b->map_bytes = pages + 2 * PAGE;
    b->map = take_map(b->map_bytes);
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
        ((long)b->index == run->late_block ? run->late : run->ready).push_back(f);
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
    if (b->map) free_maps[b->map_bytes].push_back(b->map);
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

bool begin_late() {
    if (run->late.empty()) return false;
    run->ready.insert(run->ready.end(), run->late.begin(), run->late.end());
    run->late.clear();
    return true;
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
            if (!run->deliveries.empty() || wake_pollers() || begin_late()) continue;
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

} // namespace machine
using namespace machine;

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
    if (config.grid.x % config.cluster != 0 || (config.shared > 0 && blocks > (1u << (32 - OFFSET_BITS))) || blocks == 0 ||
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
        if (chance(128)) all.late_block = (long)draw_below(all.blocks.size());
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

} // namespace emulate
