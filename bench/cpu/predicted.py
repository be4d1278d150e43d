#!/usr/bin/env python3
"""Predicted beside measured times of the CPU's recurrent rows: `sluice bench` alone with each row, all threads numbers asked for.

    predicted.py SLUICE [--threads 1,2] [--rows cpu:fused,cpu:stack] [--seconds S] [--lock FILE] [PROBLEM...]

Without PROBLEMs: the layers of bench/cpu/shapes.txt that have no option, and stacks of one row, which have a wavefront. Medians and minima
of `sluice bench`; the ratio is predicted / median; others is what other processes took meanwhile, of one processor. Rows that
do not take a problem are left out.
"""
import argparse
import contextlib
import fcntl
import json
import math
import os
import resource
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
STACKS = ["lstm:l2_b1_t1000_i64_h64", "lstm:l2_b1_t100_i64_h64", "lstm:l3_b1_t300_i32_h32", "lstm:l4_b1_t1000_i32_h32",
          "gru:l2_b1_t200_i32_h48", "lstm:l2_b2_t300_i64_h64", "lstm:l2_b1_t1000_i128_h128", "lstm:l2_b1_t35_i200_h200",
          "lstm:l2_b1_t35_i650_h650", "lstm:l4_b1_t300_i512_h256"]


def problems():
    with open(os.path.join(HERE, "shapes.txt"), encoding="utf-8") as file:
        lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    for series, cell, mode, t, b, i, h, l, option in lines:
        if option == "none" and series != "steps":
            layers = f"l{l}_" if l != "1" else ""
            yield f"{cell}:{layers}b{b}_t{t}_i{i}_h{h}" + ("_train" if mode == "train" else "")
    for stack in STACKS:
        yield from (stack, stack + "_train")


@contextlib.contextmanager
def quiet(path):
    """Holds a lock that others respect while this machine is timed."""
    with open(path, "a", encoding="utf-8") if path else contextlib.nullcontext() as file:
        if file:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def timed(args, problem, row, threads):
    """A row of the answer, of a run that others did not disturb, or the least disturbed of args.tries; None: it does not take it."""
    best = None
    for _ in range(args.tries):
        with quiet(args.lock):
            before = busy_seconds(), time.monotonic()
            kernel = timed_once(args, problem, row, threads)
            others = (busy_seconds() - before[0]) / (time.monotonic() - before[1])
        if kernel is None:
            return None
        if best is None or others < best[0]:
            best = others, kernel
        if others < 0.05:
            break
        time.sleep(args.pause)
    return best[1] | {"others": best[0]}


def busy_seconds():
    """What all processors spent on other processes than ours so far."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system = map(int, file.readline().split()[1:4])
    own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (user + nice + system) / os.sysconf("SC_CLK_TCK") - own


def timed_once(args, problem, row, threads):
    command = [args.sluice, "bench", problem, "--device", "cpu", "--require", row, "--threads", str(threads), "--seconds",
               str(args.seconds), "--json"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    kernels = json.loads(answer)["kernels"] if answer.strip() else []
    return next((kernel for kernel in kernels if kernel["kernel"] == row and "median_s" in kernel), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rows", default="cpu:fused,cpu:stack")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--lock", metavar="FILE", help="held while a problem is timed")
    parser.add_argument("--tries", type=int, default=1, help="of a problem, while other processes take time (default 1)")
    parser.add_argument("--pause", type=float, default=2, help="seconds before the next")
    args = parser.parse_intermixed_args()
    logs = {}
    print(f"{'problem':34} {'row':10} {'threads':>7} {'median ms':>10} {'min ms':>10} {'predicted':>10} {'ratio':>6}  others")
    for problem in args.problems or problems():
        for threads in map(int, args.threads.split(",")):
            for row in args.rows.split(","):
                kernel = timed(args, problem, row, threads)
                if not kernel or "predicted_us_per_step" not in kernel:
                    continue
                predicted = kernel["median_s"] * kernel["predicted_us_per_step"] / kernel["us_per_step"]
                ratio = predicted / kernel["median_s"]
                logs.setdefault((row, threads), []).append(math.log(ratio))
                print(f"{problem:34} {row:10} {threads:7} {1e3 * kernel['median_s']:10.4g} {1e3 * kernel['min_s']:10.4g} "
                      f"{1e3 * predicted:10.4g} {ratio:6.2f} {100 * kernel['others']:6.0f}%", flush=True)
    for (row, threads), values in sorted(logs.items()):
        mean = sum(values) / len(values)
        spread = math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))
        near = sum(abs(value) < math.log(1.25) for value in values)
        print(f"{row}, {threads} threads: {len(values)} problems, geometric mean {math.exp(mean):.2f}, spread {math.exp(spread):.2f}, "
              f"within 1.25 times: {near}")


if __name__ == "__main__":
    sys.exit(main())
