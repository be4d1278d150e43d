/* Products of bf16 tiles on AMX, for panel_amx.c and gemm_amx.c; AVX512_BF16 takes operands packed alike (panel_bf16.c, product_dot.c).
 *
 * A tile is 16 rows of 64 bytes:
 *     rows of a      [rows][32 k]                     columns of b   [16 pairs of k][16 columns][2]
 *     sums           [rows][16 columns] of float
 * _tile_dpbf16ps(sum, a, b) adds 32 products to each sum, and its order is its own: the 16 even k are added up one
 * after the other, so are the 16 odd k, each with one rounding a product (to nearest, whatever MXCSR says); the two
 * are added, and their total is added to the sum. Denormal operands count as 0, denormal results become 0. Across
 * tiles k goes up. So a sum has one order, whatever rows and columns are taken together.
 *
 * Products of floats. x = x0 + x1 + x2, its *parts*: each the bf16 nearest to what is left, of 8 bits, so that the three
 * have all 24 (but for what lies below 2^-126; an x that is no number, infinite or rounds to infinity makes all sums none).
 *     x y = x1 y1 + x1 y0 + x2 y0 + x0 y0 + x0 y1 + x0 y2   but for 2^-23 of |x y| at most
 * are six products of tiles in place of one, on sums that round once for 32 k each: not less exact than floats
 * multiplied and added one by one, and 0.8 to 1.4 times as fast in layers where the core is shared (bench/results/amx_tiles_cpu_2026-11-22.txt),
 * 1.4 to 1.7 times where it is ours (amx_shared_cpu_2026-11-22.txt).
 *
 * Tests define SLI_AMX_EMULATED and the intrinsics in plain C. */
#ifndef SLI_AMX_H
#define SLI_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/panel.h"

#ifdef SLI_AMX_EMULATED
#define AMX_FN
#define BF16_FN
#else
#include <immintrin.h>
#define AMX_FN __attribute__((target("amx-tile,amx-bf16")))
#define BF16_FN __attribute__((target("avx512bf16")))
#endif

enum { AMX_K = 32, AMX_LANES = 16, AMX_ROWS = 16, AMX_TILE = 1024 /* bytes */, AMX_LINE = 64 };

/* Tile loads of some compilers do not say which memory they read: what was written before must be there. */
#define AMX_WRITTEN() __asm__ volatile("" ::: "memory")

static inline int amx_blocks(int k) {
    return (k + AMX_K - 1) / AMX_K;
}

/* Of an operand: bf16 itself, or a float. Tiles of the same k follow each other, part by part. */
enum { AMX_HALF = 1, AMX_FLOAT = 3 };
#define AMX_INLINE static inline __attribute__((always_inline))

/* Few tiles are in use at a time: 0 to 2 hold sums, 2 and 3 rows of a, of `rows` rows each, 4 columns of b, and operands are zeroed
 * after their last product. Where another program is at work on the core's other thread (most clouds) a product of two tiles takes,
 * with its loads, 57 to 81 cycles if all eight tiles hold something, 32 to 36 this way, and 18 either way on a core of our own: few tile registers
 * are left there for renaming, and a zeroed tile needs none (bench/results/amx_tiles_cpu_2026-11-22.txt). More sums would take fewer
 * loads, and more time. */
enum { AMX_MOST_COLUMNS = 3 };

AMX_FN static inline void amx_configure(int rows) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int i = 0; i < 5; i++) {
        shape.bytes[i] = AMX_LINE;
        shape.rows[i] = (uint8_t)(i < 4 ? rows : AMX_ROWS);
    }
    AMX_WRITTEN();
    _tile_loadconfig(&shape);
}

/* Two tiles of rows times a block of 16 columns, or one times up to three blocks. Strides in bytes. */
typedef struct amx_block {
    int k;                           /* tiles along k */
    const char *a[2];                /* first tile of the upper and of the lower rows */
    ptrdiff_t a_row;                 /* from row to row */
    ptrdiff_t a_step;                /* from tile to tile along k */
    ptrdiff_t a_part;                /* from part to part */
    const char *b[AMX_MOST_COLUMNS]; /* first tile of each block of columns; tiles along k follow each other */
    float *c[2][AMX_MOST_COLUMNS];   /* [rows][columns] */
    ptrdiff_t c_row;
    bool add;   /* false: c = ; true: c += */
    bool fetch; /* the tile of b behind each, of the next k, into L1 */
} amx_block;

