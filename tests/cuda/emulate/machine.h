/* What emulate.cpp and instructions.cpp share: the threads of a launch as fibers, and what is on its way between them. */
#ifndef SLI_TESTS_EMULATE_MACHINE_H
#define SLI_TESTS_EMULATE_MACHINE_H

#include "emulate.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulate {
namespace machine {

/* Shared addresses: block of the launch, from bit 20 on, and offset. Offsets begin behind what the hardware keeps. */
enum : uint32_t { OFFSET_BITS = 20, OFFSET_MASK = (1u << OFFSET_BITS) - 1, FIRST_OFFSET = 1024, PAGE = 4096 };
const uint64_t CANARY = 0x5afe57ac5afe57acu;

struct block;
struct warp;

struct late_copy {
    uint32_t to;
    const void *from;
    size_t bytes;
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
    std::vector<fiber *> late; /* of the block that begins late */
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
    long late_block = -1; /* begins when all others wait; -1: none */
};

extern state *run;     /* the launch */
extern fiber *current; /* the running thread; nullptr in the scheduler */

bool chance(uint32_t of_256);
void wake(fiber *f);
void wake_all(std::vector<fiber *> *fibers);
/* Threads that read a counter or a word again and again look at it once more. */
bool wake_pollers();
/* The running fiber waits until it is woken; goes on later, or never; calls an instruction. */
void wait_for(const char *what, long d0, long d1, place at);
void leave(fiber *from, bool for_good);
void called(place at);
/* Bytes of shared memory, and the barrier there. */
unsigned char *host_of(uint32_t address, size_t bytes, size_t align, place at);
arrivals *arrivals_of(uint32_t address, place at);
void end_phase(arrivals *a);
void deliver(const delivery &d);
std::string name_of(const fiber *f);
const char *base_name(const char *file);

} // namespace machine
} // namespace emulate

#endif
