/* What a panel is packed from, for tests of panels. */
#ifndef PANEL_SOURCE_H
#define PANEL_SOURCE_H

#include "backend/cpu/isa/panel.h"

/* Panels of `vectors` vectors, `columns` in all, of which those behind `valid` of the last vector are padding. Of each panel `groups` of
 * `gap` columns have weights: one vector each, or, read across by every third number of rows, of three or four gates that lie close, with
 * padding behind them for an odd number of vectors. */
typedef struct panel_shape {
    int k, lanes, vectors, columns, valid, groups, gap;
} panel_shape;

static inline panel_shape panel_shape_of(const sli_panel_ops *ops, int k, int vectors, int panels, int valid, int rows,
                                         bool across) {
    const int lanes = ops->lanes, width = vectors * lanes, gates = 3 + rows / 3 / 2 % 2;
    const int gap = width / gates - vectors % 2;
    panel_shape s = {k, lanes, vectors, panels * width, valid, vectors, lanes};
    if (!across || rows % 3 != 0 || gap < 1 || gap > lanes) return s;
    s.groups = gates;
    s.gap = gap;
    return s;
}

static inline bool panel_pads(const panel_shape *s, int column) {
    return column >= s->columns - s->lanes + s->valid || column % (s->vectors * s->lanes) >= s->groups * s->gap;
}

/* Read across (k_stride 1), or, `across` NULL, down (lane_stride 1). */
static inline sli_panel_source panel_source(const panel_shape *s, const float *across, const float *down, int panel) {
    const int first = panel * s->vectors * s->lanes, end = s->columns - s->lanes + s->valid;
    sli_panel_source source = {.k = s->k, .vectors = s->vectors, .gap = s->gap, .lane_stride = across ? s->k : 1};
    source.k_stride = across ? 1 : s->columns;
    for (int v = 0; v < s->groups; v++) {
        const int c = first + v * s->gap, left = end - c;
        source.valid[v] = left <= 0 ? 0 : left < s->gap ? left : s->gap;
        source.from[v] = source.valid[v] == 0 ? NULL : across ? across + c * s->k : down + c;
    }
    return source;
}

#endif
