/* Instances of the persistent kernel that tests compile; all cells, types and gathers, small.
 *                          units, P, Q, tiles_n, halves, warps m, k, tiles m, k, in registers, in shared[, options, acts] */
FORWARD(f0, L, BF16, CLUSTER, 8, 1, 4, 1, 1, 2, 1, 1, 2, 2, 0)
FORWARD(f1, L, F16, CLUSTER, 8, 1, 2, 1, 2, 1, 2, 2, 1, 1, 0)
FORWARD(f2, L, TF32, CLUSTER, 4, 1, 4, 1, 1, 1, 2, 1, 1, 1, 0)
FORWARD(f3, L, F32, CLUSTER, 4, 1, 3, 1, 1, 1, 1, 1, 3, 0, 3)
FORWARD(f4, L, F32X3, CLUSTER, 8, 1, 2, 2, 1, 2, 1, 1, 2, 2, 0)
FORWARD(f5, L, BF16, GRID, 8, 1, 3, 1, 2, 1, 2, 2, 1, 1, 0)
FORWARD(f6, L, BF16, GRID, 8, 2, 2, 1, 1, 2, 1, 2, 1, 1, 0)
FORWARD(f7, L, F32, GRID, 4, 2, 2, 1, 1, 1, 2, 1, 1, 1, 0)
FORWARD(f8, L, F32X3, GRID, 12, 1, 4, 1, 1, 3, 1, 1, 6, 0, 2)
FORWARD(f9, G, BF16, CLUSTER, 8, 1, 2, 1, 1, 2, 1, 1, 1, 1, 0)
FORWARD(f10, G, F32, GRID, 4, 2, 2, 1, 1, 1, 1, 1, 2, 2, 0)
FORWARD(f11, G, TF32, GRID, 4, 1, 3, 1, 2, 1, 2, 1, 1, 0, 1)
FORWARD(f12, R, F16, CLUSTER, 8, 1, 3, 2, 1, 1, 2, 1, 1, 1, 0)
FORWARD(f13, R, F32X3, GRID, 4, 2, 3, 1, 1, 1, 1, 1, 2, 0, 2)
FORWARD(f14, L, BF16, GRID, 24, 1, 4, 1, 1, 3, 1, 2, 6, 2, 0, 0, CELL_ACT_TANH, CELL_ACT_SIGMOID)
FORWARD(f15, L, BF16, LOCAL, 8, 1, 1, 1, 2, 2, 1, 1, 1, 1, 0)
FORWARD(f16, G, TF32, LOCAL, 12, 1, 1, 1, 1, 3, 2, 1, 1, 1, 0)
BACKWARD(b0, L, BF16, LOCAL, 8, 4, 1, 1, 1, 2, 1, 1, 2, 2, 0)
BACKWARD(b1, L, F16, LOCAL, 8, 2, 1, 1, 2, 1, 2, 1, 1, 1, 0)
BACKWARD(b2, L, F32, LOCAL, 4, 3, 1, 1, 1, 1, 2, 1, 2, 0, 2)
BACKWARD(b3, L, F32X3, LOCAL, 4, 2, 1, 2, 1, 1, 1, 1, 2, 2, 0)
BACKWARD(b4, L, BF16, GRID, 8, 1, 3, 1, 1, 1, 2, 1, 3, 2, 1)
BACKWARD(b5, L, F16, GRID, 8, 2, 2, 1, 2, 1, 2, 1, 2, 0, 0)
BACKWARD(b6, G, BF16, LOCAL, 4, 3, 1, 1, 1, 1, 1, 1, 1, 1, 0)
BACKWARD(b7, G, F32, GRID, 4, 2, 2, 1, 1, 1, 2, 1, 3, 2, 0)
BACKWARD(b8, G, TF32, GRID, 4, 1, 3, 1, 1, 1, 1, 1, 5, 2, 2)
BACKWARD(b9, R, TF32, LOCAL, 8, 2, 1, 1, 2, 1, 1, 1, 1, 1, 0)
BACKWARD(b10, R, F16, GRID, 4, 1, 3, 1, 1, 1, 1, 1, 1, 1, 0)
BACKWARD(b11, L, BF16, GRID, 16, 2, 3, 1, 1, 2, 1, 1, 12, 12, 0)
BACKWARD(b12, G, BF16, GRID, 4, 1, 3, 1, 2, 1, 3, 1, 1, 1, 0)
/* Reset before the product: all gathers, one part of the weights in registers, one in both; padding of either part, sums of warps and of
 * a cluster, halves, a counter instead of words that tell. */
