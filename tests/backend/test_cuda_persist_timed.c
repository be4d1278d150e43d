/* Predictions beside cuts that were timed: tests/data/cuts_h200.tsv (bench/results/cuts_h200_2026-11-27.txt, 5 to 7 cuts_h200_2026-11-28.txt, 9 cuts_h200_2026-11-29.txt). Of the cuts of one problem the one that is
 * predicted to be the best may not be much slower than the best that was timed, in the mean over problems. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/persist_cost.h"
#include "cuda_caps.h"

enum { MOST_LINES = 16000, MOST_TEXT = 96 };

/* What was multiplied: since 2026-11-28 forward steps in tf32 are scaled, of f16. */
enum operand { TF32, NARROW, SCALED };

typedef struct timed {
    char group[3 * MOST_TEXT]; /* list, problem, row and the other pass' cut: one group's times are of one run */
    sli_problem problem;
    double us, predicted; /* of a call; of a step of this pass */
    bool backward;
    enum operand operand;
    int line; /* equals are in the file's order, which is that of the predictions of then */
} timed;

static int up(int count, int each) {
    return (count + each - 1) / each;
}

/* What a name leaves out: tiles follow from sizes, the ring from the room that v and sums leave. */
static void complete(sli_persist_geometry *g, const sli_caps *caps) {
    const int in_registers = g->in_registers, in_shared = g->in_shared;
    g->ring = 0;
    g->tiles_m = up(up(sli_persist_m(g), sli_persist_tile_rows(g->math)), g->warps_m);
    g->tiles_k = up(up(sli_persist_k(g), sli_persist_tile_k(g->math)), g->warps_k);
    if (g->tight) g->tiles_k = 2 * up(g->tiles_k, 2);
    if (sli_persist_streamed(g) <= 0) return;
    const int pair = 2 * sli_persist_warps(g) * g->tiles_m * sli_persist_tile_bytes(g), most = 80 * 1024 / pair;
    g->in_registers = g->in_shared = 0;
    g->ring = most > 8 ? 8 : most < 1 ? 1 : most;
    while (g->ring > 1 && sli_persist_shared_of(g).total > caps->shared_memory) g->ring--;
    g->in_registers = in_registers;
    g->in_shared = in_shared;
    if (g->ring > up(sli_persist_streamed(g), 2)) g->ring = up(sli_persist_streamed(g), 2);
}

/* f4 in tf32 may be exact products or tensor cores', which have other tiles: nothing of such a cut streams, so that the tiles that a warp has tell. */
static void set_math(sli_persist_geometry *g, const sli_problem *p, const sli_caps *caps) {
    g->math = g->scaled ? SL_F16 : p->dtype;
    if (g->few > 0 && p->dtype == SL_TF32 && !g->tight && !g->scaled) {
        g->math = SL_F32;
        complete(g, caps);
        if (g->few == 4 && g->in_registers + g->in_shared != g->tiles_k) g->math = SL_TF32;
    }
    complete(g, caps);
}

/* The geometry of a name; false: it is none, or of another kind of kernel. */
static bool read_cut(const char *name, const sli_problem *p, bool grid, bool backward, const sli_caps *caps,
                     sli_persist_geometry *g) {
    char again[MOST_TEXT];
    int read = 0;
    *g = (sli_persist_geometry){
        .gates = sli_op_gates(p->op), .backward = backward, .directions = 1, .share = 1, .chunks = 1};
    if (sscanf(name, "u%dx%dx%d,b%dx%d,w%dx%d,r%d+%d%n", &g->units, &g->reduce, &g->spread, &g->tiles_n, &g->halves,
               &g->warps_m, &g->warps_k, &g->in_registers, &g->in_shared, &read) != 9)
        return false;
    const char *rest = name + read, *turns = strstr(rest, ",c"), *few = strstr(rest, ",f");
    if (turns && sscanf(turns, ",c%dx%dx%d", &g->chunks, &g->slots, &g->share) == 3) g->couriers = SLI_PERSIST_COURIERS;
    g->apart = turns && strstr(turns, "+4") ? SLI_PERSIST_APART : 0;
    g->meets = turns && strchr(turns, 'm');
    g->few = few ? few[2] - '0' : 0;
    g->tight = strstr(rest, ",t") != NULL;
    g->scaled = strstr(rest, ",s") != NULL;
    const bool local = backward || g->spread * g->reduce == 1;
    g->gather = grid ? SLI_PERSIST_GRID : local ? SLI_PERSIST_LOCAL : SLI_PERSIST_CLUSTER;
    set_math(g, p, caps);
    g->groups = up(p->batch, g->halves * sli_persist_rows(g));
    sli_persist_name(g, again, sizeof again);
    return strcmp(again, name) == 0;
}

