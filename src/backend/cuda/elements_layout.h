/* Scratch of the embedding's gradient, or what forward saves for it: positions are sorted by token, so that each row of the table is added up by one warp.
 * Plain C, compiled into both sides. */
#ifndef SLI_CUDA_ELEMENTS_LAYOUT_H
#define SLI_CUDA_ELEMENTS_LAYOUT_H

#include "backend/cuda/cuda.h"

enum {
    SLI_SORT_SMALL = 4096, /* at most so many positions are sorted in shared memory */
    SLI_SORT_TILE = 2048,  /* positions of a block otherwise */
    SLI_SORT_DIGITS = 256  /* values of a digit: 8 bits a pass */
};

/* Few positions are sorted with forward, into what it saves: offsets into that. Else offsets into scratch of backward: int32 tokens and uint32 rows, [positions] each; passes read buffer k % 2 and write the other.
 * counts: uint32 [SLI_SORT_DIGITS][tiles]. */
typedef struct sli_sort_layout {
    size_t positions, tiles;
    int passes; /* 0: small */
    size_t tokens[2], rows[2], counts;
    size_t bytes;
} sli_sort_layout;

static inline sli_sort_layout sli_sort_layout_of(size_t positions, int vocabulary) {
    sli_sort_layout layout;
    const size_t array = sli_round_up(positions * sizeof(int32_t), SLI_ALIGN);
    layout.positions = positions;
    layout.tiles = (positions + SLI_SORT_TILE - 1) / SLI_SORT_TILE;
    layout.passes = 0;
    layout.tokens[0] = 0;
    layout.rows[0] = array;
    layout.tokens[1] = layout.rows[1] = layout.counts = layout.bytes = 2 * array;
    if (positions <= SLI_SORT_SMALL) return layout;
    layout.passes = 1; /* of keys up to `vocabulary`, which tokens outside of it have */
    while (layout.passes < 4 && (uint32_t)vocabulary >> (8 * layout.passes)) layout.passes++;
    layout.rows[1] = 3 * array;
    layout.counts = 4 * array;
    layout.bytes = layout.counts + layout.tiles * SLI_SORT_DIGITS * sizeof(uint32_t);
    return layout;
}
/* Bytes that forward saves: of a plan's positions, and of all smaller calls. */
static inline size_t sli_sort_saved(size_t positions) {
    return 2 *
           sli_round_up((positions < SLI_SORT_SMALL ? positions : (size_t)SLI_SORT_SMALL) * sizeof(int32_t), SLI_ALIGN);
}
/* The buffer that holds the sorted positions. */
static inline int sli_sort_result(const sli_sort_layout *layout) {
    return layout->passes % 2;
}

/* Features of a part of a concat: equal shares where none are given. */
static inline int sli_merge_width(const sli_problem *p, int part) {
    return p->parts_units[part] > 0 ? p->parts_units[part] : p->units / p->parts;
}

#endif
