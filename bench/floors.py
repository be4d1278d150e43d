"""Microseconds of a time step of the LSTM's recurrence on a GPU beside the least that the hardware allows.

    floors.py [--sluice build/sluice] [--units 128,256,...] [--batches 1,16,64,256] [--dtypes bf16,tf32]
              [--out floors.jsonl] [--table floors.md] [--source HASH] [--limit-seconds S] [--dry-run]

Each layer (32 inputs) is timed by `sluice bench --require cuda:` at 128 and at 256 steps; the difference over 128 is a
step, without launches, packing and what else a call costs once. Forward is inference; training is forward, backward and
the weight gradients. Rows of ours alone, the fastest at 256 steps. One JSON line a layer and precision; what --out has
for the same --source is skipped.

The floor of a pass is the largest of: its FLOPs at the rate of a large matrix product; its bytes of device memory
(gates' sums and outputs, in training what backward needs; weights that do not fit on the chip from L2); one exchange of
a step. Weight gradients and the input's product are FLOPs of their own and add to training. All from the constants
below.
"""
import argparse
import json
import os
import sys
import time

from compare import Sluice
from lines import known_lines

HERE = os.path.dirname(os.path.abspath(__file__))
START = time.monotonic()
INPUTS, SHORT, LONG = 32, 128, 256

# Measured on one H200 (driver 580.159, CUDA 13.0, 1980 MHz under load) on 2026-11-20.
FLOPS = {"f32": 51e12, "f32x3": 354e12 / 3, "tf32": 354e12, "bf16": 700e12, "f16": 665e12}  # a second; products of 8192^3
HBM, L2 = 4.25e12, 8.1e12  # bytes per second: copies; reads of all SMs
SMS, CLUSTER_16, CLUSTER_8 = 132, 7, 15  # SMs; co-resident clusters of 16 and 8 blocks
# KiB of h that every block sends its part of and reads whole -> us.
EXCHANGE = {
    "cluster of 8": [(1, 0.31), (2, 0.34), (4, 0.39), (8, 0.50), (16, 0.70), (32, 1.11), (64, 1.92)],
    "cluster of 16": [(1, 0.34), (2, 0.35), (4, 0.43), (8, 0.52), (16, 0.75), (32, 1.19), (64, 2.21)],
    "grid of 32": [(2, 0.75), (8, 0.98), (32, 1.91)],
    "grid of 132": [(2, 0.99), (8, 1.31), (32, 2.11), (128, 2.57), (512, 5.94)],  # tagged data; from 128 on a counter
}
# What a block has for weights: shared memory and two thirds of the registers.
BLOCK_BYTES = 227 * 1024 + 2 * 65536 * 4 // 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "sluice"))
    parser.add_argument("--units", default="128,256,512,1024,1500,2048")
    parser.add_argument("--batches", default="1,16,64,256")
    parser.add_argument("--dtypes", default="bf16,tf32")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--require", default="cuda:", help="the rows that count")
    parser.add_argument("--seconds", type=float, default=0.05)
    parser.add_argument("--out", default="floors.jsonl")
    parser.add_argument("--table")
    parser.add_argument("--source", default="")
    parser.add_argument("--limit-seconds", type=float, default=1e9)
    parser.add_argument("--dry-run", action="store_true", help="print the floors alone")
    return parser.parse_args()


# ----------------------------------------------------------------------------------------------------------- floors --
def interpolate(points, at):
    """Piecewise linear; constant below the first point, beyond the last as between the last two."""
    if at <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if at <= x1:
            break
    return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


