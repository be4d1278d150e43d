/* What the persistent kernels ask of the hardware, a function an instruction, PTX in one place. No CUDA header is included:
 * NVRTC compiles this too, and tests put an emulation in its place. */
#ifndef SLI_CUDA_PTX_CUH
#define SLI_CUDA_PTX_CUH

#include <stdint.h>

#define PTX_FN static __device__ __forceinline__

/* threadIdx.x by way of the warp, so that it stays in a register: the assembler would read it anew in every step, behind
 * whatever waits for memory. */
PTX_FN int ptx_thread() {
    return __shfl_sync(0xFFFFFFFFu, (int)threadIdx.x, (int)threadIdx.x % 32);
}

/* ------------------------------------------------------------------------------------------------ shared memory -- */
/* The address of shared memory as instructions want it. */
PTX_FN uint32_t ptx_shared(const void *pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}
/* The same memory by its address. */
PTX_FN unsigned char *ptx_pointer(unsigned char *, uint32_t address) {
    return (unsigned char *)__cvta_shared_to_generic(address);
}
/* 32 lanes read 16 bytes each: lane l of four 8 x 16-byte matrices, whose rows' addresses lanes 8i .. 8i + 7 give for matrix
 * i, has bytes 4 (l % 4) .. of row l / 4. */
PTX_FN void ptx_load_matrices(uint32_t (&to)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}
/* Two matrices: lanes 0 .. 15 give the rows. */
PTX_FN void ptx_load_matrices(uint32_t (&to)[2], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(row)
                 : "memory");
}
PTX_FN void ptx_load_shared(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
PTX_FN uint32_t ptx_load_word(uint32_t from) {
    uint32_t to;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(to) : "r"(from) : "memory");
    return to;
}
PTX_FN void ptx_store_shared(uint32_t to, const uint32_t (&from)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}
/* 16 bytes of global memory into shared memory, past L1; complete after ptx_copies_wait. */
PTX_FN void ptx_copy16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
/* The same some bytes further, which the instruction has room for. */
template <int more_to, int more_from> PTX_FN void ptx_copy16_at(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0 + %2], [%1 + %3], 16;" ::"r"(to), "l"(from), "n"(more_to), "n"(more_from) : "memory");
}
PTX_FN void ptx_copy4(uint32_t to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
PTX_FN void ptx_copies_wait() {
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
}
/* The thread's copies since the last call are a group; and the wait until all of its groups but the last `count` are complete. */
PTX_FN void ptx_copies_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int count> PTX_FN void ptx_copies_wait_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(count) : "memory");
}
/* Waits for `threads` threads of the CTA at its barrier `id`; 0 is __syncthreads. */
PTX_FN void ptx_barrier(int id, int threads) {
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/* Registers a thread from here on: of four warps together, which all call it. More than before: other warps gave them up. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PTX_REGISTERS_MORE(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)(count)))
#define PTX_REGISTERS_FEWER(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)(count)))
#else
#define PTX_REGISTERS_MORE(count)
#define PTX_REGISTERS_FEWER(count)
#endif
/* 16 bytes of global memory that does not change while the kernel runs. */
PTX_FN void ptx_load16_constant(uint32_t (&to)[4], const void *from) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from));
}

PTX_FN void ptx_load8_constant(uint32_t (&to)[2], const void *from) {
    asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0,%1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
}
PTX_FN void ptx_load4_constant(uint32_t &to, const void *from) {
    asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(to) : "l"(from));
}

