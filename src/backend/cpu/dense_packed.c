/* cpu:i8 and cpu:bf16: dense layers for inference with weights that were rounded and packed once: y = act(x kernel^T + bias), x
 * rounded row by row. What is rounded how: isa/panel_i8.c, isa/panel_bf16.c. */
#include <stdio.h>
#include "backend/cpu/panel_gemm.h"
#include "backend/cpu/rows.h"

static void pack(const sli_call *call) {
    sli_panel_gemm_pack(call->threads, sli_cpu_panels_of(call), call->problem.units, call->problem.inputs,
                        call->param[SLI_DENSE_KERNEL], call->packed);
}

/* Rows whose operands are there at a time: of a batch and steps there may be more than 2^31. */
static int piece_rows(size_t rows) {
    enum { MOST = 1 << 16 };
    return rows < MOST ? (int)rows : MOST;
}

static void forward(const sli_call *call) {
    const sli_problem *p = &call->problem;
    const size_t rows = sli_cpu_rows(p), I = (size_t)p->inputs, H = (size_t)p->units;
    sli_panel_gemm g = {.ops = sli_cpu_panels_of(call),
                        .n = p->units,
                        .k = p->inputs,
                        .w = call->packed,
                        .bias = call->param[SLI_DENSE_BIAS],
                        .act = p->act == SL_ACT_LINEAR ? 0 : (int)p->act,
                        .operands = call->scratch};
    for (size_t row = 0; row < rows; row += (size_t)g.rows) {
        g.rows = piece_rows(rows - row);
        g.x = (const float *)call->in[SLI_DENSE_X] + row * I;
        g.y = (float *)call->out[SLI_DENSE_Y] + row * H;
        sli_panel_gemm_run(call, &g);
    }
}

static bool i8_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    NEED(p->dtype == SL_I8, "cpu:i8 computes i8, not %s", sli_dtype_name(p->dtype));
    NEED(!p->train, "8 bits are for inference: gradients of rounded weights are 0 almost everywhere");
    NEED(p->inputs <= SLI_PANEL_I8_MOST, "sums of %d products of 8 bits may not fit into 32 bits, %d do", p->inputs,
         SLI_PANEL_I8_MOST);
    return true;
}

static bool bf16_eligible(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    (void)caps;
    NEED(p->dtype == SL_BF16, "cpu:bf16 computes bf16, not %s", sli_dtype_name(p->dtype));
    NEED(!p->train, "cpu:bf16 is for inference, cpu:gemm trains");
    return true;
}

static void cost(const sli_problem *p, const sli_caps *caps, sli_cost *cost) {
    (void)caps;
    const double rows = (double)sli_cpu_rows(p), I = p->inputs, H = p->units;
    *cost = (sli_cost){.flops = 2 * rows * I * H, .bytes = 4 * rows * (I + H) + I * H * (p->dtype == SL_I8 ? 1 : 2)};
}

static void book(const sli_problem *p, const sli_caps *caps, int chunk, sli_booking *booking) {
    (void)chunk;
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    const sli_panel_ops *ops = sli_cpu_panels(&cpu, p);
    booking->packed = sli_panel_gemm_packed(ops, p->units, p->inputs);
    booking->scratch_forward = sli_panel_gemm_operands(ops, piece_rows(sli_cpu_rows(p)), p->inputs);
}

static void describe(const sli_problem *p, const sli_caps *caps, char *text, size_t capacity) {
    sli_cpu cpu;
    sli_cpu_engine(caps->isa, false, &cpu);
    const sli_panel_ops *ops = sli_cpu_panels(&cpu, p);
    snprintf(text, capacity, "panels of %s, %d lanes", ops->name, ops->lanes);
}

#define PACKED_ROW(NAME, ELIGIBLE)                                                                                    \
    {                                                                                                                 \
        .name = NAME, .op = SLI_OP_DENSE, .device = SLI_DEVICE_CPU, .eligible = ELIGIBLE, .cost = cost, .book = book, \
        .describe = describe, .pack = pack, .forward = forward                                                        \
    }
const sli_kernel sli_cpu_dense_i8 = PACKED_ROW("cpu:i8", i8_eligible);
const sli_kernel sli_cpu_dense_bf16 = PACKED_ROW("cpu:bf16", bf16_eligible);
