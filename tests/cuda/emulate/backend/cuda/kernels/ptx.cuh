/* Emulation of src/backend/cuda/kernels/ptx.cuh, in its place through the include path. Same functions; each takes one more
 * argument, where it was called. */
#ifndef SLI_CUDA_PTX_CUH
#define SLI_CUDA_PTX_CUH

#include "emulate.h"

#define PTX_FN static inline
#define PERSIST_SHARED(name) unsigned char *name = emulated_shared()

/* ------------------------------------------------------------------------------------------------ shared memory -- */
PTX_FN int ptx_thread() {
    return (int)threadIdx.x;
}
PTX_FN uint32_t ptx_shared(const void *pointer, EMULATE_HERE) {
    return emulate::shared_address(pointer, at);
}
PTX_FN unsigned char *ptx_pointer(unsigned char *pointer, uint32_t) {
    return pointer;
}

struct ptx_matrices {
    uint32_t to[4], row;
    int count;
};
/* Lanes 8 i .. 8 i + 7 give the rows of matrix i; lane l gets bytes 4 (l % 4) .. of row l / 4. */
PTX_FN void ptx_warp_load_matrices(void **arguments, uint32_t, emulate::place at) {
    const int count = static_cast<ptx_matrices *>(arguments[0])->count;
    for (int row = 0; row < 8 * count; row++) {
        const uint32_t address = static_cast<ptx_matrices *>(arguments[row])->row;
        const unsigned char *from = emulate::at_shared(address, 16, 16, emulate::OWN_BLOCK, at);
        for (int word = 0; word < 4; word++) {
            ptx_matrices *lane = static_cast<ptx_matrices *>(arguments[row % 8 * 4 + word]);
            memcpy(&lane->to[row / 8], from + 4 * word, 4);
        }
    }
}
PTX_FN void ptx_load_matrices(uint32_t (&to)[4], uint32_t row, EMULATE_HERE) {
    ptx_matrices a = {{0, 0, 0, 0}, row, 4};
    emulate::warp_wide("ptx_load_matrices x4", ptx_warp_load_matrices, 0xffffffffu, &a, at);
    memcpy(to, a.to, sizeof to);
}
PTX_FN void ptx_load_matrices(uint32_t (&to)[2], uint32_t row, EMULATE_HERE) {
    ptx_matrices a = {{0, 0, 0, 0}, row, 2};
    emulate::warp_wide("ptx_load_matrices x2", ptx_warp_load_matrices, 0xffffffffu, &a, at);
    memcpy(to, a.to, sizeof to);
}
PTX_FN void ptx_load_shared(uint32_t (&to)[4], uint32_t from, EMULATE_HERE) {
    emulate::load_shared(to, from, at);
}
PTX_FN uint32_t ptx_load_word(uint32_t from, EMULATE_HERE) {
    uint32_t to;
    memcpy(&to, emulate::at_shared(from, 4, 4, emulate::OWN_BLOCK, at), 4);
    return to;
}
PTX_FN void ptx_store_shared(uint32_t to, const uint32_t (&from)[4], EMULATE_HERE) {
    memcpy(emulate::at_shared(to, 16, 16, emulate::OWN_BLOCK, at), from, 16);
}
PTX_FN void ptx_copy16(uint32_t to, const void *from, EMULATE_HERE) {
    emulate::copy_later(to, from, 16, at);
}
template <int more_to, int more_from> PTX_FN void ptx_copy16_at(uint32_t to, const void *from, EMULATE_HERE) {
    ptx_copy16(to + more_to, (const unsigned char *)from + more_from, at);
}
PTX_FN void ptx_copy4(uint32_t to, const void *from, EMULATE_HERE) {
    emulate::copy_later(to, from, 4, at);
}
PTX_FN void ptx_load16_constant(uint32_t (&to)[4], const void *from, EMULATE_HERE) {
    emulate::load_global(to, from, 16, at);
}
PTX_FN void ptx_load8_constant(uint32_t (&to)[2], const void *from, EMULATE_HERE) {
    emulate::load_global(to, from, 8, at);
}
PTX_FN void ptx_load4_constant(uint32_t &to, const void *from, EMULATE_HERE) {
    emulate::load_global(&to, from, 4, at);
}
PTX_FN void ptx_copies_wait(EMULATE_HERE) {
    emulate::copies_group();
    emulate::copies_wait(0, at);
}
PTX_FN void ptx_copies_group() {
    emulate::copies_group();
}
template <int count> PTX_FN void ptx_copies_wait_but(EMULATE_HERE) {
    emulate::copies_wait(count, at);
}
PTX_FN void ptx_barrier(int id, int threads, EMULATE_HERE) {
    emulate::block_barrier("ptx_barrier", id, threads, at);
}

