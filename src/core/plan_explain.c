/* The plan in words and as JSON: layer, problem, chosen kernel, each refused kernel with its reason, FLOPs, bytes. */
#include <stdio.h>
#include <string.h>

#include "core/plan.h"

/* ------------------------------------------------------------------------------------------------- numbers -- */
static const char *human(double value, const char *unit, char *text, size_t capacity) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    int k = 0;
    while (value >= 1000 && k < 5) {
        value /= 1000;
        k++;
    }
    snprintf(text, capacity, k == 0 ? "%.0f %s%s" : "%.2f %s%s", value, prefixes[k], unit);
    return text;
}

/* -------------------------------------------------------------------------------------------------- table -- */
static const char *refuser(const sli_refusal *refusal) {
    return refusal->kernel ? refusal->kernel->name : "planner";
}

/* Columns of the kernels' names. */
static int name_width(const sl_plan *plan) {
    size_t width = 10;
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        if (strlen(step->kernel->name) > width) width = strlen(step->kernel->name);
        for (const sli_refusal *r = step->refusals; r; r = r->next)
            if (strlen(refuser(r)) > width) width = strlen(refuser(r));
    }
    return (int)width;
}

static bool has_predictions(const sl_plan *plan) {
    for (int i = 0; i < plan->step_count; i++)
        if (plan->steps[i].seconds >= 0) return true;
    return false;
}

static void explain_refusals(sli_text *text, const sli_refusal *refusal, int width) {
    for (; refusal; refusal = refusal->next)
        sli_text_printf(text, "    %s %-*s %s\n",
                        refusal->passed   ? "passed "
                        : refusal->slower ? "slower "
                                          : "refused",
                        width, refuser(refusal), refusal->reason);
}

/* Seconds of one time step of a call that takes `seconds`; negative where nothing recurs. */
static double per_step(const sli_step *step, double seconds) {
    return sli_op_is_recurrent(step->problem.op) ? seconds / step->problem.steps : -1;
}

static void explain_choice(sli_text *text, const sli_step *step, int width) {
    const sli_choice *choice = step->choice;
    if (!choice) return;
    sli_text_printf(text, "    chosen  %-*s ", width, step->kernel->name);
    if (choice->seconds >= 0)
        sli_text_printf(text, "by timing: %.4g us a call, %.4g us a step\n", 1e6 * choice->seconds,
                        1e6 * per_step(step, choice->seconds));
    else
        sli_text_printf(text, "the choices name it\n");
}

/* What recomputed gates are worth: bytes from forward to backward, of a segment where there are segments. */
static void explain_saved(const sl_plan *plan, sli_text *text, const sli_step *step, int width) {
    if (!step->problem.recompute) return;
    sli_booking with_gates = sli_plan_booking(plan, step, false);
    sli_text_printf(text, "    saves   %-*s %zu bytes for backward, with its gates %zu\n", width, step->kernel->name,
                    step->booking.saved, with_gates.saved);
}

static void explain_steps(const sl_plan *plan, sli_text *text, int width) {
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        char flops[32], bytes[32];
        sli_text_printf(text, "  %-12s %-52s %-*s %12s %12s",
                        i == plan->loss_step    ? "(loss)"
                        : step->layer_index < 0 ? "(output)"
                                                : step->layer_name,
                        step->text, width, step->kernel->name, human(step->cost.flops, "FLOP", flops, sizeof flops),
                        human(step->cost.bytes, "B", bytes, sizeof bytes));
        if (step->seconds >= 0) sli_text_printf(text, " %9.4g us", 1e6 * step->seconds);
        if (per_step(step, step->seconds) >= 0) sli_text_printf(text, " %9.4g us", 1e6 * per_step(step, step->seconds));
        sli_text_printf(text, "\n");
        if (step->kernel->describe) {
            char how[512] = "";
            step->kernel->describe(&step->problem, &plan->caps, how, sizeof how);
            const char *label = plan->caps.kind == SLI_DEVICE_CUDA ? "cut" : "how";
            if (*how) sli_text_printf(text, "    %s     %-*s %s\n", label, width, step->kernel->name, how);
        }
        if (step->late)
            sli_text_printf(text, "    late    %-*s its gradients' sums over time run beside the recurrence below\n",
                            width, step->kernel->name);
        explain_saved(plan, text, step, width);
        explain_choice(text, step, width);
        explain_refusals(text, step->refusals, width);
    }
    for (const sli_refusal *offer = plan->offers; offer; offer = offer->next)
        sli_text_printf(text, "  offered as one: %s: %s: %s\n", offer->problem, refuser(offer), offer->reason);
    if (!plan->optimizer) return;
    sli_text_printf(text, "  %-12s %zu values: %s, %s\n", "(update)", plan->param_elements, plan->norm->name,
                    plan->optimizer->name);
    explain_refusals(text, plan->norm_refusals, width);
    explain_refusals(text, plan->optimizer_refusals, width);
}