/* ------------------------------------------------------------------------------------------------------ cluster -- */
/* Where there are no clusters (sm_80) geometries have none, and these are not reached. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define PTX_CLUSTER(code) asm volatile code
#define PTX_CLUSTER_PURE(code) asm code /* depends on its operands alone: goes before loops */
#define PTX_BRINGS true
#else
#define PTX_CLUSTER(code) __trap()
#define PTX_CLUSTER_PURE(code) __trap()
#define PTX_BRINGS false
#endif
PTX_FN void ptx_cluster_sync() {
    PTX_CLUSTER(("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory"));
}
/* The same place in the shared memory of CTA `rank` of the cluster. */
PTX_FN uint32_t ptx_map(uint32_t address, uint32_t rank) {
    uint32_t mapped = 0;
    PTX_CLUSTER_PURE(("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank)));
    return mapped;
}
/* A barrier of `count` arrivals a phase, beside the bytes that it was told to expect. */
PTX_FN void ptx_arrivals_init(uint32_t barrier, uint32_t count) {
    PTX_CLUSTER(("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory"));
}
PTX_FN void ptx_arrivals_init_fence() {
    PTX_CLUSTER(("fence.mbarrier_init.release.cluster;" ::: "memory"));
}
PTX_FN void ptx_arrive(uint32_t barrier) {
    PTX_CLUSTER(("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"));
}
/* At the barrier of a CTA of the cluster: address from ptx_map. */
PTX_FN void ptx_arrive_at(uint32_t barrier) {
    PTX_CLUSTER(("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory"));
}
/* An arrival: the phase ends when `bytes` more have come. */
PTX_FN void ptx_arrivals_expect(uint32_t barrier, uint32_t bytes) {
    PTX_CLUSTER(("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory"));
}
/* Waits for the end of the phase of this parity (0: the first, 1: the second, ...), and sees what came with it. Acquires for the
 * CTA: what comes by ptx_send16 is shared memory; for the cluster it would empty L1 as well. */
PTX_FN void ptx_arrivals_wait(uint32_t barrier, uint32_t parity) {
    PTX_CLUSTER(("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory"));
}
/* Whether that phase has ended, without waiting; sees what came with it, too. */
PTX_FN bool ptx_arrivals_came(uint32_t barrier, uint32_t parity) {
    uint32_t came = 0;
    PTX_CLUSTER(("{\n"
                 ".reg .pred done;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, done;\n"
                 "}"
                 : "=r"(came)
                 : "r"(barrier), "r"(parity)
                 : "memory"));
    return came != 0;
}
/* True of one lane of a warp, all of whose lanes ask: the assembler then knows that it is one, and loops over no others. */
PTX_FN bool ptx_elected() {
    uint32_t one = 0;
    PTX_CLUSTER(("{\n"
                 ".reg .pred p;\n"
                 "elect.sync _|p, 0xFFFFFFFF;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "}"
                 : "=r"(one)));
    return one != 0;
}
/* Stores into a CTA of the cluster; its barrier (of the same CTA) counts the bytes. Addresses from ptx_map. */
PTX_FN void ptx_send16(uint32_t to, const uint32_t (&v)[4], uint32_t barrier) {
    PTX_CLUSTER(
        ("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to),
         "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(barrier)
         : "memory"));
}

/* `bytes` (times 16) of global memory into the shared memory of this CTA; its barrier counts them. */
PTX_FN void ptx_bring(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    PTX_CLUSTER(("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory"));
}
enum { PTX_BRING_LEAST = 3 * 1024, PTX_BRING_AHEAD = 64 * 1024, PTX_L2_KEEPS = 49000000 }; /* bytes, of an H200 */
/* The same of memory that is the first to leave L2. The number is CUDA's policy of evict_first for all of it. */
PTX_FN void ptx_bring_once(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    PTX_CLUSTER(("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
                 "%4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(0x12F0000000000000ull)
                 : "memory"));
}
/* The same of memory that is the last to leave: evict_last. */
PTX_FN void ptx_bring_again(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    PTX_CLUSTER(("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
                 "%4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(0x14F0000000000000ull)
                 : "memory"));
}
/* To this place in all CTAs of the cluster that `mask` has, each with its own barrier. */
PTX_FN void ptx_bring_all(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, uint32_t mask) {
    PTX_CLUSTER(("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"((uint16_t)mask)
                 : "memory"));
}
/* What this thread has seen of global memory is seen by its ptx_bring. */
PTX_FN void ptx_fence_bring() {
    PTX_CLUSTER(("fence.proxy.async.global;" ::: "memory"));
}
/* What this thread has stored to shared memory is seen by ptx_bring and by tensor cores that read it there. */
PTX_FN void ptx_fence_shared() {
    PTX_CLUSTER(("fence.proxy.async.shared::cta;" ::: "memory"));
}

/* --------------------------------------------------------------------------------------------------------- grid -- */
/* += by one, after everything that this thread has seen is visible to the GPU. */
PTX_FN void ptx_count_release(uint32_t *counter) {
    asm volatile("fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
PTX_FN uint32_t ptx_count_acquire(const uint32_t *counter) {
    uint32_t count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}
/* 1, 2 or 4 words to L2, each as a whole; 16 bytes as L2 has them now. */
PTX_FN void ptx_give(void *to, const uint32_t (&word)[1]) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word[0]) : "memory");
}
PTX_FN void ptx_give(void *to, const uint32_t (&word)[2]) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(word[0]), "r"(word[1]) : "memory");
}
PTX_FN void ptx_give(void *to, const uint32_t (&word)[4]) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]),
                 "r"(word[3])
                 : "memory");
}
PTX_FN void ptx_take16(uint32_t (&to)[4], const void *from) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "l"(from)
                 : "memory");
}
/* What this thread has given comes before what is given after this, by any thread that a barrier lets know of it. */
PTX_FN void ptx_fence_given() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
PTX_FN void ptx_prefetch(const void *global) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}
PTX_FN void ptx_pause(uint32_t nanoseconds) {
    asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
}
/* x is computed before what follows reads memory: of what x is made of, nothing need be kept beside the next that is loaded. */
PTX_FN void ptx_before_loads(float &x) {
    asm volatile("" : "+f"(x)::"memory");
}
/* What follows begins when x has come: an instruction that wants it, and asks L2 for what is there already, if it does anything. One that might hold
 * a lane up (nanosleep) would make ptxas take the warp apart. */