#define AMX_BEGIN(tile, from)                  \
    do {                                       \
        if (p->add)                            \
            _tile_loadd(tile, from, p->c_row); \
        else                                   \
            _tile_zero(tile);                  \
    } while (0)

/* The products of one k, in this order: parts of a and of b, of which one stays where that is possible; whether that of b comes for the
 * first time. */
typedef struct amx_pass {
    int a, b;
    bool first;
} amx_pass;

AMX_INLINE amx_pass amx_pass_of(int parts, int pass) {
    static const amx_pass of_floats[] = {{1, 1, true},  {1, 0, true},  {2, 0, false},
                                         {0, 0, false}, {0, 1, false}, {0, 2, true}};
    return parts == AMX_HALF ? (amx_pass){.first = true} : of_floats[pass];
}

/* One product: where its tiles lie behind the first ones of k, whether these parts are other ones than before, and than after it. */
typedef struct amx_place {
    ptrdiff_t a, b;
    bool new_a, new_b, last_a, last_b, first_b;
} amx_place;

AMX_INLINE amx_place amx_place_of(const amx_block *p, int parts, int k, int pass) {
    const bool first = pass == 0, last = parts == AMX_HALF || pass == 5;
    const amx_pass now = amx_pass_of(parts, pass), before = amx_pass_of(parts, first ? pass : pass - 1),
                   after = amx_pass_of(parts, last ? pass : pass + 1);
    return (amx_place){.a = k * p->a_step + now.a * p->a_part,
                       .b = ((ptrdiff_t)k * parts + now.b) * AMX_TILE,
                       .new_a = first || now.a != before.a,
                       .new_b = first || now.b != before.b,
                       .last_a = last || now.a != after.a,
                       .last_b = last || now.b != after.b,
                       .first_b = now.first};
}

AMX_INLINE void amx_fetch(const char *b, int parts) {
    for (int line = 0; line < 16; line++) __builtin_prefetch(b + parts * AMX_TILE + line * AMX_LINE);
}

/* step(p, parts, ..., k, pass) for all products; `parts` is a constant that folds. */
#define AMX_ALL(parts, step, ...)                         \
    for (int k = 0; k < p->k; k++) {                      \
        step(__VA_ARGS__, k, 0);                          \
        if ((parts) == AMX_HALF) continue;                \
        step(__VA_ARGS__, k, 1), step(__VA_ARGS__, k, 2); \
        step(__VA_ARGS__, k, 3), step(__VA_ARGS__, k, 4); \
        step(__VA_ARGS__, k, 5);                          \
    }

/* Two tiles of rows, a block of columns: three loads for two products; of floats ten for twelve. */
AMX_FN AMX_INLINE void amx_step_2x1(const amx_block *p, const int parts, int k, const int pass) {
    const amx_place at = amx_place_of(p, parts, k, pass);
    if (at.new_b) _tile_loadd(4, p->b[0] + at.b, AMX_LINE);
    if (p->fetch && at.first_b) amx_fetch(p->b[0] + at.b, parts);
    if (at.new_a) _tile_loadd(2, p->a[0] + at.a, p->a_row);
    _tile_dpbf16ps(0, 2, 4);
    if (at.last_a) _tile_zero(2);
    if (at.new_a) _tile_loadd(3, p->a[1] + at.a, p->a_row);
    _tile_dpbf16ps(1, 3, 4);
    if (at.last_a) _tile_zero(3);
    if (at.last_b) _tile_zero(4);
}

AMX_FN AMX_INLINE void amx_2x1(const amx_block *block, const int parts) {
    const amx_block own = *block, *const p = &own;
    AMX_BEGIN(0, p->c[0][0]);
    AMX_BEGIN(1, p->c[1][0]);
    AMX_ALL(parts, amx_step_2x1, p, parts)
    _tile_stored(0, p->c[0][0], p->c_row);
    _tile_stored(1, p->c[1][0], p->c_row);
}

