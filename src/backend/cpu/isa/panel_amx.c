/* Panels on AMX (amx.h): operands rounded to bf16, or floats as sums of three bf16, their parts; sums in float.
 *     panel    [vectors][k / 32][parts] tiles of 16 columns: a call has `panels * vectors` blocks of columns in a row
 *     operand  [parts][k] of bf16, zeros up to a multiple of 32; an odd number of lines, to spread over the sets of L1
 * Tiles all have the same number of rows, so that a thread's tiles are configured once: rows are cut into even tiles
 * of at most 16, and where they do not come out even the last tile overlaps the one before, computing a few sums
 * twice. */
#include "backend/cpu/isa/panel.h"

#if defined(__AVX512F__) || defined(SLI_AMX_EMULATED)
#include "backend/cpu/isa/amx.h"

static size_t bytes_of_panel(int k, int vectors, int parts) {
    return (size_t)amx_blocks(k) * (size_t)(vectors * parts) * AMX_TILE;
}

BF16_FN AMX_INLINE void pack_parts(void *panel, const sli_panel_source *s, const int parts) {
    char *to = panel;
    for (int v = 0; v < s->vectors; v++)
        for (int k = 0; k < s->k; k += AMX_K, to += parts * AMX_TILE) amx_pack_panel(to, s, v, k, parts);
}

/* Rows that the calling thread's tiles are configured for; 0: none. */
static _Thread_local int configured;

static void begin(void) {
    configured = 0;
}

AMX_FN static void end(void) {
    if (configured) _tile_release();
    configured = 0;
}

AMX_FN static void configure(int rows) {
    if (configured == rows) return;
    amx_configure(rows);
    configured = rows;
}

/* Bytes of rows of a that are multiplied with all columns before the next k, so that they stay in L1; and of a column that is fetched:
 * those of most layers whose weights are more than L2 holds. Fetching nearer ones costs 3 to 10% in bf16. */
enum { NEAR_A = 24 * 1024, FAR_B = 20 * 1024 };

/* Two tiles of rows, or one, over some of k. */
typedef struct piece {
    const sli_panel_product *product;
    int tiles, row[2];
    const char *a[2];
    ptrdiff_t stride; /* bytes from row to row, */
    ptrdiff_t part;   /* from part to part */
    int k0, k;        /* tiles along k: first, how many */
} piece;

/* Blocks of columns, whatever panels they are of: each by itself for two tiles of rows, for one in twos, the last ones in threes. */
AMX_FN AMX_INLINE void multiply(const piece *t, const int parts) {
    const sli_panel_product *p = t->product;
    const size_t column = (size_t)(amx_blocks(p->k) * parts) * AMX_TILE, row = (size_t)p->vectors * AMX_LANES;
    const int columns = p->panels * p->vectors;
    amx_block block = {.k = t->k,
                       .a = {t->a[0], t->a[1]},
                       .a_row = t->stride,
                       .a_step = AMX_LINE,
                       .a_part = t->part,
                       .c_row = (ptrdiff_t)(sizeof(float) * row),
                       .add = t->k0 > 0,
                       .fetch = column >= FAR_B};
    const char *b = (const char *)p->w + (size_t)(t->k0 * parts) * AMX_TILE;
    float *c = p->tile + (size_t)t->row[0] * row;
    const size_t lower = (size_t)(t->row[t->tiles - 1] - t->row[0]) * row;
    size_t at = 0, panel = 0; /* of a column, of its panel */
    for (int j = 0, vector = 0, wide; j < columns; j += wide) {
        const int left = columns - j;
        wide = t->tiles == 2 || left == 1 ? 1 : left == 3 ? 3 : 2;
        for (int i = 0; i < wide; i++) {
            block.b[i] = b + (size_t)(j + i) * column;
            block.c[0][i] = c + at;
            block.c[1][i] = c + at + lower;
            at += AMX_LANES;
            if (++vector < p->vectors) continue;
            vector = 0;
            panel += (size_t)p->rows * row;
            at = panel;
        }
        amx_multiply(&block, parts, t->tiles, wide);
    }
}