PTX_FN void ptx_arrived(uint32_t x, const void *global) {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "setp.eq.u32 p, %0, 0x7FC1DEAD;\n\t"
        "@p prefetch.global.L2 [%1];\n\t"
        "}" ::"r"(x),
        "l"(global)
        : "memory");
}

/* ------------------------------------------------------------------------------------------------- tensor cores -- */
/* d += a b over a warp: a 16 rows x 32 bytes of k, b 32 bytes of k x 8 columns. Lane l has of d rows l / 4 (d[0], d[1]) and
 * l / 4 + 8 (d[2], d[3]), columns 2 (l % 4) and the next; of a rows l / 4 (a[0], a[2]) and l / 4 + 8 (a[1], a[3]), of b
 * column l / 4: 4 bytes at byte 4 (l % 4) of k (a[0], a[1], b[0]) and 16 bytes on (a[2], a[3], b[1]). */
PTX_FN void ptx_mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
PTX_FN void ptx_mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
PTX_FN void ptx_mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Four warps together: d += a b as above, 16 rows of a warp after those of another, columns 8 n; b lies in shared memory in
 * pieces of 16 bytes of k by 8 columns. sm_90 alone. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PTX_TOGETHER true
#define PTX_TOGETHER_CODE(code) asm volatile code
#else
#define PTX_TOGETHER false
#define PTX_TOGETHER_CODE(code) __trap()
#endif
/* Descriptor of b, or of a in shared memory: bytes from a piece to the next of k, from 8 columns (of a: rows) to the next; + 1
 * is 16 bytes. An address has the number of the CTA in its cluster above these bits. */
PTX_FN uint64_t ptx_operand_of(uint32_t address, uint32_t next_k, uint32_t next) {
    return (uint64_t)((address & 0x3FFFFu) >> 4) | (uint64_t)(next_k >> 4) << 16 | (uint64_t)(next >> 4) << 32;
}
/* x, the same in all lanes, in a register of the whole warp. Descriptors want to be there: else each instruction of four warps
 * waits until its own has been moved, 34 cycles instead of 16 (H200, 2026-11-21). */
PTX_FN uint32_t ptx_uniform(uint32_t x) {
    return __shfl_sync(0xFFFFFFFFu, x, 0);
}
PTX_FN void ptx_together_begin() {
    PTX_TOGETHER_CODE(("wgmma.fence.sync.aligned;" ::: "memory"));
}
/* What was begun since the last one is a group. */
PTX_FN void ptx_together_commit() {
    PTX_TOGETHER_CODE(("wgmma.commit_group.sync.aligned;" ::: "memory"));
}
/* All but the last LEFT groups are complete. */
template <int LEFT> PTX_FN void ptx_together_wait() {
    PTX_TOGETHER_CODE(("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"));
}
/* Sums of the groups that are complete: not read before this, nor written after. */
template <int N> PTX_FN void ptx_together_sums(float (&d)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++) asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}
#define PTX_D1(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define PTX_D2(i) PTX_D1(i), PTX_D1(i + 1)
#define PTX_D4(i) PTX_D2(i), PTX_D2(i + 2)
#define PTX_D8(i) PTX_D4(i), PTX_D4(i + 4)
#define PTX_D16(i) PTX_D8(i), PTX_D8(i + 8)
#define PTX_NAMES2 "{%0,%1,%2,%3,%4,%5,%6,%7"
#define PTX_NAMES4 PTX_NAMES2 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define PTX_NAMES8 PTX_NAMES4 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define PTX_NAMES16 \
    PTX_NAMES8 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
