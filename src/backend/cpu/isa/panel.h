/* The product of one time step, as the fused recurrent kernels need it: a few rows of operands (h', or the gradients of gates)
 * times *panels* of packed weights. A panel is `vectors` vectors of `lanes` columns, chosen by the caller so that the gates
 * of a group of units lie side by side:
 *     forward, LSTM  vectors = 4: i f g o of `lanes` units          backward  vectors = 4: 4 * lanes units of h'
 *     forward, GRU   vectors = 3: r z n of `lanes` units
 *     forward, RNN   vectors = 4: 4 * lanes units
 * A last group of fewer units may have its gates close together, in fewer vectors: 4 gates of 8 units are two vectors of 16.
 * The result is a *tile* in L1, which the cell then reads:
 *     tile[panel][row][vectors * lanes] = sum over k of a[row][k] * w[panel][k][column]        (always float, always =)
 *
 * One table of functions for each form of weights, compiled once per instruction set: float, bf16, int8. Each is an implementation of
 * this interface; the row that schedules steps, the cells and the options know nothing else of a dtype. A column is summed over
 * k in one fixed order (blocks of k included), whatever rows and panels are taken together: so neither the number of threads
 * nor the rows that have ended change a bit. */
#ifndef SLI_PANEL_H
#define SLI_PANEL_H

#include <stdbool.h>
#include <stddef.h>

/* What a panel is packed from, up to four gates or groups of units: column c = v * gap + l of depth k is
 *     from[v][l * lane_stride + k * k_stride],  0 where l >= valid[v] or v > 3                                       */
typedef struct sli_panel_source {
    int k, vectors;
    const float *from[4];
    int valid[4]; /* 0..gap */
    int gap;      /* lanes; fewer, where gates lie close */
    ptrdiff_t lane_stride, k_stride;
} sli_panel_source;

/* Where column c begins, at k = 0; NULL: it is 0. */
static inline const float *sli_panel_column(const sli_panel_source *s, int c) {
    const int v = c / s->gap, l = c % s->gap;
    return v < 4 && l < s->valid[v] ? s->from[v] + l * s->lane_stride : NULL;
}

/* Terms of a sum of 8-bit products that 32 bits hold: 127 * 127 * SLI_PANEL_I8_MOST < 2^31. */
enum { SLI_PANEL_I8_MOST = 131072 };
/* Most floats of a result that the caller uses panel by panel. */
enum { SLI_PANEL_TILE = 16384 };

typedef struct sli_panel_product {
    int rows, panels, vectors, k;
    const void *const *a; /* [rows]: operand rows as `convert` wrote them; float: k floats */
    const void *w;        /* first panel; the others follow, `panel_bytes(k, vectors)` apart */
    const void *next;     /* what the next product begins with, fetched meanwhile; NULL: what follows the last panel */
    float *tile;          /* [panels][rows][vectors * lanes], aligned to a float: vectors need not be */
    bool from_l2; /* weights come out of L2 as fast as they are multiplied: they need not stay in L1 while rows pass */
} sli_panel_product;

typedef struct sli_panel_ops {
    const char *name; /* "f32", "bf16 (AMX)", "i8 (VNNI)" */
    int lanes;        /* columns of one vector */
    bool halves;      /* an operand is k numbers of bf16, and zeros up to a multiple of 32 */
    double speed;     /* of many rows, beside floats on the same processor; 0: the same */
    int least_rows;   /* 0, or worth it from so many on where weights come from afar */
    int panels;       /* most panels worth one call with few rows: enough sums to hide the latency of multiply-adds */
    /* Floats of a call's result, of as many panels as that takes: a call brings its operands into L1, out of which what is done with
     * the sums of each panel would push them. 0: panels are best multiplied and used one by one. */
    int near;
    /* Bytes of one packed panel (a multiple of 64), and of one operand row of k numbers (a multiple of 64). */
    size_t (*panel_bytes)(int k, int vectors);
    size_t (*operand_bytes)(int k);
    void (*pack)(void *panel, const sli_panel_source *source);
    /* One operand row from floats; NULL: operands are the floats themselves. int8 keeps its scale in the row. */
    void (*convert)(void *operand, const float *from, int k);
    void (*product)(const sli_panel_product *product);
    /* to[vectors * lanes] = w[k][:] of a panel. NULL: where W x of one-hot rows is a product like any other. */
    void (*line)(const void *panel, int vectors, int k, float *to);
    /* Around the products of one thread, in a task of its own or as one of several: AMX holds the shapes of its tiles from the first
     * product to the end, which gives them back. NULL: nothing to do. */
    void (*begin)(void);
    void (*end)(void);
} sli_panel_ops;

#endif
