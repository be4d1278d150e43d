/* cuda:step: where everything lies in saved, scratch and packed memory, and the shapes of its launches. Plain C, compiled into
 * libsluice (which books) and into the plug-in (which uses it). */
#ifndef SLI_CUDA_STEP_LAYOUT_H
#define SLI_CUDA_STEP_LAYOUT_H

#ifdef __cplusplus
extern "C" {
#endif
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/step_args.h"

/* What a problem asks of the engine. "Operand" is the type that matrix products read: float in f32, tf32 and f32x3, else 16-bit.
 * Operand rows are padded with zeros (xs, hs, ms, zs elements a row) so that every row begins at 16 bytes. */
typedef struct sli_step_shape {
    int64_t B, T, I, H, O;
    /* Of a wave: steps that its last layer is behind the first, whose x is so many steps shorter; else 0. */
    int64_t lag;
    int64_t gates, GH;      /* 4 3 1; gates * H */
    int64_t rows;           /* of one chunk: chunk * B */
    size_t operand;         /* bytes of an operand */
    int64_t xs, hs, ms, zs; /* row strides of operands of I, O, H and GH features */
    int64_t us;             /* row stride of float rows of GH features */
    int directions;
    bool lstm, gru, train;
    bool keep_gates;                   /* gates, s_n and v of every step are saved, */
    bool recompute;                    /* or computed again by backward: training is one of the two */
    bool narrow;                       /* operands are 16-bit; */
    bool narrow_parameters, narrow_io; /* so are parameters and their gradients; x, y, and theirs */
    bool mask;                         /* rows may be masked */
    bool drop;                         /* recurrent dropout, in training */
    bool before;                       /* GRU, reset before the product */
    bool project;                      /* LSTM with projection */
    bool copy_x;                       /* the products read a copy of x */
    bool copy_w;                       /* ... packed copies of the kernel, of the recurrent kernel */
    bool copy_r;
    bool keep_h;    /* cells read h' as float */
    bool own_h;     /* ... from an array of its own: the operand copy is narrow or has dropout in it */
    bool pointwise; /* dh' has a part that does not go through the recurrent product */
    bool keep_v;    /* backward reads v beside c */
    /* ... forward's copy of x, in 16 bits: of several chunks, or of large layers, it would copy each before products, which wait for it; and where it pairs. Not of two directions, each of which would
     * keep one, nor of a wave, whose x has fewer rows than it has steps. */
    bool keep_x;
    /* d kernel and d recurrent may be one launch: products of one size, x in front of h in saved. */
    bool pairs;
} sli_step_shape;
sli_step_shape sli_step_shape_of(const sli_problem *problem, int chunk);
/* Bytes that a row of a step has forward: x and y, which may have 16 bits, `gates` times its gates, c and h twice. */
double sli_step_row_bytes(const sli_step_shape *s, double gates);

/* Offsets in bytes; an absent part has the offset of the next one. Everything is per direction: direction d begins at
 * d * stride; total = directions * stride. */
typedef struct sli_step_packed {
    size_t kernel, recurrent; /* operand [zs][xs], [zs][hs]: rows from GH on are zeros */
    size_t projection;        /* operand [hs][ms]: rows from O on are zeros */
    size_t bias;              /* float [zs], zeros behind the gates: everything that can be added to W x */
    size_t bias_n,
        peephole; /* float [H], [3][H], of narrow parameters: as cells read them, n of GRU with reset after */
    size_t wide_backward, wide_forward; /* R^T and R as wide steps read them */
    size_t wide_largest;                /* float [PERSIST_LARGEST]: of R, by which scaled ones are; else nothing */
    size_t tiled; /* float [blocks of units][k][gates][SLI_STEP_TILED_UNITS]: R as tiled forward steps read it */
    size_t stride, total;
} sli_step_packed;
/* caps NULL: it goes other ways than step by step; backward in steps, which cuda:grid may have, wants R^T behind all of that. */
sli_step_packed sli_step_layout_packed(const sli_problem *problem, const sli_caps *caps);
/* The latter, where nothing but runs multiplies R. */
sli_step_packed sli_step_layout_packed_of_runs(const sli_problem *problem);

/* What forward leaves of every step for backward: in saved. Without training: in scratch, two slots of h, in turns, and one of
 * the other states. A state slot is the state between two steps: T + 1 slots, slot t lies before step t in time. */
typedef struct sli_step_history {
    size_t u;               /* float [T][B][us], keep_gates: W x + b, then the gates in its place */
    size_t sn;              /* float [T][B][H], keep_gates: GRU, s_n with reset after */
    size_t x;               /* operand [T][B][xs], keep_x */
    size_t h;               /* operand [T + 1][B][hs]: d h, what the recurrent product reads */
    size_t hf;              /* float [T + 1][B][O], own_h: h; one slot unless GRU's backward reads it */
    size_t c;               /* float [T + 1][B][H]: LSTM */
    size_t v;               /* float [T][B][H], keep_gates: LSTM, keep_v */
    bool slots_h, slots_hf; /* as many slots as steps + 1, else two of h, one of the others; u, sn, c, v as h */
    size_t stride, total;
} sli_step_history;
sli_step_history sli_step_layout_history(const sli_problem *problem, int chunk);

typedef struct sli_step_scratch {
    size_t history; /* without training: sli_step_history of this direction */
    size_t x;       /* operand [rows][xs]; a plan that keeps x has it for its calls of one chunk */
    size_t flags;   /* uint8 [T][B]: SLI_STEP_VALID, SLI_STEP_SHOWN */
    size_t factor;  /* float [B][O]: d */
    size_t u;       /* without keep_gates float [rows][us]; backward rows, as those of dz and dr, of a span */
    size_t sn, v;   /* backward, recompute: float [rows][H] */
    /* forward */
    size_t s;       /* float [B][us]: R (d h'); wide steps: [pieces][B][us], but where blocks keep their sums */
    size_t reset;   /* operand [B][hs]: r d h' */
    size_t m;       /* operand: forward [B][ms]; backward [rows][ms] */
    size_t q;       /* float [B][O]: W_p m */
    size_t wide;    /* wide steps, v as they read it; backward, too */
    size_t counts;  /* of runs: SLI_STEP_RUN_COUNTS bytes */
    size_t h_tiled; /* float [2][k][rows]: tiled steps, d h before and after a step */
    /* backward */
    size_t dz;    /* operand [rows][zs]: gradient of the input side */
    size_t dr;    /* operand [rows][zs]: of the recurrent side, GRU with reset after */
    size_t dpeep; /* float [rows][3 H] */
    size_t dp;    /* float [dp_pieces, or those of wide steps][B][hs]: R^T dr, in sums along k */
    int dp_pieces;
    size_t pw;      /* float [B][O]: pointwise part of dh' */
    size_t dc;      /* float [B][H] */
    size_t dq;      /* operand [rows][hs]: gradient of W_p m */
    size_t dm;      /* float [B][ms]: of m; with reset before: R_n^T ds_n */
    size_t resets;  /* operand [rows][hs]: r d h' */
    size_t dz_t;    /* float [GH][rows']: transposed dz, rows' = sli_cuda_transposed_row(rows), where that gains */
    size_t dr_t;    /* float [GH][rows']: dr */
    size_t x_t;     /* float [xs][rows'] */
    size_t h_t;     /* float [hs][rows']: d h' */
    size_t columns; /* float [slices][4 H]: partial column sums */
    size_t
        pad; /* float [GH][xs or hs], [O][ms] or [rows][xs]: a product on its way into a gradient; its rows in whole eights */
    size_t pad_bytes;
    /* Float, of parameters' narrow gradients: their sums over all chunks, where there are several, a parameter each. */
    size_t sums[SLI_PART_PARAMS];
    size_t split; /* f32x3: both ways, see sli_cuda_product */
    size_t split_bytes;
    size_t workspace; /* of products */
    size_t workspace_bytes;
    size_t stride, total;
} sli_step_scratch;
/* steps: forward goes step by step, tiled ones among them. */
sli_step_scratch sli_step_layout_forward(const sli_problem *problem, const sli_caps *caps, int chunk, bool steps);
/* span: steps whose gates and their gradients are there at once, the chunk or more. steps: backward goes step by step, wide steps among them. */
sli_step_scratch sli_step_layout_backward(const sli_problem *problem, const sli_caps *caps, int chunk, int span,
                                          bool steps);

/* Numbers of a direction's parameter k. */
int64_t sli_step_parameter(const sli_step_shape *shape, int k);

/* us that the sums over time of a chunk of so many rows, d kernel and d recurrent, win by transposed copies of their operands;
 * not above 0: they are multiplied as they are. */
double sli_step_transpose_gain(const sli_step_shape *shape, sl_dtype math, const sli_caps *caps, int64_t rows);

/* Blocks of `bx` by `by` threads: x goes along units, `vector` a thread, y along rows, in strides of gy * by. */
typedef struct sli_step_grid {
    unsigned gx, gy, bx, by;
} sli_step_grid;
sli_step_grid sli_step_grid_of(int64_t units, int64_t rows, int vector);
/* Units a thread of a plain cell: 4 where rows are 16-byte aligned and there is work enough for every multiprocessor. */
int sli_step_vector(const sli_step_shape *shape, const sli_caps *caps);
/* A fused step is one launch: the recurrent product and the cells of a step, or of a step's gradient. Whether it takes the
 * steps of a call; the memory is that of any step, but for wide ones, which a plan whose steps are fused has none of. */
bool sli_step_fused(const sli_problem *problem, bool backward);
/* Rows and units of a block of a fused step. */
enum { SLI_STEP_FUSED_ROWS = 32, SLI_STEP_FUSED_FORWARD_UNITS = 8, SLI_STEP_FUSED_BACKWARD_UNITS = 16 };
/* A tiled forward step is one launch as well, in f32, of many rows: rows of a tile, 64 or 32, where it is predicted to be faster than a
 * product and cells, else 0. Of a plan: its smaller calls do as it does. */
int sli_step_tiled(const sli_problem *problem, const sli_caps *caps);
enum { SLI_STEP_TILED_UNITS = 32, SLI_STEP_TILED_DEPTH = 16, SLI_STEP_TILED_MOST_ROWS = 64 };
/* Lines of its operands along k, and floats of a line of d h. */
int64_t sli_step_tiled_k(const sli_step_shape *shape);
int64_t sli_step_tiled_row(const sli_step_shape *shape);
/* The products of wide steps are our own, on sm_90 (kernels/step_wide.cuh): blocks of SLI_STEP_WIDE_TALL rows of M = R, or backward R^T, by `rows`
 * of the batch, with k in `stages` of SLI_STEP_WIDE_BYTES, cut in `pieces` whose sums the cells add. rows 0: cuBLASLt multiplies, of what these cannot or
 * are not faster for. Of a plan: its smaller calls do as it does. A run is many steps in one launch (kernels/step_run.cuh), of one direction. */
typedef struct sli_step_wide {
    int rows;          /* 64 or 128; of a run 16 or 32, too */
    int blocks, tiles; /* of M, of the batch */
    int stages, pieces;
    int units; /* of a run forward in one piece or two: a block, or a pair of blocks, has all gates of so many units, and computes their cells; 0: rows of M as they lie */
    bool narrow; /* weights and v of 16 bits; else weights of 20 bits, v of 32 */
    bool scaled; /* in tf32: they are of f16, times powers of two (sli_persist_scales) */
    bool runs;   /* many steps in a launch; else a launch each */
} sli_step_wide;
sli_step_wide sli_step_wide_of(const sli_problem *problem, const sli_caps *caps, bool backward);
/* Whether nothing but runs multiplies R. */
bool sli_step_all_runs(const sli_problem *problem, const sli_caps *caps);
/* Whether two blocks, a cluster, have each half of k of the same units, and after a product half of the units. */
bool sli_step_wide_pairs(const sli_step_wide *wide);
/* Blocks of the launch. */
int sli_step_wide_grid(const sli_step_wide *wide);
/* Of the stages those whose weights are to stay in L2, which directions share. */
int sli_step_wide_near(const sli_step_wide *wide, int directions, const sli_caps *caps);
/* What makes the kernel of a run of kernels/step_run_instance.cuh; vector: units a thread, 4 or 1; options and activations of src/cell. */
enum { SLI_STEP_RUN_DEFINES = 384 };
void sli_step_run_defines(const sli_problem *problem, const sli_step_wide *wide, bool backward, int vector, int options,
                          int act, int gate_act, char *text, size_t capacity);
/* Bytes of packed weights; of v, zeros behind k and the batch; of a run there are two. */
size_t sli_step_wide_bytes(const sli_step_wide *wide);
size_t sli_step_wide_v(const sli_step_wide *wide);
int sli_step_wide_buffers(const sli_step_wide *wide);
/* Rows of one partial sum, and their number. */
enum { SLI_STEP_SLICE = 128 };
int64_t sli_step_slices(int64_t rows);

#ifdef __cplusplus
}
#endif
#endif