/* WORDS: a in registers; SHARED: its descriptor. */
#define PTX_NAMES_WORDS2 PTX_NAMES2 "}, {%8,%9,%10,%11}, %12"
#define PTX_NAMES_WORDS4 PTX_NAMES4 "}, {%16,%17,%18,%19}, %20"
#define PTX_NAMES_WORDS8 PTX_NAMES8 "}, {%32,%33,%34,%35}, %36"
#define PTX_NAMES_WORDS16 PTX_NAMES16 "}, {%64,%65,%66,%67}, %68"
#define PTX_NAMES_SHARED2 PTX_NAMES2 "}, %8, %9"
#define PTX_NAMES_SHARED4 PTX_NAMES4 "}, %16, %17"
#define PTX_NAMES_SHARED8 PTX_NAMES8 "}, %32, %33"
#define PTX_NAMES_SHARED16 PTX_NAMES16 "}, %64, %65"
#define PTX_IN_WORDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
#define PTX_IN_SHARED "l"(a), "l"(b)
#define PTX_WGMMA(A, N8, COLUMNS, K, TYPES, TAIL)                                                       \
    PTX_TOGETHER_CODE(("{\n.reg .pred add;\nsetp.eq.u32 add, 1, 1;\n"                                   \
                       "wgmma.mma_async.sync.aligned.m64" COLUMNS K ".f32." TYPES " " PTX_NAMES_##A##N8 \
                       ", add, 1, 1" TAIL ";\n}"                                                        \
                       : PTX_D##N8(0)                                                                   \
                       : PTX_IN_##A))
#define PTX_WGMMA_N(A, K, TYPES, TAIL)          \
    if constexpr (N == 2)                       \
        PTX_WGMMA(A, 2, "n16", K, TYPES, TAIL); \
    else if constexpr (N == 4)                  \
        PTX_WGMMA(A, 4, "n32", K, TYPES, TAIL); \
    else if constexpr (N == 8)                  \
        PTX_WGMMA(A, 8, "n64", K, TYPES, TAIL); \
    else                                        \
        PTX_WGMMA(A, 16, "n128", K, TYPES, TAIL)
/* a in registers; in shared memory: its descriptor, and one more argument that says that it is not transposed. MATH as in
 * persist_sizes.cuh: 1 tf32, 2 bf16, 3 f16. N: 2, 4, 8 or 16. */
#define PTX_MULTIPLY_TOGETHER(A, PARAMETER, TAIL)                                                         \
    template <int MATH, int N> PTX_FN void ptx_multiply_together(float (&d)[N][4], PARAMETER, uint64_t b) { \
        static_assert(N == 2 || N == 4 || N == 8 || N == 16, "16, 32, 64 or 128 columns");                \
        if constexpr (MATH == 1)                                                                          \
            PTX_WGMMA_N(A, "k8", "tf32.tf32", "");                                                        \
        else if constexpr (MATH == 2)                                                                     \
            PTX_WGMMA_N(A, "k16", "bf16.bf16", TAIL);                                                     \
        else                                                                                              \
            PTX_WGMMA_N(A, "k16", "f16.f16", TAIL);                                                       \
    }
PTX_MULTIPLY_TOGETHER(WORDS, const uint32_t (&a)[4], ", 0")
PTX_MULTIPLY_TOGETHER(SHARED, uint64_t a, ", 0, 0")

/* Rounded to what tf32 products read, ties away from zero; the low bits are zeros. */
PTX_FN uint32_t ptx_tf32(uint32_t x) {
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
    return y;
}
/* The low 13 bits of `high`, followed by those of `low` below the first `less`. Volatile: of words that stay in registers it would be computed once for
 * all steps, and kept. */
template <int less> PTX_FN uint32_t ptx_low13(uint32_t high, uint32_t low) {
    uint32_t x;
    asm volatile("{.reg .b32 t;\nshl.b32 t, %1, %3;\nshf.r.wrap.b32 %0, t, %2, 13;}" : "=r"(x) : "r"(low), "r"(high), "n"(less));
    return x;
}
/* Two floats as 16-bit operands, `low` in the low half; to nearest even. */
PTX_FN uint32_t ptx_pack_bf16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
PTX_FN uint32_t ptx_pack_f16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
PTX_FN float ptx_from_f16(uint16_t bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
/* One, in the low half, cut off. */
PTX_FN uint32_t ptx_cut_f16(float x) {
    uint32_t packed;
    asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(0.0f), "f"(x));
    return packed;
}

#endif
