#!/usr/bin/env python3
"""Times of the cuts of persistent kernels, as tests/data/cuts_h200.tsv has them.

    cuts.py LIST PROBLEMS ROW [--sluice build/sluice] [--device cuda:0] [--beside N] >> tests/data/cuts_h200.tsv

PROBLEMS: a file, a problem a line. Each is planned with --tune=again, which times the cuts of each pass that are predicted to be the best, as many as
SLI_CUTS (src/core/kernel.h; 4, for such a list 8 or 16 in a throw-away build). Kernels are compiled first, N problems side by side, so that
nothing runs beside what is timed. A line: LIST, problem, row, cut as choices name it, us.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

TIMED = re.compile(r"timed (\S+): (.*)")
CUT = re.compile(r"(cuda:\w+)@(\S+) ([\d.]+) us")


def plan(args, problem, folder):
    """What --tune tells of the problem; compiled kernels are kept in a folder of its own."""
    environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, problem.replace(":", "_")))
    command = [args.sluice, "plan", problem, "--device", args.device, "--require", args.row, "--tune=again"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode != 0:
        print(f"cuts.py: {problem}: {run.stderr.strip()}", file=sys.stderr)
    return run.stdout if run.returncode == 0 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list")
    parser.add_argument("problems")
    parser.add_argument("row")
    parser.add_argument("--sluice", default="build/sluice")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--beside", type=int, default=os.cpu_count())
    args = parser.parse_args()
    with open(args.problems, encoding="utf-8") as file:
        problems = file.read().split()
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(args.beside) as pool:
            list(pool.map(lambda problem: plan(args, problem, folder), problems))
        for problem in problems:
            for timed, ways in TIMED.findall(plan(args, problem, folder)):
                for row, cut, us in CUT.findall(ways):
                    print(args.list, timed, row, cut, us, sep="\t", flush=True)


if __name__ == "__main__":
    main()