/* One tile of rows, one to three blocks of columns. */
#define AMX_COLUMNS(i)                                                         \
    do {                                                                       \
        if (columns > 1 || at.new_b) _tile_loadd(4, p->b[i] + at.b, AMX_LINE); \
        if (p->fetch && at.first_b) amx_fetch(p->b[i] + at.b, parts);          \
        _tile_dpbf16ps(i, 3, 4);                                               \
        if (columns > 1 || at.last_b) _tile_zero(4);                           \
    } while (0)

AMX_FN AMX_INLINE void amx_step_1xn(const amx_block *p, const int parts, const int columns, int k, const int pass) {
    const amx_place at = amx_place_of(p, parts, k, pass);
    if (at.new_a) _tile_loadd(3, p->a[0] + at.a, p->a_row);
    AMX_COLUMNS(0);
    if (columns > 1) AMX_COLUMNS(1);
    if (columns > 2) AMX_COLUMNS(2);
    if (at.last_a) _tile_zero(3);
}

AMX_FN AMX_INLINE void amx_1xn(const amx_block *block, const int parts, const int columns) {
    const amx_block own = *block, *const p = &own;
    AMX_BEGIN(0, p->c[0][0]);
    if (columns > 1) AMX_BEGIN(1, p->c[0][1]);
    if (columns > 2) AMX_BEGIN(2, p->c[0][2]);
    AMX_ALL(parts, amx_step_1xn, p, parts, columns)
    _tile_stored(0, p->c[0][0], p->c_row);
    if (columns > 1) _tile_stored(1, p->c[0][1], p->c_row);
    if (columns > 2) _tile_stored(2, p->c[0][2], p->c_row);
}
#undef AMX_COLUMNS
#undef AMX_ALL
#undef AMX_BEGIN

/* Two tiles of rows and a block of columns, or one tile and `columns` blocks. */
AMX_FN AMX_INLINE void amx_multiply(const amx_block *block, const int parts, int tiles, int columns) {
    if (tiles == 2)
        amx_2x1(block, parts);
    else if (columns == 1)
        amx_1xn(block, parts, 1);
    else if (columns == 2)
        amx_1xn(block, parts, 2);
    else
        amx_1xn(block, parts, 3);
}

/* ----------------------------------------------------------------------------------------------------- packing -- */
/* to[j][i] = from[i][j] */
static inline void amx_transpose(uint32_t to[16][16], uint32_t from[16][16]) {
#if defined(__AVX512F__)
    __m512i r[16], s[16];
    for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_si512(from[i]);
    for (int i = 0; i < 16; i += 2) { /* 2 x 2 */
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) /* 4 x 4 within lanes of 128 bits: column 4 lane + j of rows i..i+3 in r[i + j] */
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm512_unpacklo_epi64(s[i + j], s[i + 2 + j]);
            r[i + 2 * j + 1] = _mm512_unpackhi_epi64(s[i + j], s[i + 2 + j]);
        }
    for (int j = 0; j < 4; j++) { /* lanes: rows 0..3, 4..7, 8..11, 12..15 side by side */
        const __m512i low0 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88),
                      low1 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        const __m512i high0 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd),
                      high1 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
        _mm512_storeu_si512(to[j], _mm512_shuffle_i32x4(low0, low1, 0x88));
        _mm512_storeu_si512(to[8 + j], _mm512_shuffle_i32x4(low0, low1, 0xdd));
        _mm512_storeu_si512(to[4 + j], _mm512_shuffle_i32x4(high0, high1, 0x88));
        _mm512_storeu_si512(to[12 + j], _mm512_shuffle_i32x4(high0, high1, 0xdd));
    }
#else
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) to[j][i] = from[i][j];
#endif
}

/* 32 floats, of which bf16 is taken part by part. */
typedef struct amx_floats {
#ifdef SLI_AMX_EMULATED
    float low[16], high[16];
#else
    __m512 low, high;
#endif
} amx_floats;

#ifdef SLI_AMX_EMULATED
AMX_INLINE amx_floats amx_floats_of(const float *low, const float *high) {
    amx_floats x;
    memcpy(x.low, low, sizeof x.low);
    memcpy(x.high, high, sizeof x.high);
    return x;
}
#else
/* Processors with AMX or AVX512_BF16 have an instruction that rounds, which takes denormal numbers for 0, as products do. */
BF16_FN AMX_INLINE __m512i amx_rounded(const amx_floats *x) {
    return (__m512i)_mm512_cvtne2ps_pbh(x->high, x->low);
}
AMX_INLINE amx_floats amx_floats_of(const float *low, const float *high) {
    return (amx_floats){_mm512_loadu_ps(low), _mm512_loadu_ps(high)};
}
AMX_INLINE __m512 amx_rest(__m512 x, __m256i rounded) {
    return _mm512_sub_ps(x, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16)));
}
#endif

