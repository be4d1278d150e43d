#include "backend/cpu/sums.h"

#include <string.h>
#include "backend/cpu/one_hot.h"

static const void *param(const sli_sums *s, int k) {
    return s->call->param[s->part * SLI_PART_PARAMS + k];
}

static float *d_param(const sli_sums *s, int k) {
    return s->call->d_param[s->part * SLI_PART_PARAMS + k];
}

/* a of a product = dz from number `at` on. */
static void multiply_dz(const sli_sums *s, size_t at, sli_gemm *g) {
    g->a = s->dz ? s->dz + at : NULL;
    g->a_half = s->dz_half ? s->dz_half + at : NULL;
}

/* d x = or += dz kernel, piece by piece */
static sli_job input_job(const sli_sums *s) {
    const sli_problem *p = &s->call->problem;
    sli_job job = {.parts = s->input[1].count > 0 ? 2 : 1};
    for (int i = 0; i < job.parts; i++) {
        job.part[i] = (sli_gemm){.m = s->rows,
                                 .n = p->inputs,
                                 .k = s->input[i].count * p->units,
                                 .am = s->ld,
                                 .ak = 1,
                                 .b = (const float *)param(s, SLI_RNN_KERNEL) +
                                      (size_t)s->input[i].to * (size_t)p->units * (size_t)p->inputs,
                                 .bk = p->inputs,
                                 .bn = 1,
                                 .c = s->dx,
                                 .b_packed = s->kernel[i],
                                 .ldc = p->inputs,
                                 .add = i > 0 || s->add_dx};
        multiply_dz(s, (size_t)(s->input[i].from * p->units), &job.part[i]);
    }
    return job;
}

/* d kernel += dz^T x, of the gates `g` */
static sli_job kernel_job(const sli_sums *s, sli_gates g) {
    const sli_problem *p = &s->call->problem;
    sli_job job = {.parts = 1};
    job.part[0] = (sli_gemm){.m = g.count * p->units,
                             .n = p->inputs,
                             .k = s->rows,
                             .am = 1,
                             .ak = s->ld,
                             .b = s->x,
                             .bk = p->inputs,
                             .bn = 1,
                             .c = d_param(s, SLI_RNN_KERNEL) + (size_t)g.to * (size_t)p->units * (size_t)p->inputs,
                             .ldc = p->inputs,
                             .add = true};
    multiply_dz(s, (size_t)(g.from * p->units), &job.part[0]);
    return job;
}

/* d R += dz^T h', of recurrent[i] */
static sli_job recurrent_job(const sli_sums *s, int i) {
    const sli_problem *p = &s->call->problem;
    const sli_gates g = s->recurrent[i];
    const bool between = i > 0 && s->between;
    const int outputs = sli_problem_output(p);
    sli_job job = {.parts = 1};
    job.part[0] = (sli_gemm){.m = g.count * p->units,
                             .n = outputs,
                             .k = s->rows,
                             .am = 1,
                             .ak = s->ld,
                             .b = between ? s->between : s->h,
                             .bk = between ? p->units : s->ld_h,
                             .bn = 1,
                             .c = d_param(s, SLI_RNN_RECURRENT) + (size_t)g.to * (size_t)p->units * (size_t)outputs,
                             .ldc = outputs,
                             .add = true};
    multiply_dz(s, (size_t)(g.from * p->units), &job.part[0]);
    return job;
}

/* d W_p += dq^T m */
static sli_job projection_job(const sli_sums *s) {
    const sli_problem *p = &s->call->problem;
    sli_job job = {.parts = 1};
    job.part[0] = (sli_gemm){.m = p->projection,
                             .n = p->units,
                             .k = s->rows,
                             .a = s->dq,
                             .am = 1,
                             .ak = p->projection,
                             .b = s->between,
                             .bk = p->units,
                             .bn = 1,
                             .c = d_param(s, SLI_RNN_PROJECTION),
                             .ldc = p->units,
                             .add = true};
    return job;
}

/* A list of jobs that grows. */
typedef struct job_list {
    sli_job jobs[SLI_JOBS_MAX];
    int count;
} job_list;

