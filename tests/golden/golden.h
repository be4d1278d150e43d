/* Reads the golden files (tests/golden/golden.py says how they are laid out) and compares cases with them. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include "../test.h"

typedef struct golden_case {
    const sl_file *file;
    const char *name, *words; /* "lstm_bi", "cell=lstm batch=3 ..." */
    sl_dtype dtype;           /* SL_F64 or SL_F32 */
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    sl_run *run;
} golden_case;

/* The file tests/data/golden/NAME; ends the test if it cannot be read. */
sl_file *golden_open(const char *name);

/* `key=value` words: false / fallback where the key is absent. */
bool golden_is(const char *words, const char *key, const char *value);
double golden_number(const char *words, const char *key, double fallback);
/* Copies the value, cut to `capacity`; "" where absent. */
void golden_word(const char *words, const char *key, char *value, size_t capacity);

/* Tensor NAME/KIND/TENSOR: a malloc'd array of double, or NULL if the file has none. */
double *golden_values(const golden_case *c, const char *kind, const char *tensor, size_t *count);
int32_t *golden_integers(const golden_case *c, const char *kind, const char *tensor, size_t *count);
/* A malloc'd array in the plan's type, as sl_batch wants it: float, or double in f64 cases. */
void *golden_native(const golden_case *c, const double *values, size_t count);
size_t golden_bytes(const golden_case *c); /* of one element of those */

/* Fails, naming case, tensor and index, where |got - expected| is too large for the type; f32_factor widens f32's bound. */
void golden_compare(const golden_case *c, const char *what, const double *got, const double *expected, size_t count);

/* Params of c->plan from NAME/param/...; each must be there, and there must be no other. */
void golden_load_params(golden_case *c);
void golden_release(golden_case *c);

/* Every recurrent case whose name starts with `prefix`, in double and in float. Fails if there is none. */
void golden_recurrent_cases(const char *file_name, const char *prefix);

/* Ten training losses of c->model, one run per variant ("sgd_none_mean"...) that the file has for the case. `loss` is the
 * plan's; target_ints: labels, else floats; tokens: input is int32. */
typedef struct golden_training {
    sl_loss loss;
    bool labels, tokens;
} golden_training;
void golden_losses(golden_case *c, const golden_training *training);

#endif