/* ------------------------------------------------------------------------------------------------------ cluster -- */
PTX_FN uint32_t ptx_cluster_rank() {
    return emulate::now->cluster_rank;
}
PTX_FN void ptx_cluster_sync(EMULATE_HERE) {
    emulate::cluster_barrier(at);
}
PTX_FN uint32_t ptx_map(uint32_t address, uint32_t rank, EMULATE_HERE) {
    return emulate::map_shared(address, rank, at);
}
PTX_FN void ptx_arrivals_init(uint32_t barrier, uint32_t count, EMULATE_HERE) {
    emulate::arrivals_init(barrier, count, at);
}
PTX_FN void ptx_arrivals_init_fence() {}
PTX_FN void ptx_arrive(uint32_t barrier, EMULATE_HERE) {
    emulate::arrivals_expect(barrier, 0, at);
}
PTX_FN void ptx_arrive_at(uint32_t barrier, EMULATE_HERE) {
    emulate::arrive_at(barrier, at);
}
#define PTX_REGISTERS_MORE(count)
#define PTX_REGISTERS_FEWER(count)
PTX_FN void ptx_arrivals_expect(uint32_t barrier, uint32_t bytes, EMULATE_HERE) {
    emulate::arrivals_expect(barrier, bytes, at);
}
PTX_FN void ptx_arrivals_wait(uint32_t barrier, uint32_t parity, EMULATE_HERE) {
    emulate::arrivals_wait(barrier, parity, at);
}
PTX_FN bool ptx_arrivals_came(uint32_t barrier, uint32_t parity, EMULATE_HERE) {
    return emulate::arrivals_came(barrier, parity, at);
}
PTX_FN bool ptx_elected(EMULATE_HERE) {
    __syncwarp(0xffffffffu, at);
    return threadIdx.x % 32 == 0;
}
PTX_FN void ptx_send16(uint32_t to, const uint32_t (&v)[4], uint32_t barrier, EMULATE_HERE) {
    emulate::send_later(to, v, nullptr, 16, barrier, at);
}
PTX_FN void ptx_bring(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, EMULATE_HERE) {
    emulate::send_later(to, nullptr, from, bytes, barrier, at);
}
#define PTX_BRINGS true
enum { PTX_BRING_LEAST = 1024, PTX_BRING_AHEAD = 8 * 1024, PTX_L2_KEEPS = 200 * 1024 }; /* so that some cuts do, some do not */
PTX_FN void ptx_bring_once(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, EMULATE_HERE) {
    emulate::send_later(to, nullptr, from, bytes, barrier, at);
}
PTX_FN void ptx_bring_again(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, EMULATE_HERE) {
    emulate::send_later(to, nullptr, from, bytes, barrier, at);
}
PTX_FN void ptx_bring_all(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, uint32_t mask,
                          EMULATE_HERE) {
    for (uint32_t rank = 0; rank < 32; rank++)
        if (mask >> rank & 1u)
            emulate::send_later(emulate::map_shared(to, rank, at), nullptr, from, bytes,
                                emulate::map_shared(barrier, rank, at), at);
}
PTX_FN void ptx_fence_bring() {}
PTX_FN void ptx_fence_shared() {}

/* --------------------------------------------------------------------------------------------------------- grid -- */
PTX_FN void ptx_count_release(uint32_t *counter, EMULATE_HERE) {
    emulate::count_release(counter, at);
}
PTX_FN uint32_t ptx_count_acquire(const uint32_t *counter, EMULATE_HERE) {
    return emulate::count_acquire(counter, at);
}
template <int N> PTX_FN void ptx_give(void *to, const uint32_t (&word)[N], EMULATE_HERE) {
    emulate::give(to, word, sizeof word, at);
}
PTX_FN void ptx_take16(uint32_t (&to)[4], const void *from, EMULATE_HERE) {
    emulate::take(to, from, at);
}
PTX_FN void ptx_fence_given(EMULATE_HERE) {
    emulate::fence_given(at);
}
PTX_FN void ptx_prefetch(const void *from) {
    if (emulate::asked_ahead) emulate::asked_ahead->insert(static_cast<const float *>(from));
}
PTX_FN void ptx_before_loads(float &) {}
PTX_FN void ptx_arrived(uint32_t, const void *) {}
PTX_FN void ptx_pause(uint32_t, EMULATE_HERE) {
    emulate::pause(at);
}

