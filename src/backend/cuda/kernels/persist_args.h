/* What a launch of the persistent recurrence is given. Plain C, read by the host and by NVRTC. Strides are in elements; those
 * from step to step are signed: steps go in order of processing. A NULL pointer is neither read nor written. */
#ifndef SLI_CUDA_PERSIST_ARGS_H
#define SLI_CUDA_PERSIST_ARGS_H

#include <stdint.h>

/* The beginning of sli_scalars (core/kernel.h). */
typedef struct persist_scalars {
    uint64_t seed;
    uint32_t step, micro_step;
} persist_scalars;

/* Weight of the old value under zoneout: 0 or 1 drawn, or its expectation. */
typedef struct persist_zone {
    float expected;
    uint32_t threshold, stream;
    int draw;
} persist_zone;

enum { PERSIST_VALID = 1, PERSIST_SHOWN = 2 }; /* of flags: not masked; the output is h, not 0 */
enum { PERSIST_MAX_DIRECTIONS = 2, PERSIST_MAX_LAYERS = 12 };
/* What the kernel and its geometry both count with: in many turns buffers for sums that arrive through the cluster, through memory; else buffers of the exchange
 * over the grid whose words tell, and the most pieces of it that a lane takes; in many turns barriers of cells apart; registers a lane of the warps that multiply, beside couriers alone and beside warps of cells as well; bytes that a warp has for what it sends through a cluster. */
enum {
    PERSIST_ARRIVING = 4,
    PERSIST_MEETING = 2,
    PERSIST_EXCHANGE = 4,
    PERSIST_TAKEN = 8,
    PERSIST_APART_BARRIERS = 3,
    PERSIST_TURNS_REGISTERS = 232,
    PERSIST_APART_REGISTERS = 168,
    PERSIST_APART_REGISTERS_BACKWARD = 160,
    PERSIST_SENDING = 128,
    PERSIST_LARGEST = 128 /* numbers of which the largest is of all weights */
};
/* What a launch reads and writes in every step, a constant of most kernels: flags; lengths; y or dy; c, h, operand of every step;
 * gates, s_n; v; the sums; random delays; backward what comes after the last step; x, y, dy of 16 bits, of kernels that are compiled when they are needed. */
enum {
    PERSIST_HAS_FLAGS = 1,
    PERSIST_HAS_LENGTHS = 2,
    PERSIST_HAS_Y = 4,
    PERSIST_HAS_C = 8,
    PERSIST_HAS_H = 16,
    PERSIST_HAS_OPERAND = 32,
    PERSIST_HAS_GATES = 64,
    PERSIST_HAS_V = 128,
    PERSIST_HAS_SUMS = 256,
    PERSIST_HAS_SUMS_PEEP = 512,
    PERSIST_HAS_DELAY = 1024,
    PERSIST_HAS_DP = 2048,
    PERSIST_HAS_NARROW_IO = 4096
};
#define PERSIST_DELAY_MEETS 0xFFFFFFFFu /* in place of a seed */

