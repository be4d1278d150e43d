/* Choices from outside: which row computes a recurrent problem, whatever the rows predict. And a plan's own as text. */
#include <stdio.h>
#include <string.h>

#include "core/plan.h"

static const char parts_word[] = "parts";

bool sli_choice_is_parts(const sli_choice *choice) {
    return strcmp(choice->row, parts_word) == 0;
}

bool sli_choice_is_of(const sli_choice *choice, const sli_kernel *row) {
    const size_t length = strcspn(choice->row, "@");
    return strlen(row->name) == length && memcmp(row->name, choice->row, length) == 0;
}

bool sli_choice_names(sl_plan *plan, sli_choice *choice, const sli_kernel *row, const sli_problem *problem) {
    if (!sli_choice_is_of(choice, row)) return false;
    const char *wanted = strchr(choice->row, '@');
    choice->cut = 0;
    if (!wanted) return true;
    sli_problem cut = *problem;
    char name[SLI_CUT_NAME];
    for (cut.cut = 0; row->cut && cut.cut < SLI_CUTS * SLI_CUTS; cut.cut++) {
        if (!row->cut(&cut, &plan->caps, name, sizeof name) || strcmp(name, wanted + 1) != 0) continue;
        choice->cut = cut.cut;
        return true;
    }
    choice->reason =
        sli_arena_format(&plan->arena, "%s is not cut like this on %s, but as predicted", row->name, plan->caps.name);
    return true;
}

/* ----------------------------------------------------------------------------------------------------- reading -- */
/* The next word of a line, copied into `word`; false at the end of the line, or if it does not fit. */
static bool next_word(const char **at, char *word, size_t capacity) {
    *at += strspn(*at, " \t\r");
    size_t length = strcspn(*at, " \t\r\n#");
    if (length == 0 || length >= capacity) return false;
    memcpy(word, *at, length);
    word[length] = 0;
    *at += length;
    return true;
}

/* PROBLEM ROW [MICROSECONDS]; the problem becomes what plans print. */
static sl_status add_line(sl_plan *plan, const char *at, int line) {
    char problem[SLI_PROBLEM_TEXT], row[64 + SLI_CUT_NAME], number[32];
    sli_problem parsed;
    sli_choice choice = {.seconds = -1};
    bool named = next_word(&at, problem, sizeof problem) && next_word(&at, row, sizeof row);
    if (named && next_word(&at, number, sizeof number)) {
        named = sli_number_parse(number, strlen(number), &choice.seconds) && choice.seconds >= 0;
        choice.seconds *= 1e-6;
    }
    at += strspn(at, " \t\r");
    SLI_FAIL_IF(
        !named || (*at && *at != '\n' && *at != '#'), SL_ERR_INPUT,
        "choices, line %d: a line is a problem, blanks, the name of a row or the word parts, and if it was timed "
        "the microseconds",
        line);
    SLI_TRY(sli_problem_parse(problem, &parsed));
    SLI_FAIL_IF(!sli_op_is_recurrent(parsed.op), SL_ERR_INPUT,
                "choices, line %d: %s is no recurrent problem; only rows of those are chosen", line, problem);
    sli_problem_print(&parsed, problem, sizeof problem);
    sli_choice *kept = sli_arena_push(&plan->arena, &plan->choices, &plan->choice_count, &plan->choice_capacity,
                                      sizeof *plan->choices);
    choice.problem = sli_arena_string(&plan->arena, problem);
    choice.row = sli_arena_string(&plan->arena, row);
    if (!kept || !choice.problem || !choice.row) return sli_fail_memory("the plan's choices", sizeof *kept);
    *kept = choice;
    return SL_OK;
}

