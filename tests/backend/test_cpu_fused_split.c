/* How threads share a step, on invented machines. */
#include "backend/cpu/fused_split.h"
#include "test.h"

/* LSTM forward, 100 steps of one direction, on panels of so many columns. */
static sli_fused_shape shape_of(sli_isa isa, int threads, int batch, int panels, int columns, int units) {
    return (sli_fused_shape){.directions = 1,
                             .batch = batch,
                             .steps = 100,
                             .stages = 1,
                             .panels = panels,
                             .columns = columns,
                             .k = units,
                             .panel_bytes = (size_t)units * (size_t)columns * sizeof(float),
                             .units = units,
                             .machine = {.isa = isa, .threads = threads, .l2_bytes = 512 * 1024, .l3_bytes = 32 << 20}};
}

static sli_fused_split lstm(int directions, int batch, int units, int threads) {
    sli_fused_shape shape = shape_of(SLI_ISA_AVX2, threads, batch, (units + 7) / 8, 32, units);
    shape.directions = directions;
    return sli_fused_split_of(&shape);
}

static bool is(sli_fused_split split, int directions, int rows, int units) {
    return split.directions == directions && split.rows == rows && split.units == units;
}

TEST(fused_split_small_steps_stay_on_one_thread) {
    CHECK(is(lstm(1, 1, 8, 16), 1, 1, 1));
    CHECK(is(lstm(1, 1, 32, 2), 1, 1, 1));
    CHECK(is(lstm(1, 64, 512, 1), 1, 1, 1));
}

TEST(fused_split_one_row_shares_units) {
    CHECK(is(lstm(1, 1, 256, 2), 1, 1, 2));
    const sli_fused_split many = lstm(1, 1, 1024, 16);
    CHECK(many.rows == 1 && many.units > 4 && many.units <= 16);
}

/* A few panels cannot be shared evenly, rows can; of many panels threads end together. */
TEST(fused_split_many_rows_by_the_number_of_panels) {
    CHECK(is(lstm(1, 32, 64, 2), 1, 2, 1));
    CHECK(is(lstm(1, 64, 64, 4), 1, 4, 1));
    CHECK(is(lstm(1, 20, 650, 2), 1, 1, 2));
}

/* Inputs many times as long as the state: W x is worth what the steps alone are not. */
TEST(fused_split_counts_inputs) {
    sli_fused_shape shape = shape_of(SLI_ISA_AVX2, 2, 1, 4, 32, 32);
    shape.input_rows = 64;
    const sli_fused_split without = sli_fused_split_of(&shape);
    shape.inputs = 2048;
    shape.input_panels = 4;
    shape.input_columns = 32;
    shape.input_panel_bytes = 2048 * 32 * sizeof(float);
    const sli_fused_split with = sli_fused_split_of(&shape);
    CHECK(is(without, 1, 1, 1) && is(with, 1, 1, 2) && with.seconds > without.seconds);
}

/* A pass whose threads spin is shared where one that would have to wake them up is not; of two rows each thread has both, of some units. What
 * it saves was not measured on every machine. */
TEST(fused_split_of_threads_that_are_ready) {
    sli_fused_shape shape = shape_of(SLI_ISA_AVX512BF16, 2, 1, 8, 64, 128);
    shape.steps = 20;
    const sli_cpu_machine machine = shape.machine;
    CHECK(is(sli_fused_split_of(&shape), 1, 1, 1));
    shape.machine = sli_cpu_ready(machine);
    CHECK(is(sli_fused_split_of(&shape), 1, 1, 2));
    shape.batch = 2;
    CHECK(is(sli_fused_split_of(&shape), 1, 1, 2));
    shape.batch = 64;
    CHECK(is(sli_fused_split_of(&shape), 1, 2, 1));
    shape.panels = 1, shape.batch = 1, shape.units = 8, shape.k = 8;
    CHECK(is(sli_fused_split_of(&shape), 1, 1, 1));
    shape.machine.isa = SLI_ISA_AMX;
    CHECK(!sli_cpu_ready(shape.machine).ready);
}

TEST(fused_split_directions_go_apart) {
    CHECK(is(lstm(2, 1, 128, 2), 2, 1, 1));
    const sli_fused_split four = lstm(2, 1, 256, 4);
    CHECK(four.directions == 2 && four.units == 2);
}

/* No more threads lend than there are queues. */
TEST(fused_split_many_threads) {
    const sli_fused_split split = lstm(1, 1, 20000, 300);
    CHECK(split.units > 1 && split.directions * split.rows * split.units <= 64);
    CHECK(is(lstm(1, 1, 8 * 65536, 2), 1, 1, 1));
}

TEST(fused_split_takes_no_more_than_there_is) {
    for (int directions = 1; directions <= 2; directions++)
        for (int batch = 1; batch <= 40; batch += 13)
            for (int units = 1; units <= 700; units += 233)
                for (int threads = 1; threads <= 9; threads++) {
                    const sli_fused_split s = lstm(directions, batch, units, threads);
                    CHECK(s.directions * s.rows * s.units <= threads && s.rows <= batch && s.units <= (units + 7) / 8);
                    CHECK(s.directions <= directions && s.seconds > 0);
                }
}
