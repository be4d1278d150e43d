/* What a panel is packed from, for tests of panels. */
#ifndef PANEL_SOURCE_H
#define PANEL_SOURCE_H

#include "backend/cpu/isa/panel.h"

/* Columns behind `valid` of the last vector of the last panel are padding. The source is read across (k_stride 1) or down
 * (lane_stride 1); across, `close`, as that of four gates that are less than a vector each. */
static inline sli_panel_source panel_source(const sli_panel_ops *ops, int k, int vectors, int columns, int valid,
                                            const float *across, const float *down, int panel, bool close) {
    const int width = vectors * ops->lanes, end = columns - ops->lanes + valid;
    sli_panel_source source = {.k = k, .vectors = vectors, .lane_stride = across ? k : 1};
    source.k_stride = across ? 1 : columns;
    source.gap = across && close ? (width + 3) / 4 : ops->lanes;
    for (int v = 0; v < 4; v++) {
        const int c = panel * width + v * source.gap,
                  left = (panel + 1) * width < end ? (panel + 1) * width - c : end - c;
        source.valid[v] = left <= 0 ? 0 : left < source.gap ? left : source.gap;
        source.from[v] = source.valid[v] == 0 ? NULL : across ? across + c * k : down + c;
    }
    return source;
}

#endif