/* One direction. B rows; O = H. */
typedef struct persist_way {
    int steps;              /* of this launch */
    int chunk, first_chunk; /* backward: steps of a chunk, of the first that is processed */
    const void *weights;    /* packed, sli_persist_packed_bytes */
    const uint8_t *flags;   /* [B] of step 0; NULL: all valid and shown */
    int flags_step;
    const int32_t
        *lengths; /* [B] in absolute steps; NULL: rows do not end. Step s is the absolute step time + s * time_step */
    int64_t time;
    int time_step;
    /* A wave: the first layer's step at step 0, flags and y being as if it were the step of all; biases of all layers [zs], which the upper ones have
     * for u, NULL: zeros. */
    int wave_time;
    const float *wave_bias;
    const float *factor; /* [B][H] d of recurrent dropout */
    const float *peep;   /* [3][H] */
    persist_zone zone_h, zone_c;
    float *u; /* [B][us] of step 0: forward W x + b in; gates, out in training, in backward */
    int u_step;
    /* Where the launch makes W x + b itself: x [B][I] of step 0; of so many steps (of a wave fewer than of all); operand W [zs][inputs_row]; b [zs], NULL: zeros. */
    const void *x;
    int x_step, x_steps;
    const void *kernel;
    const float *input_bias;
    float *sn; /* [B][H] of step 0: GRU's s_n: forward =, backward read */
    int sn_step;
    const float *bias_n; /* [H] recurrent bias of n: GRU forward */
    float *v; /* [B][H] of step 0: clipped c before zoneout: forward =, backward read; NULL in backward: c_to */
    int v_step;
    /* c of the state that step 0 enters from; that it leaves. Step 0 = 0: only the last step's is written. */
    const float *c_from; /* [B][H] */
    float *c_to;         /* forward = */
    int c_step;
    const void *operand_from; /* operand [B][hs]: d h that step 0 enters from; forward. NULL: */
    const float *h_enters;    /* [B][H]: h that it enters from, with d = 1 */
    void *operand_to; /* = operand [B][hs]: d h that step 0 leaves; backward, with reset before: r d h' of step 0 */
    int operand_step;
    const float *h_from; /* [B][h_row] h that step 0 enters from, where cells read it */
    int64_t h_row;
    float *h_to;    /* forward = [B][H] that step 0 leaves */
    int h_step;     /* of h_to; backward: of h_from */
    void *y;        /* forward = [B][y_row] of step 0 */
    const void *dy; /* backward [B][y_row] of step 0 */
    int y_row;
    int y_step;
    float *h_last, *c_last;                                         /* forward = [B][H] after the last step */
    float *wave_h[PERSIST_MAX_LAYERS], *wave_c[PERSIST_MAX_LAYERS]; /* the same of a wave, [B][units of a layer] */
    /* backward */
    const float *pw_from, *dp_from, *dc_from; /* [B][H], [B][hs], [B][H]: of the state after step 0: dh = pw + d dp */
    float *pw_to, *dp_to, *dc_to; /* = the same before the last step; may be the same memory; dp_to NULL: none of it */
    void *dz;                     /* = operand [B][zs] of step 0: gradient of the input side */
    /* = operand [B][zs] of step 0: of the recurrent side, where it differs; with reset before none, but r d h' in operand_to */
    void *dr;
    int dz_step;
    float *sums;      /* = [chunks][B][us]: dz summed over a chunk's steps, chunks in order of processing */
    float *sums_n;    /* = [chunks][B][H]: n's part of dr */
    float *sums_peep; /* = [chunks][B][3 H] */
    uint32_t *
        counters; /* [groups][halves][reduce], zeros: gather over the grid; then, where sums meet in memory, [groups][halves][spread] */
    unsigned char *exchange; /* [groups][halves][2][reduce][rows / 8][pieces of k][8][16]; where words tell
                              * [PERSIST_EXCHANGE][groups][halves][reduce]..., the first two zeros */
    unsigned char *meeting;  /* float [groups][halves][2][spread][reduce, whose][reduce, from][tiles_n][own][8] */
} persist_way;

typedef struct persist_args {
    persist_way way[PERSIST_MAX_DIRECTIONS];
    int B, H, groups;
    int us, hs, zs;             /* row strides */
    int options, act, gate_act; /* of src/cell; where the kernel does not have them as constants */
    int form;                   /* PERSIST_HAS bits */
    int wave_steps;             /* of a wave: steps that a layer has */
    float forget_bias, clip;
    float bound; /* of |v|, but for states that enter */
    const persist_scalars *scalars;
    int far;        /* what steps read may lie beyond L2: asked for some steps ahead */
    int near;       /* of pairs of streamed tiles: so many are to stay in L2 */
    uint32_t delay; /* tests: seed of random delays, or PERSIST_DELAY_MEETS; 0: none */
    /* Shared memory: offsets of sli_persist_shared. */
    int shared_partial, shared_arriving, shared_weights, shared_ring, shared_barriers, shared_sending, shared_state,
        shared_ranges, shared_inputs, shared_bytes;
    const float
        *largest_weight[PERSIST_MAX_DIRECTIONS]; /* scaled: [PERSIST_LARGEST], the largest is that of |weights| */
} persist_args;

#endif