FORWARD(e0, B, BF16, CLUSTER, 8, 1, 4, 1, 1, 1, 2, 3, 1, 1, 0)
FORWARD(e1, B, TF32, CLUSTER, 8, 1, 3, 2, 1, 1, 1, 3, 3, 0, 3)
FORWARD(e2, B, F32X3, LOCAL, 8, 1, 1, 1, 2, 1, 1, 3, 1, 1, 0)
FORWARD(e3, B, F16, GRID, 8, 1, 3, 1, 2, 1, 2, 3, 1, 1, 0)
FORWARD(e4, B, F32, GRID, 4, 2, 2, 1, 1, 1, 2, 3, 1, 1, 0)
FORWARD(e5, B, BF16, GRID, 24, 1, 6, 2, 1, 2, 1, 3, 9, 4, 5)
FORWARD(e14, B, BF16, GRID, 8, 2, 2, 1, 2, 1, 1, 3, 1, 1, 0)
BACKWARD(e6, B, BF16, LOCAL, 8, 4, 1, 1, 1, 2, 1, 1, 3, 2, 1)
BACKWARD(e7, B, F32, LOCAL, 4, 3, 1, 1, 2, 1, 2, 1, 3, 3, 0)
BACKWARD(e8, B, TF32, GRID, 4, 1, 5, 1, 1, 1, 3, 1, 3, 0, 3)
BACKWARD(e9, B, F16, GRID, 8, 2, 2, 1, 2, 1, 1, 1, 3, 3, 0)
BACKWARD(e10, B, F32X3, GRID, 12, 1, 4, 4, 1, 1, 4, 3, 6, 2, 4)
/* Zoneout is a constant, and so drawn early: of h and c, of one; one cell a lane and several; in turns, by those who multiply and apart. */
#define OF_BOTH CELL_ZONEOUT_H | CELL_ZONEOUT_C | CELL_MASK, CELL_ACT_TANH, CELL_ACT_SIGMOID
#define OF_C CELL_ZONEOUT_C, CELL_ACT_TANH, CELL_ACT_SIGMOID
#define OF_H CELL_ZONEOUT_H | CELL_MASK, CELL_ACT_TANH, CELL_ACT_SIGMOID
#define OF_H_BEFORE CELL_ZONEOUT_H | CELL_MASK | CELL_RESET_BEFORE, CELL_ACT_TANH, CELL_ACT_SIGMOID
FORWARD(z0, L, BF16, CLUSTER, 8, 1, 3, 1, 1, 2, 1, 1, 2, 2, 0, OF_BOTH)
BACKWARD(z1, L, BF16, LOCAL, 8, 2, 1, 1, 2, 1, 2, 1, 1, 1, 0, OF_BOTH)
FORWARD(z2, L, F32X3, CLUSTER, 8, 1, 2, 2, 1, 2, 1, 1, 2, 2, 0, OF_C)
FORWARD(z3, G, TF32, GRID, 4, 1, 3, 1, 2, 1, 2, 1, 1, 0, 1, OF_H)
BACKWARD(z4, G, BF16, LOCAL, 4, 3, 1, 1, 1, 1, 1, 1, 1, 1, 0, OF_H)
FORWARD(z5, B, TF32, CLUSTER, 8, 1, 3, 2, 1, 1, 1, 3, 3, 0, 3, OF_H_BEFORE)
FORWARD(z6, L, BF16, GRID, 8, 1, 3, 1, 3, 2, 4, 1, 1, 1, 0, OF_BOTH, SLI_PERSIST_COURIERS, 1, 1, 2)
FORWARD(z7, L, BF16, GRID, 24, 1, 2, 2, 2, 8, 1, 1, 4, 4, 0, OF_BOTH, SLI_PERSIST_COURIERS, 1, 2, 3, 4)
BACKWARD(z8, L, BF16, GRID, 12, 8, 1, 2, 3, 8, 1, 1, 4, 4, 0, OF_C, SLI_PERSIST_COURIERS, 1, 2, 3, 4)
#undef OF_BOTH
#undef OF_C
#undef OF_H
#undef OF_H_BEFORE
/* More pairs of tiles stream than the ring has. */
FORWARD(s0, L, TF32, GRID, 8, 1, 17, 1, 1, 2, 1, 1, 17, 0, 0)
BACKWARD(s1, G, BF16, GRID, 8, 1, 13, 1, 2, 1, 1, 1, 20, 2, 0)
/* Little room for a ring. */
#define RING -1, -1, -1, 0, 1, 1, 0, 0
FORWARD(s2, L, TF32, GRID, 8, 1, 9, 2, 1, 2, 1, 1, 9, 2, 0, RING, 2)
BACKWARD(s3, L, BF16, GRID, 8, 2, 5, 1, 2, 1, 2, 1, 5, 0, 0, RING, 1)
/* Reset before the product: parts in turn, rows of one or of the other; the end of r's and z's behind what is kept, or all of it. */
FORWARD(e11, B, TF32, GRID, 8, 1, 17, 1, 1, 1, 2, 3, 9, 0, 0)
BACKWARD(e12, B, BF16, GRID, 8, 1, 13, 1, 1, 1, 1, 7, 21, 4, 2)
BACKWARD(e13, B, TF32, GRID, 8, 2, 5, 2, 1, 1, 2, 1, 9, 2, 6, RING, 1)
/* Sums in the place of v: reduced, backward; s2 not. */
FORWARD(s4, L, TF32, GRID, 8, 2, 12, 2, 1, 1, 3, 4, 4, 2, 0, RING, 1)
BACKWARD(s5, G, TF32, GRID, 8, 1, 9, 2, 1, 1, 3, 1, 9, 2, 0, RING, 3)
/* Weights in 20 bits: of clusters and of a grid, of units that are no pairs of tiles, in registers, shared memory and streams. */
FORWARD(k0, L, TIGHT, CLUSTER, 4, 1, 4, 1, 1, 1, 2, 1, 2, 2, 0)
FORWARD(k1, L, TIGHT, CLUSTER, 8, 1, 4, 2, 1, 1, 1, 2, 4, 2, 2)
FORWARD(k2, G, TIGHT, GRID, 4, 1, 5, 1, 2, 1, 2, 1, 2, 0, 2)
FORWARD(k3, L, TIGHT, GRID, 8, 1, 17, 1, 1, 2, 1, 1, 18, 2, 2)
BACKWARD(k4, G, TIGHT, LOCAL, 8, 2, 1, 1, 1, 1, 1, 1, 4, 2, 2)
BACKWARD(k5, L, TIGHT, GRID, 8, 2, 5, 1, 2, 1, 2, 1, 10, 2, 2)
FORWARD(k6, L, TIGHT, GRID, 8, 2, 12, 2, 1, 1, 3, 4, 4, 2, 0, RING, 1)
#undef RING
/* Scaled operands of 16 bits in tf32: of a block, clusters and a grid, halves, sums over a cluster, streams, reset before. */
FORWARD(h0, L, SCALED, CLUSTER, 8, 1, 4, 1, 1, 2, 1, 1, 2, 2, 0)
FORWARD(h1, L, SCALED, CLUSTER, 16, 1, 3, 1, 1, 2, 2, 2, 2, 2, 0, -1, -1, -1, 0, 1, 1, 0, 0, 0, 4)
FORWARD(h2, L, SCALED, GRID, 8, 1, 3, 1, 2, 1, 2, 2, 1, 1, 0)
FORWARD(h3, G, SCALED, GRID, 8, 2, 2, 1, 1, 2, 1, 2, 1, 1, 0)
FORWARD(h4, R, SCALED, CLUSTER, 8, 1, 3, 2, 1, 1, 2, 1, 1, 1, 0)
FORWARD(h5, B, SCALED, CLUSTER, 8, 1, 4, 1, 1, 1, 2, 3, 1, 1, 0)
FORWARD(h6, L, SCALED, LOCAL, 8, 1, 1, 1, 2, 2, 1, 1, 1, 1, 0)
FORWARD(h7, L, SCALED, GRID, 16, 1, 8, 2, 1, 2, 1, 2, 8, 2, 2)
/* Few rows: of the whole batch a block alone, a cluster, sums over a cluster, a grid; cells of 4, 8, 16 and 32 units. */
#define FEW -1, -1, -1, 0, 1, 1, 0, 0, 0
FORWARD(r0, L, F32, LOCAL, 32, 1, 1, 1, 1, 4, 1, 1, 8, 8, 0, FEW, 2)
FORWARD(r1, G, F32, LOCAL, 32, 1, 1, 1, 1, 3, 2, 1, 4, 2, 2, FEW, 1)
FORWARD(r2, L, F32, CLUSTER, 8, 1, 3, 1, 1, 1, 2, 1, 3, 3, 0, FEW, 4)
FORWARD(r3, L, F32, CLUSTER, 16, 1, 2, 1, 1, 2, 1, 1, 8, 8, 0, FEW, 2)
FORWARD(r4, R, F32, CLUSTER, 4, 1, 5, 1, 1, 1, 2, 1, 3, 3, 0, FEW, 1)
FORWARD(r5, L, F32, GRID, 16, 2, 2, 1, 1, 4, 1, 1, 8, 8, 0, FEW, 4)
FORWARD(r6, G, F32, GRID, 4, 1, 5, 1, 1, 1, 2, 1, 3, 3, 0, FEW, 1)
BACKWARD(r7, L, F32, LOCAL, 32, 1, 1, 1, 1, 1, 4, 1, 8, 8, 0, FEW, 2)
BACKWARD(r8, L, F32, LOCAL, 8, 3, 1, 1, 1, 1, 2, 1, 4, 4, 0, FEW, 4)
/* Four of eight rows on tensor cores, through a cluster: warps that have cells and warps that have none, in code of their own; sums of warps and of a
 * cluster, units that are not whole eights, draws, reset before the product. */
