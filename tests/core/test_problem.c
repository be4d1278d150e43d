/* Problem strings: examples, exact errors, and parse(print(p)) == p for thousands of random problems. */
#include <locale.h>

#include "core/problem.h"
#include "core/problem_tables.h"
#include "test.h"

static bool same_problem(const sli_problem *a, const sli_problem *b) {
    bool same = true;
#define SAME(member) same = same && a->member == b->member
    SAME(op), SAME(layers), SAME(batch), SAME(steps), SAME(inputs), SAME(units), SAME(projection), SAME(bidirectional);
    SAME(train), SAME(dtype), SAME(elements), SAME(act), SAME(recurrent_act), SAME(bias), SAME(reset_before);
    SAME(peephole), SAME(reverse), SAME(forget_at_run), SAME(forget_bias), SAME(cell_clip), SAME(dropout);
    SAME(recurrent_dropout), SAME(zoneout_h), SAME(zoneout_c), SAME(mask), SAME(masked_repeat), SAME(direction_merge);
    SAME(no_bias), SAME(parts), SAME(merge), SAME(reduction), SAME(optimizer.kind), SAME(optimizer.momentum);
    SAME(optimizer.nesterov), SAME(optimizer.beta1), SAME(optimizer.beta2), SAME(optimizer.rho),
        SAME(optimizer.epsilon);
    SAME(optimizer.weight_decay), SAME(clip.kind), SAME(clip.value);
    for (int k = 0; k < 4; k++) SAME(parts_units[k]);
#undef SAME
    return same;
}

TEST(problem_example_of_the_design) {
    sli_problem p;
    REQUIRE_OK(sli_problem_parse("lstm:l2_b20_t35_i650_h650_bf16_train+rdrop=0.3", &p));
    CHECK(p.op == SLI_OP_LSTM && p.layers == 2 && p.batch == 20 && p.steps == 35 && p.inputs == 650 && p.units == 650);
    CHECK(p.projection == 0 && !p.bidirectional && p.train && p.dtype == SL_BF16 && p.recurrent_dropout == 0.3);
    CHECK(p.bias == SL_BIAS_SINGLE && p.act == SL_ACT_DEFAULT && p.mask == SLI_MASK_NONE);
}

