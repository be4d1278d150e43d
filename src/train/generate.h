/* Sampling from a language model, token by token. */
#ifndef SLI_GENERATE_H
#define SLI_GENERATE_H

#include "core/memory.h"

sl_status sli_generator_new(const sl_file *file, const sl_plan_options *options, const sl_sampling *sampling,
                            sl_generator **generator);
void sli_generator_free(sl_generator *generator);
sl_status sli_generator_feed(sl_generator *generator, int32_t token);
sl_status sli_generator_next(sl_generator *generator, int32_t *token);

/* A candidate of a draw. */
typedef struct sli_candidate {
    double weight; /* not normalised */
    int token;
} sli_candidate;
/* Draws from softmax(logits / temperature), cut to the top_k likeliest and then to the smallest set of probability top_p;
 * `uniform` in (0, 1) decides. temperature 0: the likeliest. Ties: the lower token first. `room` has `count` elements. -1 if
 * a logit is a NaN or +infinity, or all are -infinity. */
int sli_sample(const float *logits, int count, const sl_sampling *sampling, double uniform, sli_candidate *room);

#endif
