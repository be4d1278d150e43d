/* What stands before the text of a persistent kernel, for tests/cuda/waits:
 *     persist_defines PROBLEM cluster|grid|wave forward|backward    as planned for sm_90, without a GPU */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/persist_args.h"
#include "backend/cuda/persist_overlap.h"
#include "backend/cuda/step_layout.h"
#include "backend/cuda/wave_layout.h"
#include "cell/lstm.h"

/* What a step reads and writes of memory, as sli_persist_form has it: y is wanted, gradients of entering states are not. */
static int form_of(const sli_problem *p, bool backward) {
    const sli_step_shape s = sli_step_shape_of(p, 1);
    int form = PERSIST_HAS_Y;
    if (p->mask != SLI_MASK_NONE) form |= PERSIST_HAS_FLAGS;
    if (p->mask == SLI_MASK_LENGTHS && p->wave == 0) form |= PERSIST_HAS_LENGTHS;
    if (s.train && s.keep_v) form |= PERSIST_HAS_V;
    if (backward) return form | PERSIST_HAS_SUMS;
    if (s.train) form |= PERSIST_HAS_OPERAND | PERSIST_HAS_GATES | (s.lstm ? PERSIST_HAS_C : 0);
    return s.train && s.gru && s.own_h ? form | PERSIST_HAS_H : form;
}

static int options_of(const sli_problem *p) {
    return (p->zoneout_h > 0 ? CELL_ZONEOUT_H : 0) | (p->zoneout_c > 0 ? CELL_ZONEOUT_C : 0) |
           (p->mask != SLI_MASK_NONE || p->wave > 0 ? CELL_MASK : 0);
}

int main(int count, char **words) {
    sli_problem problem;
    sli_caps caps;
    sli_persist_geometry geometry;
    sli_why why = {""};
    char defines[SLI_PERSIST_DEFINES];
    if (count != 4 || sli_problem_parse(words[1], &problem) != SL_OK ||
        sli_cuda_device.caps("cuda:sm_90", 1, &caps) != SL_OK) {
        fprintf(stderr, "usage: persist_defines PROBLEM cluster|grid|wave forward|backward\n");
        return 2;
    }
    const bool backward = strcmp(words[3], "backward") == 0;
    if (strcmp(words[2], "wave") == 0) problem = sli_wave_whole(&problem);
    const sli_persist_kind kind = strcmp(words[2], "grid") == 0 ? SLI_PERSIST_KIND_GRID : SLI_PERSIST_KIND_CLUSTER;
    if (!sli_persist_choose(&problem, &caps, kind, backward, &geometry, &why)) {
        fprintf(stderr, "%s: %s\n", words[1], why.text);
        return 1;
    }
    if (!backward) sli_persist_place_inputs(&problem, &caps, &geometry);
    const sli_step_shape shape = sli_step_shape_of(&problem, 1);
    sli_persist_defines(&geometry, &shape, form_of(&problem, backward), options_of(&problem), CELL_ACT_TANH,
                        CELL_ACT_SIGMOID, defines, sizeof defines);
    fputs(defines, stdout);
    return 0;
}
