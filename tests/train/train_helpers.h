/* A small text, small models and a recorder of events, shared by the tests of training. */
#ifndef TRAIN_HELPERS_H
#define TRAIN_HELPERS_H

#include "test.h"

enum { HELPER_TOKENS = 420, HELPER_VOCABULARY = 7 };
/* Tokens with something to learn: a Markov chain of HELPER_VOCABULARY tokens. */
const int32_t *helper_tokens(void);
sl_dataset helper_data(size_t count);

/* tokens -> embedding 6 -> dropout -> LSTM 8 -> dropout -> GRU 8 -> dense; without dropout if rate is 0. */
sl_model *helper_model(double dropout);
/* batch 3, T 5, Adam, seed 5, softmax, global-norm clip. */
sl_training helper_training(int epochs);
sl_trainer *helper_trainer(const sl_model *model, const sl_training *training, const sl_dataset *data,
                           const char *path);
/* "FOLDER/name" of a folder that lives as long as the test. */
const char *helper_path(const char *name);

/* What fit said. Stops after step `stop_at` (0: never). */
typedef struct helper_record {
    int stop_at;
    sl_answer answer; /* at stop_at; SL_CONTINUE means SL_STOP_SAVING */
    int steps, epochs, evaluations, checkpoints, early_stops, stops;
    double losses[600], rates[600], valid[100];
    sl_progress last;
} helper_record;
sl_answer helper_listen(void *record, const sl_progress *progress);

/* Steps that a trainer has under way on test_device: one on a CPU, which works at once, else two (sl_run_depth). A request to
 * stop is obeyed after them. */
int helper_depth(void);
/* Whether two trainers hold the same parameters, bit for bit. */
bool helper_same_params(sl_trainer *a, sl_trainer *b);

#endif