/* What bf16 leaves of x, exactly. */
BF16_FN AMX_INLINE void amx_leave_rest(amx_floats *x) {
#ifdef SLI_AMX_EMULATED
    for (int i = 0; i < 16; i++) x->low[i] -= bf16_round(x->low[i]), x->high[i] -= bf16_round(x->high[i]);
#else
    const __m512i rounded = amx_rounded(x);
    x->low = amx_rest(x->low, _mm512_castsi512_si256(rounded));
    x->high = amx_rest(x->high, _mm512_extracti64x4_epi64(rounded, 1));
#endif
}

/* Rounded: to[p] = x[2 p], x[2 p + 1] of the 32 numbers low, high; */
BF16_FN AMX_INLINE void amx_pairs_along(uint32_t *to, const amx_floats *x) {
#ifdef SLI_AMX_EMULATED
    for (int p = 0; p < 8; p++) {
        to[p] = bf16_pair(x->low[2 * p], x->low[2 * p + 1]);
        to[8 + p] = bf16_pair(x->high[2 * p], x->high[2 * p + 1]);
    }
#else
    _mm512_storeu_si512(to, amx_rounded(x));
#endif
}

/* and to[i] = low[i], high[i]. */
BF16_FN AMX_INLINE void amx_pairs_across(uint32_t *to, const amx_floats *x) {
#ifdef SLI_AMX_EMULATED
    for (int i = 0; i < 16; i++) to[i] = bf16_pair(x->low[i], x->high[i]);
#else
    const __m512i halves =
        _mm512_setr_epi32(16 << 16 | 0, 17 << 16 | 1, 18 << 16 | 2, 19 << 16 | 3, 20 << 16 | 4, 21 << 16 | 5,
                          22 << 16 | 6, 23 << 16 | 7, 24 << 16 | 8, 25 << 16 | 9, 26 << 16 | 10, 27 << 16 | 11,
                          28 << 16 | 12, 29 << 16 | 13, 30 << 16 | 14, 31 << 16 | 15);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(halves, amx_rounded(x)));
#endif
}

/* The parts of 32 numbers, along: `next` bytes from part to part. */
BF16_FN AMX_INLINE void amx_split_along(char *to, ptrdiff_t next, const float *x, const int parts) {
    amx_floats left = amx_floats_of(x, x + 16);
    for (int part = 0; part < parts; part++) {
        if (part > 0) amx_leave_rest(&left);
        amx_pairs_along((uint32_t *)(void *)(to + part * next), &left);
    }
}

/* An operand row: the parts of k numbers of bf16 each, one part after the other, with zeros up to a multiple of 32; an odd number of lines,
 * to spread over the sets of L1. */
static inline size_t amx_operand_bytes(int k, int parts) {
    return (size_t)((amx_blocks(k) * parts) | 1) * AMX_LINE;
}

BF16_FN AMX_INLINE void amx_convert(void *operand, const float *from, int k, const int parts) {
    const ptrdiff_t part = (ptrdiff_t)amx_blocks(k) * AMX_LINE;
    char *to = operand;
    int i = 0;
    for (; i + AMX_K <= k; i += AMX_K, to += AMX_LINE) amx_split_along(to, part, from + i, parts);
    if (i == k) return;
    float last[AMX_K] = {0};
    memcpy(last, from + i, (size_t)(k - i) * sizeof *from);
    amx_split_along(to, part, last, parts);
}

/* Tiles, part after part, of line i (a row of a, a column of b) and k:  x[i * line + k * depth],  0 beyond `lines` and `count`.
 * `pairs_first` (b): [pair][line], else (a): [line][pair]. */