/* ------------------------------------------------------------------------------------------------- tensor cores -- */
struct ptx_mma_arguments {
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};
/* d += a b with operands of `NARROW` 16-bit values a word, or tf32; sums in double, rounded once. */
template <bool NARROW, float (*WIDEN)(uint32_t)> void ptx_warp_mma(void **arguments, uint32_t, emulate::place) {
    enum { EACH = NARROW ? 2 : 1, K = 8 * EACH };
    double a[16][K], b[8][K];
    for (int lane = 0; lane < 32; lane++) {
        const ptx_mma_arguments *l = static_cast<ptx_mma_arguments *>(arguments[lane]);
        for (int part = 0; part < 4; part++) {
            for (int e = 0; e < EACH; e++) {
                const int k = (lane % 4 + part / 2 * 4) * EACH + e;
                a[lane / 4 + part % 2 * 8][k] = (double)WIDEN(NARROW ? l->a[part] >> 16 * e & 0xffffu : l->a[part]);
                if (part % 2 == 0)
                    b[lane / 4][k] = (double)WIDEN(NARROW ? l->b[part / 2] >> 16 * e & 0xffffu : l->b[part / 2]);
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        float *d = static_cast<ptx_mma_arguments *>(arguments[lane])->d;
        for (int part = 0; part < 4; part++) {
            const int row = lane / 4 + part / 2 * 8, column = lane % 4 * 2 + part % 2;
            double sum = (double)d[part];
            for (int k = 0; k < K; k++) sum += a[row][k] * b[column][k];
            d[part] = (float)sum;
        }
    }
}
PTX_FN float ptx_widen_tf32(uint32_t bits) {
    return __uint_as_float(bits & 0xffffe000u);
}
PTX_FN void ptx_mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, EMULATE_HERE) {
    ptx_mma_arguments all = {d, a, {b0, b1}};
    emulate::warp_wide("ptx_mma_bf16", ptx_warp_mma<true, emulate::from_bf16>, 0xffffffffu, &all, at);
}
PTX_FN void ptx_mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, EMULATE_HERE) {
    ptx_mma_arguments all = {d, a, {b0, b1}};
    emulate::warp_wide("ptx_mma_f16", ptx_warp_mma<true, emulate::from_f16>, 0xffffffffu, &all, at);
}
PTX_FN void ptx_mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, EMULATE_HERE) {
    ptx_mma_arguments all = {d, a, {b0, b1}};
    emulate::warp_wide("ptx_mma_tf32", ptx_warp_mma<false, ptx_widen_tf32>, 0xffffffffu, &all, at);
}
/* Each of the four warps multiplies its rows when it is told to, not later. */
#define PTX_TOGETHER true
PTX_FN uint64_t ptx_operand_of(uint32_t address, uint32_t next_k, uint32_t next) {
    return (uint64_t)(address >> 4) | (uint64_t)(next_k >> 4) << 32 | (uint64_t)(next >> 4) << 48;
}
PTX_FN uint32_t ptx_uniform(uint32_t x, EMULATE_HERE) {
    return __shfl_sync(0xffffffffu, x, 0, 32, at);
}
PTX_FN void ptx_together_begin() {}
template <int N> PTX_FN void ptx_together_sums(float (&)[N][4]) {}
PTX_FN void ptx_together_commit() {}
template <int LEFT> PTX_FN void ptx_together_wait() {}
template <int MATH, int N>
PTX_FN void ptx_multiply_together(float (&d)[N][4], const uint32_t (&a)[4], uint64_t b, EMULATE_HERE) {
    const uint32_t address = (uint32_t)b << 4, next_k = (uint32_t)(b >> 32 & 0xffffu) << 4;
    const uint32_t next_columns = (uint32_t)(b >> 48) << 4, lane = threadIdx.x % 32;
    for (uint32_t n = 0; n < N; n++) {
        uint32_t two[2];
        ptx_load_matrices(two, address + n * next_columns + lane / 8 % 2 * next_k + lane % 8 * 16, at);
        if (MATH == 1)
            ptx_mma_tf32(d[n], a, two[0], two[1], at);
        else if (MATH == 2)
            ptx_mma_bf16(d[n], a, two[0], two[1], at);
        else
            ptx_mma_f16(d[n], a, two[0], two[1], at);
    }
}
template <int MATH, int N> PTX_FN void ptx_multiply_together(float (&d)[N][4], uint64_t a, uint64_t b, EMULATE_HERE) {
    const uint32_t address = (uint32_t)a << 4, next_k = (uint32_t)(a >> 32 & 0xffffu) << 4;
    const uint32_t next = (uint32_t)(a >> 48) << 4, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    uint32_t words[4];
    for (uint32_t i = 0; i < 4; i++)
        memcpy(&words[i],
               emulate::at_shared(address + i / 2 * next_k + (warp * 2 + i % 2) * next + lane * 4, 4, 4,
                                  emulate::OWN_BLOCK, at),
               4);
    ptx_multiply_together<MATH, N>(d, words, b, at);
}
PTX_FN uint32_t ptx_tf32(uint32_t x) {
    return emulate::to_tf32(x);
}
template <int less> PTX_FN uint32_t ptx_low13(uint32_t high, uint32_t low) {
    return high << 19 | low << less >> 13;
}
PTX_FN uint32_t ptx_pack_bf16(float low, float high) {
    return emulate::to_bf16(low) | emulate::to_bf16(high) << 16;
}
PTX_FN uint32_t ptx_pack_f16(float low, float high) {
    return emulate::to_f16(low) | emulate::to_f16(high) << 16;
}
PTX_FN float ptx_from_f16(uint16_t bits) {
    return emulate::from_f16(bits);
}
PTX_FN uint32_t ptx_cut_f16(float x) {
    const uint32_t nearest = emulate::to_f16(x);
    return nearest - (fabsf(emulate::from_f16(nearest)) > fabsf(x) ? 1u : 0u);
}

#endif