static void add(timed *to, int *count, const char *list, const char *problem, const char *row, const char *cut,
                const char *other, double us, bool backward, const sli_caps *caps) {
    sli_persist_geometry g;
    timed *t = &to[*count];
    REQUIRE(*count < MOST_LINES);
    REQUIRE_OK(sli_problem_parse(problem, &t->problem));
    if (!read_cut(cut, &t->problem, strstr(row, "grid") != NULL, backward, caps, &g)) {
        if (!strstr(cut, ",c") || strchr(strstr(cut, ",c"), 'x')) test_fail(__FILE__, __LINE__, "%s: %s", problem, cut);
        return; /* backward over the grid by a cluster's kernel ends with ,c */
    }
    snprintf(t->group, sizeof t->group, "%s %s %s %s %d", list, problem, row, other, backward);
    sli_problem one = t->problem;
    one.layers = 1;
    t->line = *count;
    t->us = us;
    t->backward = backward;
    t->operand = g.scaled ? SCALED : t->problem.dtype == SL_TF32 ? TF32 : NARROW;
    t->predicted = sli_persist_order_seconds(&g, &one, caps);
    (*count)++;
}

static int read_all(timed *to, const sli_caps *caps) {
    char path[512], line[512], list[8], problem[MOST_TEXT], row[32], cut[2 * MOST_TEXT];
    int count = 0;
    double us;
    snprintf(path, sizeof path, "%s/cuts_h200.tsv", test_data);
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#') continue;
        REQUIRE(sscanf(line, "%7s %95s %31s %191s %lf", list, problem, row, cut, &us) == 5);
        char *slash = strchr(cut, '/');
        if (slash) *slash = '\0';
        add(to, &count, list, problem, row, cut, slash ? slash + 1 : "", us, false, caps);
        if (slash) add(to, &count, list, problem, row, slash + 1, cut, us, true, caps);
    }
    fclose(file);
    return count;
}

static int by_group(const void *a, const void *b) {
    const timed *x = a, *y = b;
    const int order = strcmp(x->group, y->group);
    return order ? order : x->line - y->line;
}

/* Mean of log(time of the cut that is predicted to be the best / least time) over groups of this kind. */
static double regret(const timed *all, int count, bool train, bool backward, enum operand operand, int *groups) {
    double sum = 0;
    *groups = 0;
    for (int i = 0, end; i < count; i = end) {
        const timed *chosen = &all[i], *best = &all[i];
        for (end = i; end < count && strcmp(all[end].group, all[i].group) == 0; end++) {
            if (all[end].predicted < chosen->predicted) chosen = &all[end];
            if (all[end].us < best->us) best = &all[end];
        }
        const bool wanted = all[i].problem.train == train && all[i].backward == backward && all[i].operand == operand;
        if (end - i < 2 || !wanted) continue;
        sum += log(chosen->us / best->us);
        (*groups)++;
    }
    return *groups ? sum / *groups : 0;
}

TEST(cuda_persist_cuts_that_were_timed) {
    static const struct {
        bool train, backward;
        enum operand operand;
        int groups;
        double most;
    } kinds[] = {{false, false, TF32, 130, 0.013},
                 {false, false, NARROW, 35, 0.0055}, /* most of it list 7, GRU of 1536 and 2048 units */
                 {false, false, SCALED, 50, 0.006},
                 {true, false, NARROW, 140, 0.0045},
                 {true, true, NARROW, 140, 0.005}};
    const sli_caps caps = invented(90);
    timed *all = calloc(MOST_LINES, sizeof *all);
    REQUIRE(all != NULL);
    const int count = read_all(all, &caps);
    qsort(all, (size_t)count, sizeof *all, by_group);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int groups;
        const double slower = regret(all, count, kinds[k].train, kinds[k].backward, kinds[k].operand, &groups);
        if (groups < kinds[k].groups || slower > kinds[k].most)
            test_fail(__FILE__, __LINE__, "kind %zu: %d groups, the cut that is taken is %.4f slower in the mean", k,
                      groups, slower);
    }
    free(all);
}