#define OF_BOTH_FEW CELL_ZONEOUT_H | CELL_ZONEOUT_C | CELL_MASK, CELL_ACT_TANH, CELL_ACT_SIGMOID, 0, 1, 1, 0, 0, 0
FORWARD(g0, L, BF16, CLUSTER, 8, 1, 4, 1, 1, 2, 1, 1, 2, 2, 0, FEW, 4)
FORWARD(g1, L, F16, CLUSTER, 16, 1, 3, 1, 1, 2, 2, 2, 2, 2, 0, FEW, 4)
FORWARD(g2, L, TF32, CLUSTER, 8, 1, 3, 1, 1, 2, 1, 1, 3, 3, 0, FEW, 4)
FORWARD(g3, G, BF16, CLUSTER, 8, 1, 2, 1, 1, 2, 1, 1, 1, 1, 0, FEW, 4)
FORWARD(g4, L, F32X3, CLUSTER, 8, 1, 2, 1, 1, 2, 1, 1, 2, 0, 2, FEW, 4)
FORWARD(g5, R, TF32, CLUSTER, 4, 1, 4, 1, 1, 1, 2, 1, 1, 1, 0, FEW, 4)
FORWARD(g6, B, BF16, CLUSTER, 8, 1, 4, 1, 1, 1, 2, 3, 1, 1, 0, FEW, 4)
FORWARD(g7, L, BF16, CLUSTER, 8, 1, 3, 1, 1, 2, 1, 1, 2, 2, 0, OF_BOTH_FEW, 4)
BACKWARD(g8, L, BF16, LOCAL, 8, 4, 1, 1, 1, 2, 1, 1, 2, 2, 0, FEW, 4)
BACKWARD(g9, L, F16, LOCAL, 8, 2, 1, 1, 1, 1, 2, 1, 1, 1, 0, FEW, 4)
BACKWARD(g10, G, TF32, LOCAL, 8, 3, 1, 1, 1, 2, 1, 1, 3, 3, 0, FEW, 4)
BACKWARD(g11, B, BF16, LOCAL, 8, 4, 1, 1, 1, 2, 1, 1, 3, 2, 1, FEW, 4)
BACKWARD(g12, R, F32X3, LOCAL, 8, 2, 1, 1, 1, 1, 2, 1, 1, 1, 0, FEW, 4)
BACKWARD(g13, L, BF16, LOCAL, 8, 2, 1, 1, 1, 1, 2, 1, 1, 1, 0, OF_BOTH_FEW, 4)
#undef OF_BOTH_FEW
BACKWARD(g14, L, BF16, LOCAL, 4, 3, 1, 1, 1, 1, 1, 1, 1, 1, 0, FEW, 4)
/* Both kinds of warps in two halves; by FFMA of few rows, where all have a part of the cells, a quarter of the lanes each, and where they have not. */
FORWARD(g15, L, BF16, CLUSTER, 8, 1, 4, 1, 2, 2, 2, 1, 1, 1, 0)
FORWARD(g16, L, F32, CLUSTER, 8, 1, 3, 1, 1, 1, 4, 1, 2, 2, 0, FEW, 4)
FORWARD(g17, R, F32, CLUSTER, 32, 1, 2, 1, 1, 1, 4, 1, 4, 4, 0, FEW, 1)
BACKWARD(r9, G, F32, LOCAL, 16, 2, 1, 1, 1, 1, 1, 1, 12, 12, 0, FEW, 1)
BACKWARD(r10, L, F32, GRID, 16, 2, 2, 1, 1, 1, 4, 1, 8, 8, 0, FEW, 2)
BACKWARD(r11, R, F32, GRID, 4, 1, 5, 1, 1, 1, 2, 1, 3, 3, 0, FEW, 4)
FORWARD(r12, B, F32, CLUSTER, 16, 1, 2, 1, 1, 1, 2, 3, 4, 4, 0, FEW, 2)
BACKWARD(r13, B, F32, GRID, 16, 2, 2, 1, 1, 1, 4, 1, 6, 6, 0, FEW, 1)
#undef FEW
/* Many turns; then share, chunks, slots. */
#define TURNS -1, -1, -1, SLI_PERSIST_COURIERS
FORWARD(t0, L, BF16, GRID, 8, 1, 3, 1, 3, 2, 4, 1, 1, 1, 0, TURNS, 1, 1, 2)
FORWARD(t1, L, TF32, GRID, 8, 2, 2, 1, 3, 4, 2, 1, 1, 1, 0, TURNS, 2, 1, 2)
FORWARD(t2, G, F32, GRID, 4, 1, 4, 1, 4, 1, 8, 1, 1, 1, 0, TURNS, 4, 1, 3)
BACKWARD(t3, L, F16, GRID, 16, 8, 1, 1, 3, 8, 1, 1, 4, 4, 0, TURNS, 1, 2, 3)
BACKWARD(t4, L, BF16, GRID, 8, 2, 2, 1, 3, 1, 8, 1, 1, 0, 1, TURNS, 1, 1, 2)
BACKWARD(t5, R, F32X3, GRID, 8, 1, 3, 1, 4, 1, 8, 1, 1, 0, 1, TURNS, 1, 1, 2)
/* One slice, whose v couriers bring; two, whose sums are on their way in turn. */
FORWARD(t6, L, BF16, GRID, 8, 1, 4, 1, 1, 2, 4, 1, 1, 1, 0, TURNS, 2, 1, 2)
BACKWARD(t7, L, BF16, GRID, 8, 2, 2, 1, 1, 1, 8, 1, 1, 0, 1, TURNS, 2, 1, 2)
BACKWARD(t8, G, F32, GRID, 8, 2, 2, 1, 2, 1, 8, 1, 2, 2, 0, TURNS, 1, 1, 2)
FORWARD(t9, L, BF16, GRID, 8, 1, 8, 1, 1, 2, 4, 1, 1, 1, 0, TURNS, 8, 1, 2)
FORWARD(h8, L, SCALED, GRID, 8, 1, 3, 1, 3, 2, 4, 1, 1, 1, 0, TURNS, 1, 1, 2)
/* Four warps multiply together. */
FORWARD(h9, G, SCALED, GRID, 16, 1, 4, 2, 2, 4, 2, 1, 2, 2, 0, TURNS, 2, 1, 2)
FORWARD(h10, L, SCALED, GRID, 32, 1, 2, 2, 3, 8, 1, 1, 4, 0, 4, TURNS, 1, 2, 3, 4)
FORWARD(w0, L, BF16, GRID, 16, 1, 4, 2, 2, 4, 2, 1, 2, 2, 0, TURNS, 2, 1, 2)
FORWARD(w1, G, TF32, GRID, 8, 1, 4, 4, 2, 4, 2, 1, 2, 2, 0, TURNS, 4, 1, 3)
FORWARD(w2, L, F16, GRID, 32, 1, 2, 2, 3, 8, 1, 1, 4, 0, 4, TURNS, 1, 2, 3)
BACKWARD(w3, L, BF16, GRID, 16, 4, 2, 2, 3, 4, 2, 1, 4, 2, 2, TURNS, 2, 2, 4)
BACKWARD(w4, R, TF32, GRID, 32, 2, 2, 4, 3, 4, 2, 1, 8, 2, 6, TURNS, 1, 2, 2)
FORWARD(w5, L, BF16, GRID, 16, 1, 4, 2, 1, 4, 2, 1, 2, 2, 0, TURNS, 4, 1, 2)
/* Cells have warps of their own. */
FORWARD(a0, L, BF16, GRID, 16, 1, 4, 2, 2, 4, 2, 1, 2, 2, 0, TURNS, 2, 1, 2, 4)
FORWARD(a1, L, F16, GRID, 32, 1, 2, 2, 3, 8, 1, 1, 4, 0, 4, TURNS, 1, 2, 3, 4)
BACKWARD(a2, L, BF16, GRID, 16, 4, 2, 2, 3, 4, 2, 1, 4, 2, 2, TURNS, 2, 2, 4, 4)
BACKWARD(a3, G, F16, GRID, 16, 8, 1, 2, 2, 8, 1, 1, 4, 4, 0, TURNS, 1, 2, 3, 4)
/* Lanes have cells of several units, and not all the same number. */
FORWARD(a4, L, BF16, GRID, 24, 1, 2, 2, 2, 8, 1, 1, 4, 4, 0, TURNS, 1, 2, 3, 4)
BACKWARD(a5, L, BF16, GRID, 12, 8, 1, 2, 3, 8, 1, 1, 4, 4, 0, TURNS, 1, 2, 3, 4)
/* Sums meet in memory: of warps of their own and not, one slice and many, direct and added, forward; beside weights that stream. */
#define MEETS -1, 0, true
BACKWARD(m0, L, BF16, GRID, 16, 4, 3, 2, 3, 4, 2, 1, 6, 4, 2, TURNS, 3, 1, 2, 4, MEETS)
BACKWARD(m1, G, F16, GRID, 16, 4, 2, 2, 2, 4, 2, 1, 3, 3, 0, TURNS, 2, 1, 2, 4, MEETS)
BACKWARD(m2, L, BF16, GRID, 8, 2, 2, 1, 1, 1, 8, 1, 1, 0, 1, TURNS, 2, 1, 2, 0, MEETS)
BACKWARD(m3, L, F16, GRID, 16, 8, 1, 1, 3, 8, 1, 1, 4, 4, 0, TURNS, 1, 2, 3, 0, MEETS)
FORWARD(m4, L, TF32, GRID, 8, 2, 2, 1, 3, 4, 2, 1, 1, 1, 0, TURNS, 2, 1, 2, 0, MEETS)
BACKWARD(m5, L, BF16, GRID, 16, 2, 6, 1, 3, 2, 4, 1, 6, 2, 2, TURNS, 1, 3, 4, 0, 1, 0, true)
#undef MEETS
/* In turns weights stream: chunk by chunk through a ring that goes around; behind others, an odd number; sums over a cluster. */
FORWARD(q0, L, BF16, GRID, 16, 1, 8, 1, 3, 4, 2, 1, 4, 0, 0, TURNS, 2, 2, 3, 0, 1)
FORWARD(q1, G, TF32, GRID, 8, 1, 9, 1, 2, 2, 4, 1, 3, 0, 0, TURNS, 1, 1, 2, 0, 2)
BACKWARD(q2, L, BF16, GRID, 16, 2, 6, 1, 3, 2, 4, 1, 6, 2, 2, TURNS, 1, 3, 4, 0, 1)
BACKWARD(q3, L, F32, GRID, 8, 1, 8, 1, 1, 1, 8, 1, 8, 2, 0, TURNS, 4, 2, 3, 0, 2)
FORWARD(k7, L, TIGHT, GRID, 8, 2, 2, 1, 3, 4, 2, 1, 2, 2, 0, TURNS, 2, 1, 2)
BACKWARD(k8, L, TIGHT, GRID, 16, 2, 4, 1, 3, 2, 4, 1, 8, 2, 2, TURNS, 1, 2, 3, 0, 1)
#undef TURNS
/* The launch makes its input side: tiles of rows more and fewer than warps, groups of columns; inputs that are a pair of pieces of k, more, not whole; rows of x in fours and
 * not; over a cluster's and a grid's rows, halves, few rows, weights of 20 bits; of a batch that is one row or three of eight. */