static void explain_memory(const sl_plan *plan, sli_text *text) {
    const sl_memory *m = &plan->memory;
    sli_text_printf(text, "memory, bytes: parameters %zu, packed %zu, optimizer %zu: block of parameters %zu\n",
                    m->parameters, m->packed, m->optimizer, m->params_block);
    sli_text_printf(
        text, "  gradients %zu, activations %zu, saved %zu, scratch %zu, state %zu, inputs %zu: block of a run %zu\n",
        m->gradients, m->activations, m->saved, m->scratch, m->state, m->inputs, m->run_block);
    sli_text_printf(text, "  BLAS keeps about %zu for itself\n", m->blas_buffers);
    if (plan->memory_limit != plan->options.memory_limit)
        sli_text_printf(text, "  planned for at most %zu, which the GPU has free\n", plan->memory_limit);
    if (m->segments > 1 && plan->train)
        sli_text_printf(text,
                        "  recomputation: activations of %d segments of %d steps are computed again in backward\n",
                        m->segments, plan->segment_steps);
    else if (m->segments > 1)
        sli_text_printf(text, "  the sequence runs in %d segments of %d steps\n", m->segments, plan->segment_steps);
}

static const char *precision(const sl_plan *plan, char *text, size_t capacity) {
    if (plan->options.dtype == SL_F64) return "everything in double (reference)";
    if (plan->options.dtype == SL_I8) return "products i8, their sums exact, everything else f32";
    const char *dtype = sli_dtype_name(plan->options.dtype);
    snprintf(text, capacity, "products %s, sums f32, state f32, parameters %s, activations %s", dtype,
             plan->options.narrow_parameters ? dtype : "f32", plan->options.narrow_tensors ? dtype : "f32");
    return text;
}

/* What a GPU is and how calls get to it; a CPU's instruction set and why it is this one. */
static void explain_device(const sl_plan *plan, sli_text *text) {
    const sli_caps *caps = &plan->caps;
    char name[32] = "", sentence[1024] = "", bytes[32];
    bool usable = false;
    if (caps->kind != SLI_DEVICE_CUDA) {
        sli_text_printf(text, "instruction set: %s (%s)\n", sli_isa_name(caps->isa), caps->isa_why);
        if (plan->options.dtype == SL_F32X3)
            sli_text_printf(text, "  products in f32x3 %s\n",
                            caps->isa == SLI_ISA_AMX
                                ? "by AMX: floats are sums of three bf16, six products of those are "
                                  "one to 2^-23; steps of fewer than 8 rows are f32"
                                : "are those of f32: there is no AMX");
        if (plan->options.dtype == SL_BF16)
            sli_text_printf(text, "  products in bf16 %s\n",
                            caps->isa == SLI_ISA_AMX          ? "by AMX"
                            : caps->isa == SLI_ISA_AVX512BF16 ? "by AVX512_BF16: a pair of them at a time"
                                                              : "without AMX or AVX512_BF16: weights take half the "
                                                                "bytes, the arithmetic is f32 on rounded numbers");
        return;
    }
    if (caps->invented)
        snprintf(sentence, sizeof sentence, "sm_%d, %d SMs, %s of memory", caps->compute_capability,
                 caps->multiprocessors, human((double)caps->memory, "B", bytes, sizeof bytes));
    else
        plan->ops->describe(caps->index, name, sizeof name, sentence, sizeof sentence, &usable);
    sli_text_printf(text, "device: %s\n  %s\n", sentence,
                    caps->graphs ? "calls of full size are recorded once and replayed as one graph"
                                 : "kernels are launched one by one, no graph");
    if (sli_plan_is_scaled(plan))
        sli_text_printf(text,
                        "  the loss is scaled against underflow; an update whose gradients overflow is left out\n");
}

