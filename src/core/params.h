/* Parameters, optimizer slots and packed copies: one block of device memory, shared by runs.
 *     [parameters][slot 0]...[slot n][packed copies][loss scaling], each array laid out by sli_param_place.offset */
#ifndef SLI_PARAMS_H
#define SLI_PARAMS_H

#include <pthread.h>

#include "plan.h"

struct sl_params {
    const sl_plan *plan;
    sl_allocator allocator;
    sli_queue *queue;
    pthread_mutex_t lock;   /* of the queue, for sl_params_get from several threads */
    char *block;            /* device memory */
    double optimizer_steps; /* done so far: Adam's bias correction counts from it */
    char **bound;           /* [param_count] memory of another library instead (sluice_interop.h); NULL until used */
    int bindings;           /* counts changes of `bound`: what was recorded before one is void */
};

enum { SLI_PARAMS_PIECE = 16384 };
/* values[count] of a parameter, or of its gradient, that lie on the device; at most SLI_PARAMS_PIECE unless the plan computes f64. */
sl_status sli_params_download(const sl_plan *plan, sli_queue *queue, const char *from, double *values, size_t count);
/* The other way, at most as many, of plans that do not compute f64. */
sl_status sli_params_upload(const sl_params *params, char *to, const double *values, size_t count);
/* Device address of parameter `index` (slot < 0) or of its part of a slot array. */
char *sli_params_at(const sl_params *params, int slot, int index);
bool sli_params_any_bound(const sl_params *params);
/* Initialises everything; uniform_scale > 0: every parameter U(-scale, scale) instead, then forget biases are set. */
sl_status sli_params_init(sl_params *params, uint64_t seed, double uniform_scale);
/* SL_ERR_USAGE, said of `caller`, unless a plan of `model` has just these parameters: a file of both could not be used. */
sl_status sli_params_check_model(const sl_params *params, const sl_model *model, const char *caller);
/* Optimizer slots, for checkpoints; names "momentum", "m", "v". */
int sli_params_slot_count(const sl_params *params);
const char *sli_params_slot_name(const sl_params *params, int slot);
sl_status sli_params_slot_get(sl_params *params, int slot, const char *name, double *values, size_t count);
sl_status sli_params_slot_set(sl_params *params, int slot, const char *name, const double *values, size_t count);
double sli_params_optimizer_steps(const sl_params *params);
void sli_params_set_optimizer_steps(sl_params *params, double steps);
/* Rewrites the packed copies that depend on parameter `index` (-1: all) through `queue`. */
sl_status sli_params_pack(sl_params *params, sli_queue *queue, int index);
/* All, but for what the optimizer has written. */
sl_status sli_params_pack_updated(sl_params *params, sli_queue *queue);
/* Of a call without parameters: what the step's pack needs beside its problem, of parameters the elements [first, end) alone. */
void sli_params_set_pack(const sl_params *params, const sli_step *step, size_t first, size_t end, sli_call *call);
char *sli_params_packed(const sl_params *params); /* device address of the packed copies */
/* Loss scaling in device memory; NULL unless sli_plan_is_scaled. */
sli_scaling *sli_params_scaling_at(const sl_params *params);
/* For checkpoints. SL_ERR_USAGE where there is none. */
sl_status sli_params_scaling_get(sl_params *params, sli_scaling *scaling);
sl_status sli_params_scaling_set(sl_params *params, const sli_scaling *scaling);

/* src/core/initialisers.c: values[rows*columns] of one parameter; threads may be NULL, their number changes no bit. */
void sli_initialise(const sli_param *param, int index, uint64_t seed, sli_threads *threads, double *values);
/* Elements [first, first + count), so that a large table needs no copy of itself. Orthogonal matrices need all of it. */
void sli_initialise_part(const sli_param *param, int index, uint64_t seed, size_t first, size_t count, double *values);
bool sli_initialise_needs_all(const sli_param *param);

/* src/core/orthogonal.c: of values [rows][columns] the shorter side's vectors become orthonormal, in order; each spans with those
 * before it what it spanned before. */
void sli_orthonormalise(sli_threads *threads, double *values, size_t rows, size_t columns);

#endif
