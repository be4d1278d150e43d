/* One direction of a problem of the persistent recurrence: its memory, what must come out, a comparison. */
#ifndef SLI_TESTS_EMULATE_PERSIST_REFERENCE_H
#define SLI_TESTS_EMULATE_PERSIST_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <set>
#include <string>
#include <vector>
#include "backend/cuda/kernels/persist_args.h"
#include "cell/gru.h"
#include "cell/lstm.h"
#include "cell/rnn.h"

struct persist_problem {
    int H = 0, B = 0, T = 0;
    int gates = 0, math = 0, groups = 1, directions = 1; /* gates, math, groups: of the configuration */
    bool backward = false;
    int options = 0, act = CELL_ACT_TANH, gate_act = CELL_ACT_SIGMOID;
    int pad = 0;                          /* more values than needed in a row of y and of other float rows */
    int chunk = 1 << 20, first_chunk = 0; /* 0: as chunk */
    bool lengths = false, dropout = false, draws = false, reverse = false;
    bool together = false;           /* sums over time are those of all rows, wherever they stand */
    bool ends = false;               /* backward: nobody wants the entering state's gradient */
    bool history = false;            /* forward keeps every step for backward */
    bool overflows = false;          /* what is not finite is not compared */
    float larger = 1, states = 0.5f; /* times R of elsewhere; the states that it enters from are no larger */
    int inputs = 0, inputs_math = 0,
        inputs_row = 0; /* of the configuration: the launch makes u of so many, W's rows being so far apart */
};

void persist_fill_args(persist_args *a, const persist_problem &p);
/* The PERSIST_HAS bits that these arguments are right for. keep_gates: forward leaves them. */
int persist_form_of(const persist_args &a, int directions, bool backward, bool keep_gates);

/* Poisoned with NaN where nothing was given. */
struct persist_direction {
    persist_direction(const persist_problem &p, int direction);
    void fill(persist_way *way);
    void compute(); /* = what the kernel is to leave */
    std::string compare(const persist_direction &expected) const;
    bool same(persist_direction *other); /* every bit */
    /* Of what steps from number `first` on read of memory, what was not asked for ahead; and what was, but is none of it. Empty: nothing. */
    std::string asked(const std::set<const float *> &ahead, int first) const;
    int longest() const; /* of the lengths */

    std::vector<float> r; /* [gates H][H] */

  private:
    persist_problem p;
    int64_t H, B, T, GH, us, hs, zs, y_row, h_row; /* row strides */
    int64_t time, time_step;
    int x_at; /* x of the second direction does not begin at 16 bytes */
    bool reverse, keep_v;
    std::vector<float> u, sn, bias_n, v, c, h, factor, peep, y, dy, h_last, c_last;
    std::vector<float> h0, pw_from, dp_from, dc_from, pw_to, dp_to, dc_to, sums, sums_n, sums_peep;
    std::vector<uint32_t> operand, dz, dr, resets; /* narrow: values of 2 bytes */
    std::vector<float> x, input_bias;
    std::vector<uint32_t> kernel; /* operand */
    std::vector<uint8_t> flags;
    std::vector<int32_t> lengths;

    std::vector<std::vector<float> *> floats();
    bool narrow() const;
    int64_t entering(int64_t t) const { return reverse ? t + 1 : t; }
    int64_t leaving(int64_t t) const { return reverse ? t : t + 1; }
    int64_t at(int64_t s) const { return time + s * time_step; }
    float rounded(float x) const; /* as products read it */
    void put(std::vector<uint32_t> *to, int64_t index, float x) const;
    void make_inputs(uint64_t salt);
    float get(const std::vector<uint32_t> &from, int64_t index) const;
    uint8_t flags_of(int64_t t, int64_t b) const;
    float zone(bool of_c, int64_t t, int64_t b, int64_t j) const;
    cell_lstm_args lstm_args(int64_t t, int64_t b, int64_t j) const;
    void forward(bool history);
    bool before() const { return (p.options & CELL_RESET_BEFORE) != 0; }
    void multiply(const std::vector<float> &weights, const std::vector<float> &read, int gate, int gates,
                  std::vector<float> *sums) const;
    void reset(int64_t t, const std::vector<float> &state_h, const std::vector<float> &weights,
               std::vector<float> *all);
    void forward_cell(int64_t t, int64_t b, int64_t j, const float *sum, bool history, float *state_c, float *state_h);
    void backward();
    void backward_cell(int64_t t, int64_t b, int64_t j, float dh, float *dc, float *pw, float *to_dz, float *to_dr,
                       float *of_peep);
    void backward_reset(int64_t t, const std::vector<float> &weights, std::vector<float> *read, std::vector<float> *pw,
                        std::vector<double> *of_chunk);
    void chunk_sums(int64_t chunk, std::vector<double> *of);
};

#endif
