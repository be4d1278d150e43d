/* Learning-rate schedules. */
#include <math.h>

#include "train/training.h"

/* Linear from 0 (not included) over `warmup` steps, then half a cosine from the full rate to `minimum` at `total`:
 * lr = minimum + (base - minimum) * (1 + cos(pi * (step - warmup) / (total - warmup))) / 2. */
static double cosine(const sl_schedule *s, double base, const sli_schedule_point *at) {
    int64_t total = s->total > 0 ? s->total : at->total_steps;
    if (at->step < s->warmup) return base * (double)(at->step + 1) / (double)s->warmup;
    if (at->step >= total) return s->minimum;
    double part = (double)(at->step - s->warmup) / (double)(total - s->warmup);
    return s->minimum + (base - s->minimum) * 0.5 * (1 + cos(3.14159265358979323846 * part));
}

double sli_schedule_rate(const sl_schedule *schedule, double learning_rate, const sli_schedule_point *point) {
    double rate = learning_rate;
    switch (schedule->kind) {
    case SL_SCHEDULE_CONSTANT:
        return rate;
    case SL_SCHEDULE_STEP:
        rate *= pow(schedule->factor, (double)(point->step / schedule->every));
        break;
    case SL_SCHEDULE_EXPONENTIAL:
        rate *= pow(schedule->factor, (double)point->step / (double)schedule->every);
        break;
    case SL_SCHEDULE_COSINE:
        return cosine(schedule, learning_rate, point);
    case SL_SCHEDULE_EPOCH_DECAY:
        /* The TF PTB tutorial's lr_decay ** max(epoch + 1 - max_epoch, 0), epoch from 0. */
        if (point->epoch + 1 > schedule->hold) rate *= pow(schedule->factor, point->epoch + 1 - schedule->hold);
        break;
    case SL_SCHEDULE_PLATEAU:
        rate /= pow(schedule->factor, point->plateaus);
        break;
    }
    return rate < schedule->minimum ? schedule->minimum : rate;
}