/* Scattered rows, the k of a piece: copy[row][part][k]. */
AMX_INLINE void copy_rows(char *copy, piece *t, int size, ptrdiff_t part, const int parts) {
    const char *const *a = (const char *const *)t->product->a;
    t->part = (ptrdiff_t)t->k * AMX_LINE;
    t->stride = parts * t->part;
    for (int r = 0; r < t->tiles; r++) {
        t->a[r] = copy;
        for (int i = 0; i < size * parts; i++, copy += t->part)
            memcpy(copy, a[t->row[r] + i / parts] + i % parts * part + t->k0 * AMX_LINE, (size_t)t->part);
    }
    AMX_WRITTEN();
}

/* A piece of k at a time; meanwhile sums wait in the result. */
AMX_FN AMX_INLINE void multiply_pieces(piece *t, int size, bool even, const int parts) {
    _Alignas(64) char copy[NEAR_A];
    const int all = amx_blocks(t->product->k), most = NEAR_A / (t->tiles * size * parts * AMX_LINE);
    const ptrdiff_t part = (ptrdiff_t)all * AMX_LINE;
    for (t->k0 = 0; t->k0 < all; t->k0 += most) {
        t->k = all - t->k0 < most ? all - t->k0 : most;
        t->part = part;
        for (int r = 0; r < t->tiles; r++) t->a[r] = (const char *)t->product->a[t->row[r]] + t->k0 * AMX_LINE;
        if (!even) copy_rows(copy, t, size, part, parts);
        multiply(t, parts);
    }
}

static bool evenly_spaced(const sli_panel_product *p, ptrdiff_t *stride) {
    const char *const *a = (const char *const *)p->a;
    *stride = p->rows > 1 ? a[1] - a[0] : AMX_LINE;
    for (int r = 2; r < p->rows; r++)
        if (a[r] - a[r - 1] != *stride) return false;
    return true;
}

AMX_FN AMX_INLINE void product_of(const sli_panel_product *p, const int parts) {
    if (p->rows == 0) return;
    const int count = (p->rows + AMX_ROWS - 1) / AMX_ROWS, size = (p->rows + count - 1) / count;
    ptrdiff_t stride;
    const bool even = evenly_spaced(p, &stride);
    configure(size);
    AMX_WRITTEN();
    for (int i = 0; i < count; i += 2) {
        piece t = {.product = p, .tiles = count - i < 2 ? 1 : 2, .stride = stride};
        for (int r = 0; r < t.tiles; r++) t.row[r] = i + r < count - 1 ? (i + r) * size : p->rows - size;
        multiply_pieces(&t, size, even, parts);
    }
}

/* The functions of a number of parts. */
#define OF_PARTS(name, parts)                                                      \
    static size_t panel_bytes_##name(int k, int vectors) {                         \
        return bytes_of_panel(k, vectors, parts);                                  \
    }                                                                              \
    static size_t operand_bytes_##name(int k) {                                    \
        return amx_operand_bytes(k, parts);                                        \
    }                                                                              \
    BF16_FN static void pack_##name(void *panel, const sli_panel_source *source) { \
        pack_parts(panel, source, parts);                                          \
    }                                                                              \
    BF16_FN static void convert_##name(void *operand, const float *from, int k) {  \
        amx_convert(operand, from, k, parts);                                      \
    }                                                                              \
    AMX_FN static void product_##name(const sli_panel_product *p) {                \
        product_of(p, parts);                                                      \
    }
#define FUNCTIONS(suffix)                                                                                       \
    .lanes = AMX_LANES, .panels = 1, .near = SLI_PANEL_TILE, .begin = begin, .end = end, .pack = pack_##suffix, \
    .panel_bytes = panel_bytes_##suffix, .operand_bytes = operand_bytes_##suffix, .convert = convert_##suffix,  \
    .product = product_##suffix

OF_PARTS(half, AMX_HALF)
OF_PARTS(float, AMX_FLOAT)

const sli_panel_ops sli_panel_bf16_amx = {.name = "bf16 (AMX)", .halves = true, .speed = 10, FUNCTIONS(half)};
const sli_panel_ops sli_panel_f32x3_amx = {.name = "f32x3 (AMX)", .speed = 2, FUNCTIONS(float)};
#endif