static sl_status finish(sl_plan *plan, sli_text *text, const char **kept) {
    bool failed = text->failed;
    *kept = failed ? NULL : sli_arena_string(&plan->arena, text->data ? text->data : "");
    sli_text_free(text);
    return *kept ? SL_OK : sli_fail_memory("the plan's explanation", 1024);
}

static sl_status explain_text(sl_plan *plan) {
    sli_text text;
    char flops[32], threads[48] = "", numbers[96];
    int width = name_width(plan);
    sli_text_init(&text, &plan->allocator);
    if (plan->caps.kind == SLI_DEVICE_CPU)
        snprintf(threads, sizeof threads, " %d thread%s%s,", plan->options.threads,
                 plan->options.threads == 1 ? "" : "s", plan->caps.pool.parallel_for ? " of the program's" : "");
    sli_text_printf(&text, "plan: %s on %s%s,%s batch %d, steps %d, %s\n", plan->train ? "training" : "inference",
                    plan->caps.name, plan->caps.invented ? " (invented)" : "", threads, plan->options.batch,
                    plan->options.steps, precision(plan, numbers, sizeof numbers));
    explain_device(plan, &text);
    sli_text_printf(&text, "  %-12s %-52s %-*s %12s %12s%s\n", "layer", "problem", width, "kernel", "FLOPs", "bytes",
                    has_predictions(plan) ? "    predicted       a step" : "");
    explain_steps(plan, &text, width);
    sli_text_printf(&text, "total: %s a call; sums over time in chunks of %d steps\n",
                    human(plan->flops, "FLOP", flops, sizeof flops), plan->chunk);
    explain_memory(plan, &text);
    sli_text_printf(&text, "%s", plan->notes_text);
    return finish(plan, &text, &plan->explanation);
}

/* --------------------------------------------------------------------------------------------------- JSON -- */
static void put_string(sli_text *text, const char *value) {
    sli_text_append(text, "\"", 1);
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        if (c == '"' || c == '\\')
            sli_text_printf(text, "\\%c", c);
        else if (c < ' ')
            sli_text_printf(text, "\\u%04x", c);
        else
            sli_text_append(text, value, 1);
    }
    sli_text_append(text, "\"", 1);
}

/* Nothing where they are not known. */
static void put_seconds(sli_text *text, const char *key, double seconds) {
    if (seconds < 0) return;
    sli_text_printf(text, ", \"%s\": ", key);
    sli_text_number(text, seconds);
}

static void put_refusals(sli_text *text, const sli_refusal *refusal) {
    sli_text_printf(text, "[");
    for (bool first = true; refusal; refusal = refusal->next, first = false) {
        sli_text_printf(text, "%s{\"kernel\": \"%s\", \"problem\": \"%s\", %s\"reason\": ", first ? "" : ", ",
                        refuser(refusal), refusal->problem,
                        refusal->passed   ? "\"passed\": true, "
                        : refusal->slower ? "\"slower\": true, "
                                          : "");
        put_string(text, refusal->reason);
        sli_text_printf(text, "}");
    }
    sli_text_printf(text, "]");
}

static void put_memory(sli_text *text, const sl_memory *m) {
    sli_text_printf(
        text,
        "{\"parameters\": %zu, \"packed\": %zu, \"optimizer\": %zu, \"params_block\": %zu, \"gradients\": %zu, "
        "\"activations\": %zu, \"saved\": %zu, \"scratch\": %zu, \"state\": %zu, \"inputs\": %zu, \"run_block\": %zu, "
        "\"blas_buffers\": %zu, \"segments\": %d}",
        m->parameters, m->packed, m->optimizer, m->params_block, m->gradients, m->activations, m->saved, m->scratch,
        m->state, m->inputs, m->run_block, m->blas_buffers, m->segments);
}