sl_status sli_choices_read(sl_plan *plan, const char *text) {
    for (int line = 1; text && *text; line++) {
        const char *start = text + strspn(text, " \t\r");
        if (*start && *start != '\n' && *start != '#') SLI_TRY(add_line(plan, start, line));
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------- obeying -- */
static sli_choice *find(sl_plan *plan, const char *problem) {
    for (int k = plan->choice_count - 1; k >= 0; k--) /* of two lines the last counts */
        if (strcmp(plan->choices[k].problem, problem) == 0) return &plan->choices[k];
    return NULL;
}

char *sli_choices_of_kept_gates(sli_arena *arena, const char *choices) {
    static const char option[] = "+recompute";
    char *text = sli_arena_string(arena, choices);
    for (char *at = text; at && (at = strstr(at, option));)
        memmove(at, at + strlen(option), strlen(at + strlen(option)) + 1);
    return text;
}

sli_choice *sli_choice_for(sl_plan *plan, const char *problem) {
    sli_choice *choice = find(plan, problem);
    if (choice || !strstr(problem, "+recompute")) return choice;
    const char *kept = sli_choices_of_kept_gates(&plan->arena, problem);
    return kept ? find(plan, kept) : NULL;
}

void sli_choices_forget(sl_plan *plan) {
    for (int k = 0; k < plan->choice_count; k++) {
        plan->choices[k].obeyed = false;
        plan->choices[k].reason = NULL;
    }
}

sl_status sli_choices_note(sl_plan *plan) {
    for (int k = 0; k < plan->choice_count; k++) {
        const sli_choice *choice = &plan->choices[k];
        bool tuning = choice->seconds >= 0 && !choice->reason; /* a part of a wide problem that one kernel took */
        if ((choice->obeyed && !choice->reason) || tuning || sli_choice_for(plan, choice->problem) != choice) continue;
        SLI_TRY(sli_plan_note(plan, "choice %s %s is not taken: %s", choice->problem, choice->row,
                              choice->reason ? choice->reason : "nothing in this plan is that problem"));
    }
    return SL_OK;
}

/* --------------------------------------------------------------------------------------------------- writing -- */
static bool is_first_step(const sl_plan *plan, int index) {
    for (int k = 0; k < index; k++)
        if (strcmp(plan->steps[k].text, plan->steps[index].text) == 0) return false;
    return sli_op_is_recurrent(plan->steps[index].problem.op);
}

static bool is_first_offer(const sl_plan *plan, const sli_refusal *offer) {
    for (const sli_refusal *o = plan->offers; o != offer; o = o->next)
        if (strcmp(o->problem, offer->problem) == 0) return false;
    for (int k = 0; k < plan->step_count; k++)
        if (strcmp(plan->steps[k].text, offer->problem) == 0) return false;
    return true;
}

/* PROBLEM ROW, with the cut of a row that has several: what is predicted may change before the choices are read. */
static void write_step(sl_plan *plan, const sli_step *step, sli_text *text) {
    char cut[SLI_CUT_NAME];
    const sli_kernel *row = step->kernel;
    const bool named = row->cut && row->cut(&step->problem, &plan->caps, cut, sizeof cut);
    sli_text_printf(text, "%s %s%s%s\n", step->text, row->name, named ? "@" : "", named ? cut : "");
}

sl_status sli_choices_write(sl_plan *plan) {
    sli_text text;
    sli_text_init(&text, &plan->allocator);
    for (int i = 0; i < plan->step_count; i++)
        if (is_first_step(plan, i)) write_step(plan, &plan->steps[i], &text);
    for (const sli_refusal *offer = plan->offers; offer; offer = offer->next)
        if (is_first_offer(plan, offer)) sli_text_printf(&text, "%s %s\n", offer->problem, parts_word);
    plan->chosen = text.failed ? NULL : sli_arena_string(&plan->arena, text.data ? text.data : "");
    sli_text_free(&text);
    return plan->chosen ? SL_OK : sli_fail_memory("the plan's choices", 256);
}

const char *sl_plan_choices(const sl_plan *plan) {
    return plan ? plan->chosen : NULL;
}