TEST(problem_text_is_made_canonical) {
    static const struct {
        const char *text, *canonical;
    } cases[] = {
        {"lstm:h4_i3_t2_b1_f32_l1", "lstm:b1_t2_i3_h4"},
        {"lstm:b20_t35_i650_h650_f32_train", "lstm:b20_t35_i650_h650_train"},
        {"lstm:b1_t2_i3_h4+act=tanh+ract=sigmoid+bias=single+rdrop=0", "lstm:b1_t2_i3_h4"},
        {"gru:b1_t2_i3_h4+bias=double", "gru:b1_t2_i3_h4"},
        {"gru:b1_t2_i3_h4+bias=single", "gru:b1_t2_i3_h4+bias=single"},
        {"gru:b1_t2_i3_h4+reset=before+bias=single", "gru:b1_t2_i3_h4+reset=before"},
        {"gru:b1_t2_i3_h4+reset=after", "gru:b1_t2_i3_h4"},
        {"rnn:bi_b1_t2_i3_h4+merge=concat", "rnn:b1_t2_i3_h4_bi"},
        {"lstm:b1_t2_i3_h4_p2+zoneout_h=0.10+zoneout_c=1e-3+peephole",
         "lstm:b1_t2_i3_h4_p2+peephole+zoneout_c=0.001+zoneout_h=0.1"},
        {"lstm:b1_t2_i3_h4+forget=0+clip=100000000000000000000", "lstm:b1_t2_i3_h4+clip=1e20+forget=0"},
        {"lstm:b1_t2_i3_h4+maskout=zero+lengths", "lstm:b1_t2_i3_h4+lengths"},
        {"lstm:b1_t2_i3_h4+maskout=repeat+mask=holes", "lstm:b1_t2_i3_h4+mask=holes+maskout=repeat"},
        {"dense:b1_i3_h4+act=linear+nobias", "dense:b1_i3_h4+nobias"},
        {"embed:b1_t2_i3_h4", "embed:b1_t2_i3_h4"},
        {"onehot:b1_t2_i3", "onehot:b1_t2_i3"},
        {"merge:b1_h6+mode=concat+parts=3+widths=2:2:2", "merge:b1_h6+mode=concat+parts=3"},
        {"merge:b1_h6+mode=concat+widths=1:5", "merge:b1_h6+mode=concat+widths=1:5"},
        {"merge:b1_h6+mode=add+parts=2", "merge:b1_h6"},
        {"xent:b1_t2_h6+reduce=time+lengths_", NULL},
        {"xent:b1_t2_h6+reduce=time+mask=left", "xent:b1_t2_h6+mask=left+reduce=time"},
        {"bce:b1_h6+reduce=mean", "bce:b1_h6"},
        {"norm:n123456789012_train+globalnorm=5", "norm:n123456789012_train+globalnorm=5"},
        {"optim:n7+opt=sgd+momentum=0.9+nesterov", "optim:n7+momentum=0.9+nesterov"},
        {"optim:n7+opt=adamw+decay=0.02+beta2=0.95", "optim:n7+beta2=0.95+decay=0.02+opt=adamw"},
        {"optim:n7+opt=adamw+decay=0.01+beta2=0.999+epsilon=1e-8", "optim:n7+opt=adamw"},
        {"optim:n7+opt=rmsprop+decay=0.01+rho=0.9", "optim:n7+decay=0.01+opt=rmsprop"},
        {"flip:b1_t2_h3_f64", "flip:b1_t2_h3_f64"},
        {"gru:b1_t2_i3_h4_bf16_train+narrow+lengths", "gru:b1_t2_i3_h4_bf16_train+lengths+narrow"},
        {"dense:b1_t2_i3_h4_f16+narrow", "dense:b1_t2_i3_h4_f16+narrow"},
        {"lstm:b1_t2_i3_h4_tf32+narrow", NULL},
        {"rnn:b1_t2_i3_h4_f16_train+narrow_io+narrow", "rnn:b1_t2_i3_h4_f16_train+narrow+narrow_io"},
        {"lstm:b1_t2_i3_h4+narrow_io", NULL},
        {"dropout:b1_t2_h3_bf16+drop=0.5+narrow", NULL},
        {"dropout:b1_t2_h3_i8+drop=0.5", "dropout:b1_t2_h3_i8+drop=0.5"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sli_problem p;
        char text[SLI_PROBLEM_TEXT];
        sl_status status = sli_problem_parse(cases[k].text, &p);
        if (!cases[k].canonical) {
            CHECK(status != SL_OK);
            continue;
        }
        if (status != SL_OK) {
            test_fail(__FILE__, __LINE__, "%s: %s", cases[k].text, sl_error_detail());
            continue;
        }
        CHECK(sli_problem_print(&p, text, sizeof text) == (int)strlen(cases[k].canonical));
        if (strcmp(text, cases[k].canonical) != 0)
            test_fail(__FILE__, __LINE__, "%s prints %s, expected %s", cases[k].text, text, cases[k].canonical);
    }
}

/* A planner's problem has every number of the optimizer filled in. */
TEST(problem_print_leaves_out_what_the_optimizer_has_anyway) {
    sli_problem p = {.op = SLI_OP_OPTIM, .layers = 1, .elements = 5, .dtype = SL_F32};
    char text[SLI_PROBLEM_TEXT];
    p.optimizer = (sl_optimizer){.kind = SL_SGD, .beta1 = 0.9, .beta2 = 0.9, .rho = 0.5, .epsilon = 1e-3};
    sli_problem_print(&p, text, sizeof text);
    CHECK(strcmp(text, "optim:n5") == 0);
    p.optimizer = (sl_optimizer){SL_ADAMW, 0.5, 1, 0.9, 0.99, 0.9, 1e-8, 0.01};
    sli_problem_print(&p, text, sizeof text);
    CHECK(strcmp(text, "optim:n5+beta2=0.99+opt=adamw") == 0);
}

TEST(problem_i8_is_inputs_unless_they_are_given) {
    static const struct {
        const char *text;
        int inputs;
        sl_dtype dtype;
    } cases[] = {{"lstm:b1_t2_i8_h4", 8, SL_F32},          {"lstm:b1_t2_i8_h4_i8", 8, SL_I8},
                 {"lstm:b1_t2_i9_h4_i8", 9, SL_I8},        {"lstm:i8_b1_t2_i9_h4", 9, SL_I8},
                 {"lstm:i8_i8_b1_t2_h4+clip=2", 8, SL_I8}, {"lstm:b1_t2_i88_h4_i8", 88, SL_I8}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sli_problem p;
        REQUIRE_OK(sli_problem_parse(cases[k].text, &p));
        CHECK(p.inputs == cases[k].inputs && p.dtype == cases[k].dtype);
    }
}

TEST(problem_errors_name_the_part_and_its_column) {
    static const struct {
        const char *text;
        sl_status status;
        const char *detail;
    } cases[] = {
        {"", SL_ERR_UNKNOWN, "column 1: '': unknown operation"},
        {"ltsm:b1", SL_ERR_UNKNOWN, "problem 'ltsm:b1', column 1: 'ltsm': unknown operation, known are lstm gru"},
        {"lstm", SL_ERR_INPUT, "column 1: 'lstm': a ':' and fields must follow"},
        {"lstm:", SL_ERR_INPUT, "column 6: '': a field is missing here, as in lstm:b20_t35_i650_h650"},
        {"lstm:b1__t2", SL_ERR_INPUT, "column 9: '': a field is missing here"},
        {"lstm:b1_x2", SL_ERR_UNKNOWN, "column 9: 'x2': unknown field, known are lN"},
        {"lstm:b1_b2", SL_ERR_INPUT, "column 9: 'b2': the batch was already given in column 6"},
        {"lstm:b0_t2_i3_h4", SL_ERR_INPUT, "column 6: 'b0': the batch must be a whole number from 1 to 2147483647"},
        {"lstm:b1_t2_i3_h4x", SL_ERR_INPUT, "column 15: 'h4x': the number of units must be a whole number"},
        {"lstm:b99999999999_t2_i3_h4", SL_ERR_INPUT, "column 6: 'b99999999999'"},
        {"lstm:b1_t2_i3", SL_ERR_INPUT, "column 14: field hN (the number of units) is missing: lstm needs it"},
        {"lstm:b1_t2_i3_h4_f32_f64", SL_ERR_INPUT, "column 22: 'f64': the dtype was already given in column 18"},
        {"gru:b1_t2_i3_h4_p2", SL_ERR_INPUT, "column 17: 'p2': gru has no field 'p' (the number of projected units)"},
        {"dense:b1_i3_h4_bi", SL_ERR_INPUT, "column 16: 'bi': dense has no field 'bi'"},
        {"gru:b1_t2_i3_h4+peephole", SL_ERR_INPUT, "column 17: 'peephole': only lstm has it, not gru"},
        {"lstm:b1_t2_i3_h4+reset=before", SL_ERR_INPUT, "column 18: 'reset=before': only gru has it, not lstm"},
        {"rnn:b1_t2_i3_h4+ract=relu", SL_ERR_INPUT, "only lstm or gru has it, not rnn"},
        {"lstm:b1_t2_i3_h4+wings", SL_ERR_UNKNOWN, "column 18: 'wings': unknown option, lstm has act bias"},
        {"lstm:b1_t2_i3_h4+", SL_ERR_UNKNOWN, "column 18: '': unknown option"},
        {"lstm:b1_t2_i3_h4+clip", SL_ERR_INPUT, "column 18: 'clip': needs a value, write +clip=VALUE"},
        {"lstm:b1_t2_i3_h4+clip=0", SL_ERR_INPUT, "column 18: 'clip=0': must be a number above 0"},
        {"lstm:b1_t2_i3_h4+clip=nan", SL_ERR_INPUT, "must be a number above 0"},
        {"lstm:b1_t2_i3_h4+clip=1e999", SL_ERR_INPUT, "must be a number above 0"},
        {"lstm:b1_t2_i3_h4+clip=0x1", SL_ERR_INPUT, "must be a number above 0"},
        {"lstm:b1_t2_i3_h4+clip=", SL_ERR_INPUT, "must be a number above 0"},
        {"lstm:b1_t2_i3_h4+peephole=1", SL_ERR_INPUT, "column 18: 'peephole=1': takes no value, write +peephole"},
        {"lstm:b1_t2_i3_h4+peephole+peephole", SL_ERR_INPUT, "column 27: 'peephole': was already given in column 18"},
        {"lstm:b1_t2_i3_h4+rdrop=1", SL_ERR_INPUT, "column 18: 'rdrop=1': must be a number of at least 0 and below 1"},
        {"lstm:b1_t2_i3_h4+zoneout_h=-0.1", SL_ERR_INPUT, "at least 0 and below 1"},
        {"lstm:b1_t2_i3_h4+act=swish", SL_ERR_UNKNOWN,
         "'act=swish': unknown value, known are linear tanh sigmoid relu"},
        {"lstm:b1_t2_i3_h4+mask=up", SL_ERR_UNKNOWN, "unknown value, known are left right holes"},
        {"lstm:b1_t2_i3_h4+lengths+mask=left", SL_ERR_INPUT, "column 26: 'mask=left': excludes +lengths"},
        {"lstm:b1_t2_i3_h4+maskout=repeat", SL_ERR_INPUT, "needs +lengths or +mask"},
        {"lstm:b1_t2_i3_h4+merge=sum", SL_ERR_INPUT, "needs the field bi"},
        {"lstm:b1_t2_i3_h4_bi+reverse", SL_ERR_INPUT, "excludes the field bi"},
        {"lstm:l2_b1_t2_i3_h4+reverse", SL_ERR_INPUT, "is for one layer"},
        {"lstm:b1_t2_i3_h4+drop=0.5", SL_ERR_INPUT, "is applied between layers"},
        {"merge:b1_h7+mode=concat", SL_ERR_INPUT, "h7 is not a multiple of 2 parts"},
        {"merge:b1_h7+mode=concat+widths=3:3", SL_ERR_INPUT, "must be 2 widths (+parts) whose sum is 7"},
        {"merge:b1_h7+widths=3:4", SL_ERR_INPUT, "needs +mode=concat"},
        {"merge:b1_h7+mode=concat+widths=1:1:1:1:1:2", SL_ERR_INPUT, "two to four whole numbers"},
        {"merge:b1_h7+parts=5", SL_ERR_INPUT, "must be 2, 3 or 4"},
        {"optim:n5+nesterov", SL_ERR_INPUT, "needs +momentum"},
        {"optim:n5+beta1=0.5", SL_ERR_INPUT, "needs +opt=adam or +opt=adamw"},
        {"norm:n5+clipnorm=1+globalnorm=2", SL_ERR_INPUT, "excludes the other ways to clip"},
        {"xent:b2_h5+lengths", SL_ERR_INPUT, "needs steps, add a field tN"},
        {"flip:b2_h5", SL_ERR_INPUT, "field tN (the number of steps) is missing: flip needs it"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        sli_problem p = {.batch = 77};
        CHECK_FAILS(sli_problem_parse(cases[k].text, &p), cases[k].status, cases[k].detail);
        CHECK(p.batch == 77); /* untouched */
    }
}

/* ------------------------------------------------------------------------------------------------ random problems -- */

static int pick(uint64_t *state, int count) {
    int k = (int)((test_random(state) + 1) * 0.5 * count);
    return k < count ? k : count - 1;
}

static double pick_rate(uint64_t *state) {
    return pick(state, 3) ? 0 : pick(state, 2) ? 0.25 : (test_random(state) + 1) * 0.49999;
}

static double pick_number(uint64_t *state) {
    return ldexp(1.5 + 0.4 * test_random(state), pick(state, 120) - 60);
}

static void draw_recurrent(uint64_t *state, sli_problem *p) {
    bool lstm = p->op == SLI_OP_LSTM;
    p->layers = 1 + (pick(state, 2) ? 0 : pick(state, 4));
    p->inputs = 1 + pick(state, pick(state, 2) ? 12 : 2000);
    p->bidirectional = pick(state, 3) == 0;
    if (p->bidirectional) p->direction_merge = (sl_direction_merge)(SL_BI_CONCAT + pick(state, 4));
    if (lstm && !pick(state, 3)) p->projection = 1 + pick(state, 100);
    p->act = (sl_activation)pick(state, SL_ACT_SOFTSIGN + 1);
    if (p->act == SL_ACT_TANH) p->act = SL_ACT_DEFAULT;
    if (p->op != SLI_OP_RNN) p->recurrent_act = (sl_activation)pick(state, SL_ACT_SOFTSIGN + 1);
    if (p->recurrent_act == SL_ACT_SIGMOID) p->recurrent_act = SL_ACT_DEFAULT;
    p->bias = (sl_bias)(SL_BIAS_NONE + pick(state, 3));
    p->reset_before = p->op == SLI_OP_GRU && pick(state, 2);
    p->reverse = !p->bidirectional && p->layers == 1 && pick(state, 2);
    p->recurrent_dropout = pick_rate(state);
    p->zoneout_h = pick_rate(state);
    if (p->layers > 1) p->dropout = pick_rate(state);
    p->mask = (sli_mask)pick(state, SLI_MASK_HOLES + 1);
    p->masked_repeat = p->mask != SLI_MASK_NONE && pick(state, 2);
    if (!lstm) return;
    p->peephole = pick(state, 2);
    p->zoneout_c = pick_rate(state);
    p->forget_at_run = pick(state, 2);
    if (p->forget_at_run) p->forget_bias = pick(state, 3) ? test_random(state) * 3 : 0;
    if (pick(state, 2)) p->cell_clip = pick_number(state);
}

static void draw_optimizer(uint64_t *state, sli_problem *p) {
    sl_optimizer *o = &p->optimizer;
    o->kind = (sl_optimizer_kind)pick(state, 4);
    if (o->kind == SL_SGD) o->momentum = pick_rate(state);
    o->nesterov = o->momentum != 0 && pick(state, 2);
    if (o->kind == SL_ADAM || o->kind == SL_ADAMW) o->beta1 = pick_rate(state), o->beta2 = pick_rate(state);
    if (o->kind == SL_RMSPROP) o->rho = pick_rate(state);
    if (o->kind != SL_SGD && pick(state, 2)) o->epsilon = pick_number(state);
    if (pick(state, 2)) o->weight_decay = pick_number(state);
}

static void draw_merge(uint64_t *state, sli_problem *p) {
    p->parts = 2 + pick(state, 3);
    p->merge = (sl_merge)pick(state, 4);
    int sum = 0;
    for (int k = 0; k < p->parts; k++) {
        p->parts_units[k] = p->merge == SL_MERGE_CONCAT && pick(state, 2) ? 1 + pick(state, 50) : p->units;
        sum += p->parts_units[k];
    }
    if (p->merge == SL_MERGE_CONCAT) p->units = sum;
}

static sli_problem draw_problem(uint64_t *state) {
    sli_problem p = {.layers = 1};
    p.op = (sli_op)pick(state, SLI_OP_COUNT);
    p.train = pick(state, 2);
    p.dtype = (sl_dtype)(SL_F32 + pick(state, SL_F64));
    if (p.op == SLI_OP_NORM || p.op == SLI_OP_OPTIM) {
        p.elements = 1 + (int64_t)((test_random(state) + 1) * 1e12);
        if (pick(state, 2))
            p.clip.kind = SL_CLIP_NORM + (sl_clip_kind)pick(state, 2), p.clip.value = pick_number(state);
        if (p.op == SLI_OP_OPTIM) draw_optimizer(state, &p);
        return p;
    }
    p.batch = 1 + pick(state, 300);
    bool timed = sli_op_is_recurrent(p.op) || p.op == SLI_OP_FLIP;
    if (timed || pick(state, 2)) p.steps = 1 + pick(state, 3000);
    p.units = 1 + pick(state, 3000);
    if (sli_op_is_recurrent(p.op)) draw_recurrent(state, &p);
    if (p.op == SLI_OP_DENSE || p.op == SLI_OP_EMBED) p.inputs = 1 + pick(state, 3000);
    if (p.op == SLI_OP_ONEHOT) p.inputs = p.units;
    if (p.op == SLI_OP_DROPOUT) p.dropout = pick_rate(state);
    if (p.op == SLI_OP_MERGE) draw_merge(state, &p);
    if (p.op == SLI_OP_DENSE) p.no_bias = pick(state, 2);
    if (p.op == SLI_OP_XENT || p.op == SLI_OP_BCE || p.op == SLI_OP_MSE) {
        p.reduction = (sl_reduction)pick(state, 2);
        if (p.steps) p.mask = (sli_mask)pick(state, SLI_MASK_HOLES + 1);
    }
    return p;
}

TEST(problem_print_then_parse_gives_the_same_problem) {
    uint64_t state = test_seed;
    for (int k = 0; k < 20000; k++) {
        sli_problem p = draw_problem(&state), back;
        char text[2 * SLI_PROBLEM_TEXT], again[2 * SLI_PROBLEM_TEXT];
        int length = sli_problem_print(&p, text, sizeof text);
        REQUIRE(length > 0 && length < (int)sizeof text);
        REQUIRE_OK(sli_problem_parse(text, &back));
        sli_problem_print(&back, again, sizeof again);
        if (!same_problem(&p, &back) || strcmp(text, again) != 0) {
            test_fail(__FILE__, __LINE__, "problem %d: %s reads back as %s", k, text, again);
            return;
        }
    }
}

/* Any damage to a good text is either refused with a sentence or gives a problem that prints and reads back. */
TEST(problem_damaged_text_never_breaks_the_parser) {
    uint64_t state = test_seed + 1;
    for (int k = 0; k < 20000; k++) {
        sli_problem p = draw_problem(&state), back, twice;
        char text[2 * SLI_PROBLEM_TEXT], again[2 * SLI_PROBLEM_TEXT];
        int length = sli_problem_print(&p, text, sizeof text);
        for (int hits = 1 + pick(&state, 3); hits > 0; hits--)
            text[pick(&state, length)] = "_+=:.-019bht\x80 e"[pick(&state, 15)];
        if (sli_problem_parse(text, &back) != SL_OK) {
            REQUIRE(sl_error_detail()[0] != 0);
            continue;
        }
        sli_problem_print(&back, again, sizeof again);
        REQUIRE_OK(sli_problem_parse(again, &twice));
        REQUIRE(same_problem(&back, &twice));
    }
}

/* Plans, choices and messages hold problems in SLI_PROBLEM_TEXT bytes: one that was cut would not be found again. */
TEST(problem_longest_text_fits_its_room) {
    static const char *const longest[] = {
        "lstm:l2147483647_b2147483647_t2147483647_i2147483647_h2147483647_p2147483647_bi_f32x3_train"
        "+act=hard_sigmoid_k2+bias=double+clip=1.2345678901234568e-300+drop=1.2345678901234568e-300"
        "+forget=-1.2345678901234568e-300+mask=right+maskout=repeat+merge=sum+peephole+ract=hard_sigmoid_k2"
        "+rdrop=1.2345678901234568e-300+recompute+zoneout_c=1.2345678901234568e-300+zoneout_h=1.2345678901234568e-300",
        "optim:n1125899906842624_f32x3_train+beta1=1.2345678901234568e-300+beta2=1.2345678901234568e-300"
        "+decay=1.2345678901234568e-300+epsilon=1.2345678901234568e-300+globalnorm=1.2345678901234568e-300+opt=adam"};
    for (int k = 0; k < 2; k++) {
        sli_problem p;
        char text[SLI_PROBLEM_TEXT];
        REQUIRE_OK(sli_problem_parse(longest[k], &p));
        CHECK(sli_problem_print(&p, text, sizeof text) < SLI_PROBLEM_TEXT && strcmp(text, longest[k]) == 0);
    }
}

TEST(problem_print_counts_what_does_not_fit) {
    sli_problem p;
    char whole[64], part[8] = "1234567";
    REQUIRE_OK(sli_problem_parse("gru:b1_t2_i3_h4", &p));
    int length = sli_problem_print(&p, whole, sizeof whole);
    CHECK(length == 15 && sli_problem_print(&p, NULL, 0) == 15);
    CHECK(sli_problem_print(&p, part, 5) == 15 && strcmp(part, "gru:") == 0);
    CHECK(sli_problem_print(&p, whole, 16) == 15 && strcmp(whole, "gru:b1_t2_i3_h4") == 0);
}

/* Makes a locale with a decimal comma and enters it; warnings about what is left out count as an exit code of 1. */
static bool enter_comma_locale(void) {
    char path[600], command[2000];
    snprintf(path, sizeof path, "%s/comma.src", test_folder());
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fputs("LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n", file);
    fclose(file);
    snprintf(command, sizeof command, "localedef -c -i %s %s/comma >%s/log 2>&1", path, test_folder(), test_folder());
    int code = system(command);
    setenv("LOCPATH", test_folder(), 1);
    bool entered = code != -1 && setlocale(LC_NUMERIC, "comma") != NULL;
    unsetenv("LOCPATH");
    return entered;
}

TEST(problem_numbers_have_a_point_in_every_locale) {
    if (!enter_comma_locale()) test_skip("no locale with a decimal comma could be made (Debian: package locales)");
    CHECK(strcmp(localeconv()->decimal_point, ",") == 0);
    sli_problem p;
    char text[SLI_PROBLEM_TEXT] = "";
    sl_status status = sli_problem_parse("lstm:b1_t2_i3_h4+clip=2.5", &p);
    if (status == SL_OK) sli_problem_print(&p, text, sizeof text);
    setlocale(LC_NUMERIC, "C");
    CHECK(status == SL_OK && p.cell_clip == 2.5 && strcmp(text, "lstm:b1_t2_i3_h4+clip=2.5") == 0);
}

static void read_whole(const char *path, char *text, size_t capacity) {
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    size_t length = fread(text, 1, capacity - 1, file);
    fclose(file);
    text[length] = 0;
    REQUIRE(length > 0 && length < capacity - 1);
}

/* C files of a program that speaks German are C. */
TEST(problem_c_files_have_points_in_every_locale) {
    static char texts[2][1 << 17];
    char path[600];
    sl_model *model;
    sl_plan *plan;
    sl_params *params;
    sl_plan_options options = {.device = test_device};
    if (test_on_gpu()) test_skip("nothing here is the device's");
    REQUIRE_OK(sl_model_from_problem(NULL, "lstm:b1_t2_i3_h4+clip=2.5+zoneout_c=0.25", &model, &options));
    REQUIRE_OK(sl_plan_new(model, &options, &plan));
    REQUIRE_OK(sl_params_new(plan, &params));
    REQUIRE_OK(sl_params_init(params, 1));
    snprintf(path, sizeof path, "%s/model.c", test_folder());
    for (int i8 = 0; i8 < 2; i8++) {
        const sl_convert form = {.form = SL_CONVERT_C, .dtype = i8 ? SL_I8 : SL_F32};
        REQUIRE_OK(sl_model_convert(model, params, &form, path));
        read_whole(path, texts[0], sizeof texts[0]);
        if (!enter_comma_locale()) test_skip("no locale with a decimal comma could be made (Debian: package locales)");
        sl_status status = sl_model_convert(model, params, &form, path);
        setlocale(LC_NUMERIC, "C");
        REQUIRE_OK(status);
        read_whole(path, texts[1], sizeof texts[1]);
        CHECK(strstr(texts[0], "0x1.") != NULL && strcmp(texts[0], texts[1]) == 0);
    }
    sl_params_free(params);
    sl_plan_free(plan);
    sl_model_free(model);
}

/* As JSON, and as choices that were timed: what another program reads. */
TEST(problem_plans_have_points_in_every_locale) {
    sl_model *model;
    sl_plan *plan[2] = {NULL, NULL};
    sl_plan_options options = {.device = "cpu:avx2", .threads = 1, .choices = "lstm:b1_t2_i3_h4 cpu:fused 2.5"};
    REQUIRE_OK(sl_model_from_problem(NULL, "lstm:b1_t2_i3_h4", &model, &options));
    REQUIRE_OK(sl_plan_new(model, &options, &plan[0]));
    if (!enter_comma_locale()) test_skip("no locale with a decimal comma could be made (Debian: package locales)");
    sl_status status = sl_plan_new(model, &options, &plan[1]);
    setlocale(LC_NUMERIC, "C");
    REQUIRE_OK(status);
    CHECK(strstr(sl_plan_explain_json(plan[0]), "\"timed_seconds\": 2.5e-06") != NULL);
    CHECK(strcmp(sl_plan_explain_json(plan[0]), sl_plan_explain_json(plan[1])) == 0);
    for (int k = 0; k < 2; k++) sl_plan_free(plan[k]);
    sl_model_free(model);
}

TEST(problem_tables_are_in_order) {
    for (int k = 0; sli_options[k].name; k++) {
        CHECK(k < SLI_OPTION_MAX);
        CHECK(k == 0 || strcmp(sli_options[k - 1].name, sli_options[k].name) < 0);
    }
    for (int k = 0; sli_problem_fields[k].name; k++) CHECK(k < SLI_PROBLEM_FIELD_MAX);
}

/* ---------------------------------------------------------------------------------------------------- small facts -- */

TEST(problem_names_of_activations_and_dtypes) {
    for (int act = SL_ACT_LINEAR; act <= SL_ACT_SOFTSIGN; act++) {
        sl_activation back = SL_ACT_DEFAULT;
        CHECK(sli_activation_parse(sli_activation_name((sl_activation)act), &back) && (int)back == act);
    }
    sl_activation kept = SL_ACT_RELU;
    CHECK(!sli_activation_parse("swish", &kept) && kept == SL_ACT_RELU);
    CHECK(strcmp(sli_dtype_name(SL_F32X3), "f32x3") == 0 && strcmp(sli_dtype_name(SL_DTYPE_DEFAULT), "default") == 0);
    CHECK(sli_dtype_bytes(SL_F64) == 8 && sli_dtype_bytes(SL_BF16) == 4 && sli_dtype_bytes(SL_F32) == 4);
    CHECK(sli_op_gates(SLI_OP_LSTM) == 4 && sli_op_gates(SLI_OP_GRU) == 3 && sli_op_gates(SLI_OP_RNN) == 1);
    CHECK(sli_op_is_recurrent(SLI_OP_RNN) && !sli_op_is_recurrent(SLI_OP_DENSE));
}

TEST(problem_chunks_are_small_enough_and_balanced) {
    CHECK(sli_chunk_steps(20, 35) == 35);
    CHECK(sli_chunk_steps(1, 1) == 1 && sli_chunk_steps(5000, 7) == 1 && sli_chunk_steps(0, 0) == 1);
    for (int batch = 1; batch <= 2000; batch += 37) {
        for (int steps = 1; steps <= 3000; steps += 53) {
            int chunk = sli_chunk_steps(batch, steps), chunks = (steps + chunk - 1) / chunk;
            REQUIRE(chunk >= 1 && chunk <= steps);
            REQUIRE(chunk == 1 || chunk * batch <= 1024);
            REQUIRE(chunk * chunks - steps < chunks); /* balanced: no chunk is shorter by `chunks` or more */
        }
    }
}