/* d bias += column sums of dz, of the gates `g`: by the job, NULL: none, that packs those gates, where packing sums. */
static void add_bias(const sli_sums *s, job_list *list, sli_job *packs, sli_gates g, float *to0, float *to1) {
    const int units = s->call->problem.units;
    float *const to[2] = {to0 ? to0 + g.to * units : NULL, to1 ? to1 + g.to * units : NULL};
    if (!to0 && !to1) return;
    const bool along = s->ld == 1; /* one unit: dz^T lies as dz does, and may not be packed */
    if (!packs || !sli_cpu_packs(s->call) || along) {
        packs = &list->jobs[list->count++];
        *packs = (sli_job){.ld = s->ld, .rows = s->rows, .columns = g.count * units};
        if (s->dz_half)
            packs->from_half = s->dz_half + g.from * units;
        else
            packs->from = s->dz + g.from * units;
        memcpy(packs->to, to, sizeof to);
        return;
    }
    memcpy(packs->sums, to, sizeof to);
}

static sli_job *add_job(job_list *list, sli_job job) {
    list->jobs[list->count] = job;
    return &list->jobs[list->count++];
}

/* The jobs of input[i] and recurrent[i], one after the other: of the same gates they pack dz once. */
static void add_gates(const sli_sums *s, job_list *list, int i, bool kernel, bool recurrent) {
    const sli_gates of_input = s->input[i], of_recurrent = s->recurrent[i];
    const bool same = of_input.count == of_recurrent.count && of_input.from == of_recurrent.from;
    float *bias = d_param(s, SLI_RNN_BIAS), *recurrent_bias = d_param(s, SLI_RNN_RECURRENT_BIAS);
    sli_job *in = kernel && of_input.count > 0 ? add_job(list, kernel_job(s, of_input)) : NULL;
    sli_job *back = recurrent && of_recurrent.count > 0 ? add_job(list, recurrent_job(s, i)) : NULL;
    if (same && in && back) in->same_a = true;
    if (same && of_input.count > 0) add_bias(s, list, in ? in : back, of_input, bias, recurrent_bias);
    if (!same && of_input.count > 0) add_bias(s, list, in, of_input, bias, NULL);
    if (!same && of_recurrent.count > 0) add_bias(s, list, back, of_recurrent, recurrent_bias, NULL);
}

void sli_sums_backward(const sli_sums *s) {
    job_list list = {.count = 0};
    const bool kernel = d_param(s, SLI_RNN_KERNEL) && !sli_one_hot_kernel(s), recurrent = d_param(s, SLI_RNN_RECURRENT);
    if (s->dx) add_job(&list, input_job(s));
    for (int i = 0; i < 2; i++) add_gates(s, &list, i, kernel, recurrent);
    if (s->dq && d_param(s, SLI_RNN_PROJECTION)) add_job(&list, projection_job(s));
    sli_cpu_jobs(s->call, list.jobs, list.count);
}

void sli_sums_inputs(const sli_sums *s) {
    sli_job job = input_job(s);
    sli_cpu_jobs(s->call, &job, 1);
}

size_t sli_sums_packed_bytes(const sli_problem *p, int count) {
    return count > 0 ? sli_cpu_packed_b_bytes(p->dtype, p->inputs, count * p->units) : 0;
}

void sli_sums_pack(const sli_sums *s, int i, void *packed) {
    const sli_job job = input_job(s);
    if (i < job.parts) sli_cpu_pack_b(s->call, &job.part[i], packed);
}

void sli_state_load(float *to, const float *from, size_t count) {
    if (from)
        memcpy(to, from, count * sizeof *to);
    else
        memset(to, 0, count * sizeof *to);
}

void sli_state_store(const sli_call *call, int slot, const float *from, size_t count) {
    float *to = call->d_in[slot];
    if (!to) return;
    if (call->accumulate >> slot & 1)
        for (size_t i = 0; i < count; i++) to[i] += from[i];
    else
        memcpy(to, from, count * sizeof *to);
}
