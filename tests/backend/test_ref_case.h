/* A reference kernel called directly, without plan or run: every tensor of a problem in buffers of exact size (so that a
 * sanitizer sees each step outside), filled at random, whole or cut into segments, with finite differences. */
#ifndef TEST_REF_CASE_H
#define TEST_REF_CASE_H

#include "backend/ref/ref.h"
#include "test.h"

enum { REF_MAX_SEGMENTS = 16 };

typedef struct ref_case {
    sli_problem problem; /* of the whole sequence */
    const sli_kernel *kernel;
    sli_scalars scalars;
    sli_metrics metrics;
    bool training, recompute;
    unsigned accumulate;
    uint64_t random;
    /* Elements; 0 = the op has no such tensor. A tensor with time has count / steps elements a step. */
    size_t in_count[SLI_MAX_IN], out_count[SLI_MAX_OUT], param_count[SLI_MAX_PARAM];
    bool in_time[SLI_MAX_IN], out_time[SLI_MAX_OUT];
    void *in[SLI_MAX_IN], *out[SLI_MAX_OUT], *param[SLI_MAX_PARAM];
    void *d_in[SLI_MAX_IN], *d_out[SLI_MAX_OUT], *d_param[SLI_MAX_PARAM]; /* d_out is given: random weights */
    int32_t *integers; /* tokens or labels [t][b]; in[] points here */
    int32_t *lengths;
    uint8_t *mask;
    void *saved[REF_MAX_SEGMENTS];
    int segment; /* steps of a segment; the last may be shorter */
} ref_case;

void ref_case_new(ref_case *test, const char *problem, uint64_t seed);
void ref_case_free(ref_case *test);
double ref_get(const ref_case *test, const void *tensor, size_t index);
void ref_set(const ref_case *test, void *tensor, size_t index, double value);
/* Processes the segments in order; clears metrics first. */
void ref_forward(ref_case *test);
/* After ref_forward: = every d_in, += every d_param (which is cleared first). */
void ref_backward(ref_case *test);
/* Every wanted gradient against central differences of sum(d_out * out), or of loss_scale * loss_sum; fails the running test with the
 * problem's text. Inputs are redrawn while a kink lies within a step. */
void ref_check_gradients(const char *problem, uint64_t seed, bool training);
/* Outputs, states and all gradients have the same bits in one piece and in segments of `segment` steps. */
void ref_check_segments(const char *problem, uint64_t seed, int segment);

#endif
