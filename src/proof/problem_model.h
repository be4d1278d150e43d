/* The model of one problem string. */
#ifndef SLI_PROBLEM_MODEL_H
#define SLI_PROBLEM_MODEL_H

#include "core/problem.h"

/* As sl_model_from_problem; with `states`, every recurrent layer takes its initial states from inputs of the model
 * ("rnn1_h0", "rnn1_c0"; backward direction "rnn1_back_h0"...), so that their gradients can be checked. */
sl_status sli_problem_model(const sl_allocator *allocator, const sli_problem *problem, bool states, sl_model **model,
                            sl_plan_options *options);
/* The last layer's y is all that the model of a recurrent problem gives, as where a loss follows: no state has a gradient. */
sl_status sli_problem_leave_states(sl_model *model, const sli_problem *problem);

#endif