INPUTS(i0, 13, 64, L, BF16, CLUSTER, 8, 1, 4, 1, 1, 2, 1, 1, 2, 2, 0)
INPUTS(i1, 72, 32, L, F16, CLUSTER, 16, 1, 3, 1, 1, 2, 2, 2, 2, 2, 0, -1, -1, -1, 0, 1, 1, 0, 0, 0, 4)
INPUTS(i2, 20, 56, L, TF32, CLUSTER, 4, 1, 4, 1, 1, 1, 2, 1, 1, 1, 0)
INPUTS(i3, 7, 64, L, F32, CLUSTER, 4, 1, 3, 1, 1, 1, 1, 1, 3, 0, 3)
INPUTS(i4, 6, 112, L, F32X3, CLUSTER, 8, 1, 2, 2, 1, 2, 1, 1, 2, 2, 0)
INPUTS(i5, 40, 112, L, BF16, GRID, 8, 1, 3, 1, 2, 1, 2, 2, 1, 1, 0)
INPUTS(i6, 100, 64, L, BF16, GRID, 8, 2, 2, 1, 1, 2, 4, 2, 1, 1, 0)
INPUTS(i7, 33, 112, G, TF32, GRID, 4, 1, 3, 1, 2, 1, 2, 1, 1, 0, 1)
INPUTS(i8, 5, 56, G, TF32, LOCAL, 12, 1, 1, 1, 1, 3, 2, 1, 1, 1, 0)
INPUTS(i9, 1, 112, R, F16, CLUSTER, 8, 1, 3, 2, 1, 1, 2, 1, 1, 1, 0)
INPUTS(i10, 24, 112, B, BF16, GRID, 8, 2, 2, 1, 2, 1, 1, 3, 1, 1, 0)
INPUTS(i11, 17, 112, L, TIGHT, CLUSTER, 8, 1, 4, 2, 1, 1, 1, 2, 4, 2, 2)
INPUTS(i12, 36, 7, R, F32, CLUSTER, 4, 1, 5, 1, 1, 1, 2, 1, 3, 3, 0, -1, -1, -1, 0, 1, 1, 0, 0, 0, 1)
INPUTS_TF32(i13, 52, 8, G, GRID, 4, 1, 5, 1, 1, 1, 2, 1, 3, 3, 0, -1, -1, -1, 0, 1, 1, 0, 0, 0, 1)
INPUTS_OF(i14, 1, 24, 16, L, BF16, CLUSTER, 8, 1, 4, 1, 1, 2, 1, 1, 2, 2, 0)
INPUTS_OF(i15, 3, 21, 32, G, TF32, GRID, 4, 1, 3, 1, 2, 1, 2, 1, 1, 0, 1)
INPUTS(i18, 20, 56, L, SCALED, CLUSTER, 8, 1, 4, 1, 1, 2, 1, 1, 2, 2, 0)
INPUTS_FIXED(i16, 32, 24, 64, L, BF16, CLUSTER, 8, 1, 4, 1, 1, 2, 1, 1, 2, 2, 0)
INPUTS_FIXED(i17, 30, 12, 112, G, TF32, CLUSTER, 8, 1, 4, 2, 1, 2, 1, 1, 4, 4, 0)
