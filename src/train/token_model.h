/* Models as training and generation need them: a private copy, and what its input and output look like. */
#ifndef SLI_TOKEN_MODEL_H
#define SLI_TOKEN_MODEL_H

#include "core/model.h"

/* What recurrent layers of a copy do with states: as the model says; carry them, so that a token stream may be read piece by piece; or begin every
 * call from zeros, as rows of arrays do, which are independent of those that were there before. */
typedef enum sli_states { SLI_STATES_AS_GIVEN, SLI_STATES_CARRIED, SLI_STATES_FRESH } sli_states;
/* A copy of the description. Carried: SL_ERR_INPUT for a layer that must see the future (bidirectional, go_backwards). */
sl_status sli_model_copy(const sl_model *model, sli_states states, sl_model **copy);

/* The one input and the first output. SL_ERR_INPUT if the model has another number of inputs. */
typedef struct sli_ends {
    sli_shape input, output;
} sli_ends;
sl_status sli_model_ends(const sl_model *model, sli_ends *ends);
/* SL_ERR_INPUT if the loss works on logits and the layer that gives the output applies an activation of its own. */
sl_status sli_check_logits(const sl_model *model, sl_loss loss);
/* Also checks that tokens go in and logits of at least as many classes come out at every step: a language model. */
sl_status sli_model_token_ends(const sl_model *model, sli_ends *ends);
/* Every token in [0, vocabulary). */
sl_status sli_check_tokens(const int32_t *tokens, size_t count, int vocabulary);

#endif