static void put_device(const sl_plan *plan, sli_text *text) {
    const sli_caps *caps = &plan->caps;
    if (caps->kind != SLI_DEVICE_CUDA) {
        sli_text_printf(text, "\"isa\": \"%s\", \"isa_why\": ", sli_isa_name(caps->isa));
        put_string(text, caps->isa_why);
        sli_text_printf(text, ", ");
        return;
    }
    sli_text_printf(text,
                    "\"gpu\": {\"index\": %d, \"compute_capability\": %d, \"multiprocessors\": %d, \"memory\": %zu, "
                    "\"free_memory\": %zu, \"driver\": %d, \"cudnn\": %d, \"graph\": %s}, ",
                    caps->index, caps->compute_capability, caps->multiprocessors, caps->memory, caps->free_memory,
                    caps->driver, caps->cudnn, caps->graphs ? "true" : "false");
}

static sl_status explain_json(sl_plan *plan) {
    sli_text text;
    char numbers[96];
    sli_text_init(&text, &plan->allocator);
    sli_text_printf(&text,
                    "{\"device\": \"%s\", \"invented\": %s, \"threads\": %d, \"batch\": %d, \"steps\": %d, \"train\": "
                    "%s, \"dtype\": \"%s\", \"precision\": \"%s\", \"chunk\": %d, \"flops\": %.0f, ",
                    plan->caps.name, plan->caps.invented ? "true" : "false", plan->options.threads, plan->options.batch,
                    plan->options.steps, plan->train ? "true" : "false", sli_dtype_name(plan->options.dtype),
                    precision(plan, numbers, sizeof numbers), plan->chunk, plan->flops);
    put_device(plan, &text);
    sli_text_printf(&text, "\"layers\": [");
    for (int i = 0; i < plan->step_count; i++) {
        const sli_step *step = &plan->steps[i];
        sli_text_printf(&text, "%s{\"layer\": ", i ? ", " : "");
        put_string(&text, step->layer_name);
        sli_text_printf(&text,
                        ", \"problem\": \"%s\", \"kernel\": \"%s\", \"flops\": %.0f, \"bytes\": %.0f, \"refused\": ",
                        step->text, step->kernel->name, step->cost.flops, step->cost.bytes);
        put_refusals(&text, step->refusals);
        put_seconds(&text, "seconds", step->seconds);
        put_seconds(&text, "seconds_per_step", per_step(step, step->seconds));
        if (plan->train) sli_text_printf(&text, ", \"saved\": %zu", step->booking.saved);
        if (step->choice) sli_text_printf(&text, ", \"chosen\": true");
        put_seconds(&text, "timed_seconds", step->choice ? step->choice->seconds : -1);
        sli_text_printf(&text, "}");
    }
    sli_text_printf(&text, "], \"offers\": ");
    put_refusals(&text, plan->offers);
    sli_text_printf(&text, ", \"memory\": ");
    put_memory(&text, &plan->memory);
    sli_text_printf(&text, ", \"notes\": [");
    for (int i = 0; i < plan->note_count; i++) {
        sli_text_printf(&text, i ? ", " : "");
        put_string(&text, plan->notes[i]);
    }
    sli_text_printf(&text, "]}");
    return finish(plan, &text, &plan->explanation_json);
}

static sl_status list_kernels(sl_plan *plan) {
    sli_text text;
    sli_text_init(&text, &plan->allocator);
    for (int i = 0; i < plan->step_count; i++) {
        bool seen = !sli_op_is_recurrent(plan->steps[i].problem.op);
        for (int k = 0; k < i && !seen; k++)
            seen = sli_op_is_recurrent(plan->steps[k].problem.op) &&
                   plan->steps[k].kernel->name == plan->steps[i].kernel->name;
        if (!seen) sli_text_printf(&text, "%s%s", text.length ? "," : "", plan->steps[i].kernel->name);
    }
    return finish(plan, &text, &plan->kernels);
}

static sl_status join_notes(sl_plan *plan) {
    sli_text text;
    sli_text_init(&text, &plan->allocator);
    for (int i = 0; i < plan->note_count; i++) sli_text_printf(&text, "%s\n", plan->notes[i]);
    return finish(plan, &text, &plan->notes_text);
}

sl_status sli_plan_describe(sl_plan *plan) {
    SLI_TRY(join_notes(plan));
    SLI_TRY(explain_text(plan));
    SLI_TRY(explain_json(plan));
    return list_kernels(plan);
}
