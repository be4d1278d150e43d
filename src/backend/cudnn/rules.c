/* What cuDNN's recurrent kernels compute, rule by rule, in plain C. On a real GPU cuDNN itself is asked afterwards
 * (sli_cudnn_plugin.probe).
 *
 * What differs from the library's own rows where a cuDNN row is taken: in bf16 and f16 cuDNN keeps x, h, c and their gradients
 * at the borders of a call in 16 bits (c is f32 in the other rows), and how it rounds between steps is its own affair.
 *
 * Bits from run to run: NVIDIA's release notes know one exception for recurrent calls, cuBLAS inside cuDNN choosing between
 * workspaces of two sizes when several streams share a handle. Every queue has a handle of its own here; what cuDNN does on streams
 * inside a call is fixed by CUBLAS_WORKSPACE_CONFIG=:4096:8. The tests compare two runs to the bit. */
#include "backend/cudnn/rules.h"

enum {
    MAX_STEPS = 65535, /* cuDNN 9 answers NOT_SUPPORTED beyond */
    /* Persistent dynamic kernels are compiled for a size at the first call, which takes seconds, and only then does cuDNN say
     * whether it can: they are offered where it does, for every way in which it may cut the matrices. */
    DYNAMIC_UNITS = 128,
    DYNAMIC_MOST = 768,
    /* The persistent static kernels of tensor cores take units by eights; LSTMs of an odd number of eights give wrong gradients
     * of one row: NaN, or other bits each time. On an H200, 2026-11-22, f16, two to three seeds: 15 of 21 such sizes of 8 to 1160
     * units, all from 136 on; none of 10 with an even number of eights or no whole one, no RNN and GRU, nothing in f32 and tf32. A plan of
     * more rows may have a call of one. Of the small-H kernels in f16 the problems of proofs have one LSTM of an odd number of eights, two layers
     * of 40 units: the second layer's outputs are wrong in inference, the same wrong numbers on an H100 in two sessions (2026-11-24 and 25); none of
     * 119 others is. */
    EIGHT = 8
};

/* Units up to which the persistent static kernels go: [rnn]; and the small-H ones: [rnn][training]. */
static const int static_units[2] = {1536, 2560};
static const int small_units[2][2] = {{192, 128}, {384, 256}};

static bool persistent(sli_cudnn_algo algo) {
    return algo != SLI_CUDNN_STANDARD;
}

static bool there(const sli_caps *caps, sli_why *why) {
    if (!caps->invented && !sli_cudnn_get(why)) return false;
    NEED(caps->cudnn > 0, "cuDNN is not there");
    NEED(caps->cudnn >= 90000 && caps->cudnn < 100000, "cuDNN %d.%d was found, 9 is needed", caps->cudnn / 10000,
         caps->cudnn / 100 % 100);
    return true;
}

static bool cell_fits(const sli_problem *p, sli_why *why) {
    bool tanh = p->act == SL_ACT_DEFAULT || p->act == SL_ACT_TANH;
    bool sigmoid = p->recurrent_act == SL_ACT_DEFAULT || p->recurrent_act == SL_ACT_SIGMOID;
    if (p->op == SLI_OP_RNN)
        NEED(tanh || p->act == SL_ACT_RELU, "activation %s: cuDNN's simple RNN has tanh and relu",
             sli_activation_name(p->act));
    else {
        NEED(tanh, "activation %s: cuDNN's cells have tanh only", sli_activation_name(p->act));
        NEED(sigmoid, "recurrent activation %s: cuDNN's gates have sigmoid only",
             sli_activation_name(p->recurrent_act));
    }
    NEED(!p->reset_before, "GRU with reset before the product: cuDNN's GRU resets after it");
    NEED(!p->peephole, "cuDNN's LSTM has no peepholes");
    NEED(!(p->cell_clip > 0), "cell clip %g: cuDNN clips c where a step reads it and hands it on unclipped",
         p->cell_clip);
    NEED(!(p->recurrent_dropout > 0 && p->train), "recurrent dropout %g: cuDNN has none", p->recurrent_dropout);
    NEED(!(p->zoneout_h > 0) && !(p->zoneout_c > 0), "zoneout: cuDNN has none");
    return true;
}