BF16_FN AMX_INLINE void amx_pack_tile(char *tile, const float *x, ptrdiff_t line, ptrdiff_t depth, int lines, int count,
                                      bool pairs_first, const int parts) {
    float padded[16][AMX_K];
    uint32_t words[AMX_FLOAT][16][16], turned[16][16];
    const bool square = depth != 1 && line != 1;
    if (lines < 16 || count < AMX_K || square) {
        memset(padded, 0, sizeof padded);
        for (int i = 0; i < lines && i < 16; i++)
            for (int k = 0; k < count && k < AMX_K; k++) padded[i][k] = x[i * line + k * depth];
        x = padded[0];
        line = AMX_K;
        depth = 1;
    }
    for (int j = 0; j < 16; j++) { /* lines, or pairs of k */
        const float *from = depth == 1 ? x + j * line : x + 2 * j * depth;
        amx_floats left = amx_floats_of(from, depth == 1 ? from + 16 : from + depth);
        for (int part = 0; part < parts; part++) {
            if (part > 0) amx_leave_rest(&left);
            if (depth == 1)
                amx_pairs_along(words[part][j], &left);
            else
                amx_pairs_across(words[part][j], &left);
        }
    }
    for (int part = 0; part < parts; part++, tile += AMX_TILE) {
        const bool turn = (depth == 1) == pairs_first;
        if (turn) amx_transpose(turned, words[part]);
        memcpy(tile, turn ? turned : words[part], AMX_TILE);
    }
}

/* Vector v of a panel, from k on. */
BF16_FN AMX_INLINE void amx_pack_panel(char *tile, const sli_panel_source *s, int v, int k, const int parts) {
    if (s->gap == 16) {
        amx_pack_tile(tile, s->valid[v] ? s->from[v] + k * s->k_stride : NULL, s->lane_stride, s->k_stride, s->valid[v],
                      s->k - k, true, parts);
        return;
    }
    float lines[16][AMX_K] = {{0}};
    for (int i = 0; i < 16; i++) {
        const float *const from = sli_panel_column(s, v * 16 + i);
        for (int j = 0; j < AMX_K && k + j < s->k && from; j++) lines[i][j] = from[(k + j) * s->k_stride];
    }
    amx_pack_tile(tile, lines[0], AMX_K, 1, 16, AMX_K, true, parts);
}

/* to[i] = low[i], high[i] */
static inline void amx_halves_across(uint32_t *to, const uint16_t *low, const uint16_t *high) {
#if defined(__AVX512F__)
    const __m512i lower = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)low)),
                  upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)high));
    _mm512_storeu_si512(to, _mm512_or_si512(lower, _mm512_slli_epi32(upper, 16)));
#else
    for (int i = 0; i < 16; i++) to[i] = (uint32_t)low[i] | (uint32_t)high[i] << 16;
#endif
}

/* sums[i] += both numbers of words[p][i], p upwards */
BF16_FN static inline void amx_sum_pairs(float *sums, uint32_t words[16][16]) {
#ifdef SLI_AMX_EMULATED
    for (int p = 0; p < 16; p++)
        for (int i = 0; i < 16; i++)
            sums[i] += bf16_value((uint16_t)words[p][i]) + bf16_value((uint16_t)(words[p][i] >> 16));
#else
    const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    __m512 sum = _mm512_loadu_ps(sums);
    for (int p = 0; p < 16; p++) sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(words[p]), ones);
    _mm512_storeu_ps(sums, sum);
#endif
}

/* amx_pack_tile for rows of a that are bf16 and lie across: x[i + k * depth], tile [line][pair]; and sums[16] += those over k. */
BF16_FN static inline void amx_turn_tile(uint32_t *tile, const uint16_t *x, ptrdiff_t depth, int lines, int count,
                                         float *sums) {
    uint16_t padded[AMX_K][16];
    uint32_t words[16][16], turned[16][16];
    if (lines < 16 || count < AMX_K) {
        memset(padded, 0, sizeof padded);
        for (int k = 0; k < count && k < AMX_K; k++)
            for (int i = 0; i < lines && i < 16; i++) padded[k][i] = x[i + k * depth];
        x = padded[0];
        depth = 16;
    }
    for (int p = 0; p < 16; p++) amx_halves_across(words[p], x + 2 * p * depth, x + (2 * p + 1) * depth);
    amx_sum_pairs(sums, words);
    amx_transpose(turned, words);
    memcpy(tile, turned, AMX_TILE);
}

#endif