def exchange(weights, batch, bytes_a_row):
    """(us, how) of the cheapest exchange of a step: blocks of a group hold all weights, the batch is cut over groups."""
    ways = []
    for name, blocks, groups in (("cluster of 8", 8, CLUSTER_8), ("cluster of 16", 16, CLUSTER_16)):
        if weights <= blocks * BLOCK_BYTES:
            rows = -(-batch // min(groups, batch))
            ways.append((interpolate(EXCHANGE[name], rows * bytes_a_row / 1024), name))
    for groups in range(1, 9):
        blocks = SMS // groups
        if groups > batch or (groups > 1 and weights > blocks * BLOCK_BYTES):
            break
        name = "grid of 32" if blocks <= 64 else "grid of 132"
        ways.append((interpolate(EXCHANGE[name], -(-batch // groups) * bytes_a_row / 1024), name))
    return min(ways)


def floors(units, batch, dtype):
    """{pass: {"flops": us, "bytes": us, "exchange": us, "how": text, "floor": us}} of forward, backward, training."""
    operand = 2 if dtype in ("bf16", "f16") else 4
    weights = 4 * units * units * operand
    product = 2 * batch * 4 * units * units / FLOPS[dtype] * 1e6
    input_product = 2 * batch * 4 * units * INPUTS / FLOPS[dtype] * 1e6
    spilled = max(0, weights - SMS * BLOCK_BYTES) / L2 * 1e6
    cells = batch * units
    forward_bytes = cells * (4 * 4 + 4) / HBM * 1e6  # sums of the gates in, h out
    saved_bytes = cells * (4 * operand + 4) / HBM * 1e6  # gates and c, out or in
    backward_bytes = cells * (4 + 4 * operand) / HBM * 1e6  # dy in, gradients of the gates out

    def of(flops, bytes_, bytes_a_row):
        us, how = exchange(weights, batch, bytes_a_row)
        return {"flops": flops, "bytes": bytes_, "exchange": us, "how": how, "floor": max(flops, bytes_, us)}

    forward = of(product, forward_bytes + spilled, units * operand)
    saving = of(product, forward_bytes + saved_bytes + spilled, units * operand)
    backward = of(product, backward_bytes + saved_bytes + spilled, units * 4)  # partial sums of dh, in f32
    weight_gradients = product + 2 * input_product
    training = {"floor": saving["floor"] + backward["floor"] + weight_gradients + input_product}
    return {"forward": forward, "backward": backward, "training": training, "weight_gradients": weight_gradients}


def limit_of(one):
    """The part that makes the floor."""
    name = max(("flops", "bytes", "exchange"), key=lambda key: one[key])
    return one["how"] if name == "exchange" else name


# -------------------------------------------------------------------------------------------------------- measuring --
def step_us(sluice, units, batch, dtype, train):
    """(us a step, row), or a text."""
    times = {}
    for steps in (SHORT, LONG):
        problem = f"lstm:b{batch}_t{steps}_i{INPUTS}_h{units}_{dtype}" + ("_train" if train else "")
        rows = sluice.time(problem)
        if "error" in rows:
            return rows["error"]
        times[steps] = {name: row["median_s"] for name, row in rows.items() if "median_s" in row}
    both = [(times[LONG][name], name) for name in times[LONG] if name in times[SHORT]]
    if not both:
        return "no row computes it"
    slowest, row = min(both)
    return 1e6 * (slowest - times[SHORT][row]) / (LONG - SHORT), row


def table(lines):
    out = ["| H | B | | row | forward us | floor | limit | ratio | training row | training us | floor | ratio "
           "| backward us | floor | limit |",
           "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for line in lines:
        least = floors(line["units"], line["batch"], line["dtype"])
        cells = [str(line["units"]), str(line["batch"]), line["dtype"]]
        forward, training = line["forward"], line["training"]
        good = [isinstance(entry, list) for entry in (forward, training)]
        cells += [forward[1], f"{forward[0]:.2f}"] if good[0] else ["-", str(forward)[:60]]
        cells += [f"{least['forward']['floor']:.2f}", limit_of(least["forward"])]
        cells += [f"{forward[0] / least['forward']['floor']:.2f}" if good[0] else "-"]
        cells += [training[1], f"{training[0]:.2f}"] if good[1] else ["-", str(training)[:60]]
        cells += [f"{least['training']['floor']:.2f}"]
        cells += [f"{training[0] / least['training']['floor']:.2f}" if good[1] else "-"]
        rest = training[0] - forward[0] - least["weight_gradients"] if all(good) else None
        cells += [f"{rest:.2f}" if rest else "-", f"{least['backward']['floor']:.2f}", limit_of(least["backward"])]
        out.append("| " + " | ".join(cells) + " |")
    out += ["", "Backward: training less forward (of inference, which saves nothing) less the weight gradients' floor."]
    return "\n".join(out) + "\n"


def main():
    args = arguments()
    cells = [(int(units), int(batch), dtype) for dtype in args.dtypes.split(",") for units in args.units.split(",")
             for batch in args.batches.split(",")]
    known, done = known_lines(args.out), 0
    keys = {cell: "{}|{}|{}|{}".format(*cell, args.source) for cell in cells}
    todo = [cell for cell in cells if keys[cell] not in known]
    if args.dry_run:
        for units, batch, dtype in cells:
            least = floors(units, batch, dtype)
            passes = [f"{name} {least[name]['floor']:.2f} {limit_of(least[name])}" for name in ("forward", "backward")]
            print(f"H {units} B {batch} {dtype}: {', '.join(passes)}, training {least['training']['floor']:.2f}")
        return
    sluice = Sluice(args, ["--require", args.require] if args.require else [])
    with open(args.out, "a", encoding="utf-8") as out:
        for units, batch, dtype in todo:
            if time.monotonic() - START > args.limit_seconds:
                break
            line = {"case": keys[units, batch, dtype], "units": units, "batch": batch, "dtype": dtype}
            for name, train in (("forward", False), ("training", True)):
                us = step_us(sluice, units, batch, dtype, train)
                line[name] = us if isinstance(us, str) else list(us)
            out.write(json.dumps(line) + "\n")
            out.flush()
            known[line["case"]] = line
            done += 1
    sluice.stop()
    text = table([known[keys[cell]] for cell in cells if keys[cell] in known])
    if args.table:
        with open(args.table, "w", encoding="utf-8") as file:
            file.write(text)
    print(text + f"{done} done, {len(todo) - done} left")


if __name__ == "__main__":
    sys.exit(main())
