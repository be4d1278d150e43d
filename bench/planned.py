#!/usr/bin/env python3
"""What the plan of this build chooses for an H200, and predicts, beside what was measured there. Needs no GPU.

    planned.py [--sluice build/sluice] [--check] [--table FILE]

Of each cell (problem and precision) of the layers in bench/results/LATEST every kernel has its latest time. The plan, for the
invented device cuda:sm_90, names a kernel: what it costs is that kernel's time over the fastest one's. --check looks at
choices alone: exit code 1 where the geometric mean of all costs is above MOST_MEAN, a cell is above MOST and not among those that are
known, or a known one no longer is. Without it predictions are compared as well, of each kernel of ours. Times of kernels that have changed since are in the
files, too: what stands here is as old as they are.
"""
import argparse
import json
import math
import os
import subprocess
import sys

from lines import tell
from readme import read_latest
from tables import geometric_mean

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_MEAN, MOST = 1.005, 1.1
KNOWN = {
    "lstm:b32_t150_i256_h256|f32x3",  # exact products of four rows through a cluster are predicted 1.15 times too long
    "lstm:b128_t25_i1024_h1024_train|f32x3",  # backward in turns in f32x3 is predicted 0.85 of what it takes
    "gru:l2_b32_t50_i16_h64|f32",  # layers of 64 units through clusters are predicted 1.2 times too long, as a wave 0.86
}


def measured_cells(results):
    """{"PROBLEM|DTYPE": {kernel: ms}}, of each kernel the latest."""
    cells = {}
    for name in read_latest(results)[0]:
        if name.startswith("layers_"):
            with open(os.path.join(results, name + ".jsonl"), encoding="utf-8") as file:
                for line in map(json.loads, file):
                    times = {kernel: side["median"] for kernel, side in line["sluice"].items() if "median" in side}
                    cells.setdefault(line["case"].rpartition("|")[0], {}).update(times)
    return {cell: times for cell, times in cells.items() if times}


def plan(sluice, cell, kernel=None):
    """(kernel, ms) as planned, None where layers run on different kernels, or the kernel does not take the problem."""
    problem, dtype = cell.split("|")
    command = [sluice, "plan", problem, "--dtype", dtype, "--device", "cuda:sm_90", "--json"]
    run = subprocess.run(command + (["--require", kernel] if kernel else []), capture_output=True, text=True, check=False)
    if run.returncode != 0 and not kernel:
        sys.exit(f"planned.py: no plan for {cell}: {run.stderr.strip()}")
    if run.returncode != 0:
        return None
    layers = json.loads(run.stdout)["layers"]
    kernels = {layer["kernel"] for layer in layers}
    return (kernels.pop(), 1e3 * sum(layer["seconds"] for layer in layers)) if len(kernels) == 1 else None


def costs_of(sluice, cells):
    """[(cost, cell, kernel, fastest kernel)], the largest first; a kernel that was not measured has no cost."""
    costs = []
    for cell, times in cells.items():
        planned = plan(sluice, cell)
        if planned and planned[0] in times:
            fastest = min(times, key=times.get)
            costs.append((times[planned[0]] / times[fastest], cell, planned[0], fastest))
    return sorted(costs, reverse=True)


def prediction_rows(sluice, cells):
    """Table rows: predicted over measured, of each of our kernels, mode and precision."""
    ratios = {}
    for cell, times in cells.items():
        mode = "training" if "_train" in cell else "inference"
        for kernel in times:
            planned = plan(sluice, cell, kernel) if kernel.startswith("cuda:") else None
            if planned:
                ratios.setdefault((kernel, mode, cell.split("|")[1]), []).append(planned[1] / times[kernel])
    for key, values in sorted(ratios.items()):
        values.sort()
        off = geometric_mean([math.exp(abs(math.log(value))) for value in values])
        few = [values[len(values) // 10], values[len(values) // 2], values[len(values) * 9 // 10]]
        yield f"| {' | '.join(key)} | {len(values)} | {off:.2f} | " + " | ".join(f"{value:.2f}" for value in few) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(os.path.dirname(HERE), "build/sluice"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", help="write what is printed into this file, too")
    args = parser.parse_args()
    cells = measured_cells(os.path.join(HERE, "results"))
    costs = costs_of(args.sluice, cells)
    if not costs:
        sys.exit(f"planned.py: {args.sluice} plans none of the cells for cuda:sm_90; build it, or name one with --sluice")
    mean = geometric_mean([cost for cost, *_ in costs])
    slower = [row for row in costs if row[0] > 1.02]
    lines = [f"Of {len(costs)} cells on an H200 the plan takes the fastest kernel, or one within 2%, in {len(costs) - len(slower)}; "
             f"all choices cost {mean:.4f} times the fastest kernels' times (geometric mean).", "",
             "| cell | planned | fastest | time / fastest |", "|---|---|---|---|",
             *(f"| {cell.replace('|', ' ')} | {kernel} | {fastest} | {cost:.2f} |" for cost, cell, kernel, fastest in slower)]
    if not args.check:
        lines += ["", "Predicted over measured times; off: the mean factor.", "",
                  "| kernel | | precision | cells | off | a tenth below | middle | a tenth above |", "|---|---|---|---|---|---|---|---|",
                  *prediction_rows(args.sluice, cells)]
    tell("\n".join(lines) + "\n", args.table)
    above = {cell for cost, cell, *_ in costs if cost > MOST}
    for found, what in (above - KNOWN, f"more than {MOST} times the fastest kernel's time"), (KNOWN - above, "known, but no longer above"):
        if found:
            print(f"planned.py: {what}: {', '.join(sorted(found))}")
    if mean > MOST_MEAN:
        print(f"planned.py: the mean is above {MOST_MEAN}")
    return int(above != KNOWN or mean > MOST_MEAN)


if __name__ == "__main__":
    sys.exit(main())