static bool shape_fits(const sli_problem *p, sli_why *why) {
    NEED(sli_cudnn_parts(p) <= SLI_MAX_PARTS, "%d layers of %d directions: at most %d parts go into one call",
         p->layers, sli_cudnn_directions(p), SLI_MAX_PARTS);
    NEED(!p->bidirectional || p->direction_merge == SL_BI_CONCAT || p->direction_merge == SL_UNIDIRECTIONAL,
         "both directions are merged by sum, mul or ave: cuDNN concatenates them");
    NEED(!p->reverse, "runs from the last step to the first: cuDNN does so only beside a forward direction");
    NEED(p->steps <= MAX_STEPS, "%d steps: cuDNN takes at most %d in one call", p->steps, MAX_STEPS);
    NEED(p->projection <= 0 || p->projection < p->units, "projection of %d units to %d: cuDNN projects to fewer only",
         p->units, p->projection);
    NEED(!(p->dropout > 0 && p->train && p->layers > 1),
         "dropout %g inside a call of %d layers: cuDNN draws its own masks", p->dropout, p->layers);
    return true;
}

static bool mask_fits(const sli_problem *p, const sli_caps *caps, sli_why *why) {
    NEED(p->mask != SLI_MASK_HOLES, "a mask with holes: cuDNN takes one length a row");
    NEED(p->mask != SLI_MASK_LEFT, "a mask on the left: cuDNN takes one length a row");
    NEED(p->mask != SLI_MASK_RIGHT, "a mask given step by step: cuDNN takes one length a row");
    NEED(!p->masked_repeat || p->mask == SLI_MASK_NONE, "masked steps repeat the last output: cuDNN fills with zeros");
    NEED(p->mask == SLI_MASK_NONE || !caps->graphs,
         "lengths in a recorded step: cuDNN reads them from host memory, a CUDA graph would replay the first ones");
    return true;
}

static bool persistent_fits(const sli_problem *p, sli_cudnn_algo algo, sli_why *why) {
    NEED(p->dtype != SL_BF16, "bf16: cuDNN 9 has no persistent kernels for it");
    NEED(p->projection <= 0, "projection to %d: only cudnn:standard has it", p->projection);
    NEED(p->mask == SLI_MASK_NONE, "lengths: only cudnn:standard takes rows of different lengths");
    const bool rnn = p->op == SLI_OP_RNN;
    const bool wrong = p->op == SLI_OP_LSTM && p->dtype == SL_F16 && p->units % (2 * EIGHT) == EIGHT;
    if (algo == SLI_CUDNN_PERSIST_STATIC) {
        NEED(p->units <= static_units[rnn], "%d units: cuDNN's persistent static kernels go up to %d", p->units,
             static_units[rnn]);
        NEED(!wrong || !p->train,
             "%d units, an odd number of eights: cuDNN's persistent static kernels give wrong gradients of one row in "
             "f16",
             p->units);
    }
    if (algo == SLI_CUDNN_PERSIST_DYNAMIC)
        NEED(p->units % DYNAMIC_UNITS == 0 && p->units <= DYNAMIC_MOST,
             "%d units: cuDNN's persistent dynamic kernels are compiled for multiples of %d up to %d", p->units,
             DYNAMIC_UNITS, DYNAMIC_MOST);
    if (algo == SLI_CUDNN_SMALL_H) {
        int limit = small_units[rnn][p->train];
        NEED(p->units <= limit, "%d units: cuDNN's small-H kernels go up to %d in %s", p->units, limit,
             p->train ? "training" : "inference");
        NEED(!wrong, "%d units, an odd number of eights: cuDNN's small-H kernels give wrong outputs in f16", p->units);
    }
    return true;
}

bool sli_cudnn_eligible(const sli_problem *p, const sli_caps *caps, sli_cudnn_algo algo, sli_why *why) {
    bool known = p->dtype == SL_F32 || p->dtype == SL_TF32 || p->dtype == SL_BF16 || p->dtype == SL_F16;
    NEED(known, "dtype %s: cuDNN's rows compute f32, tf32, bf16 and f16", sli_dtype_name(p->dtype));
    if (!cell_fits(p, why) || !shape_fits(p, why) || !mask_fits(p, caps, why)) return false;
    NEED(!(caps->recomputes && p->bidirectional), "both directions in one call cannot be cut into segments");
    if (persistent(algo) && !persistent_fits(p, algo, why)) return false;
    if (!there(caps, why)) return false;
    if (caps->invented) return true;
    const sli_cudnn_plugin *plugin = sli_cudnn_get(why);
    sli_booking booking;
    return plugin && plugin->probe(p, caps, algo, &booking, why);
}
