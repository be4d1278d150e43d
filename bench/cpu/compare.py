#!/usr/bin/env python3
"""Layers on the CPU beside their peers, on the same shapes in one run: Sluice, oneDNN, PyTorch, ONNX Runtime.

    compare.py [--peers-folder FOLDER] [--peers onednn2,onednn3,torch,onnxruntime] [--shapes bench/cpu/shapes.txt]
               [--filter TEXT,...] [--threads 1,2] [--dtypes f32,f32x3,bf16] [--seconds S] [--rounds R] [--require KERNEL]
               [--out cpu.jsonl] [--table cpu.md] [--limits FILE] [--source HASH] [--limit-seconds S]
               [--dry-run] [--tables-only]

FOLDER is what bench/cpu/setup made: a process for each side, which opens the same cell, filled with the same numbers. In
each of R rounds the sides take turns (another begins each time): calls for S/R seconds, one at least. A time is the median
over all of them. A cell during which other programs, or other machines of the host, took more than 2% of the CPUs is
measured again, twice at most; the quietest time counts, and the share is in the line. Results are compared: y, and in
training d x, d kernel, d recurrent kernel of the first layer; their largest difference, as a multiple of the root mean
square, is in the line, and one above the tolerance is told.

In f32x3 the peers compute f32, which is what it is measured against.

A cell is a line of the shapes' file, a dtype and a number of threads; it appends one JSON line to --out, keyed by --source and the
machine; cells that are there are skipped, so that a table grows over several short runs. --limits holds what limits.c
measured; it is measured first if the file is not there, or has not these numbers of threads. --table writes the Markdown tables of everything in --out.
"""
import argparse
import hashlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from disturbance import Disturbance  # noqa: E402
from lines import known_lines  # noqa: E402
from report import QUIET, name_of, report  # noqa: E402

START = time.monotonic()
TOLERANCE = {"f32": 1e-3, "f32x3": 1e-3, "bf16": 0.3}
QUICK = 0.05  # seconds: a call that takes longer is not warmed up again in every turn
LONG = 15  # seconds: a cell that took so long has two rounds
ROW = ["series", "cell", "mode", "t", "b", "i", "h", "l", "option"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-folder", default=os.path.join(HERE, "..", "..", "build", "cpu_peers"))
    parser.add_argument("--peers", default="onednn2,onednn3,torch,onnxruntime")
    parser.add_argument("--python", help="the Python with torch; default: the folder's, else this one")
    parser.add_argument("--shapes", default=os.path.join(HERE, "shapes.txt"))
    parser.add_argument("--notes", default=os.path.join(HERE, "notes.txt"))
    parser.add_argument("--filter", default="", help="only cells whose line contains one of these")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtypes", default="f32")
    parser.add_argument("--seconds", type=float, default=0.3, help="timed seconds of each side of a cell")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--require", default="-", help="a kernel row of Sluice instead of the plan's choice")
    parser.add_argument("--out", default="cpu.jsonl")
    parser.add_argument("--table")
    parser.add_argument("--limits")
    parser.add_argument("--source", default="")
    parser.add_argument("--limit-seconds", type=float, default=1e9)
    parser.add_argument("--statistic", default="median", choices=["median", "min"],
                        help="of the calls, in the tables; min where others use the machine")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--tables-only", action="store_true")
    return parser.parse_args()


def generation_of(facts):
    """Of AMD's processors, whose name may be "AMD EPYC" and no more."""
    family, model = int(facts.get("cpu family", 0)), int(facts.get("model", 0))
    if facts.get("vendor_id") != "AuthenticAMD":
        return ""
    zen4 = family == 25 and (16 <= model < 32 or 96 <= model < 128 or 160 <= model < 176)
    return " (Zen 4)" if zen4 else {25: " (Zen 3)", 26: " (Zen 5)"}.get(family, "")


def machine():
    facts = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    model, flags = facts.get("model name", platform.machine()) + generation_of(facts), set(facts.get("flags", "").split())
    best = next((name for flag, name in (("amx_bf16", "AMX"), ("avx512_bf16", "AVX-512+BF16"), ("avx512f", "AVX-512"), ("avx2", "AVX2"))
                 if flag in flags), "base")
    return f"{model}, {best}, {len(os.sched_getaffinity(0))} CPUs"


# ---------------------------------------------------------------------------------------------------------- cells --
def read_cells(args):
    """Lines `SERIES CELL MODE T B I H L OPTION`, in every dtype and number of threads that is asked for."""
    cells = []
    with open(args.shapes, encoding="utf-8") as file:
        rows = [line.partition("#")[0].split() for line in file]
    for dtype in args.dtypes.split(","):
        for threads in map(int, args.threads.split(",")):
            for words in rows:
                if words:
                    cell = {key: int(w) if w.isdigit() else w for key, w in zip(ROW, words)}
                    cells.append({**cell, "dtype": dtype, "threads": threads})
    wanted = args.filter.split(",")
    return [cell for cell in cells if any(text in name_of(cell) for text in wanted)]


def key_of(cell, args, where):
    return f"{name_of(cell)}|{args.require}|{where}|{args.source}"


# ---------------------------------------------------------------------------------------------------------- sides --
class Side:
    """A process that answers each line it reads with one JSON object:
        open CELL MODE DTYPE T B I H L THREADS OPTION KERNEL    {"what": implementation} or {"error": why not}
        time SECONDS WARM                                       {"times": [...]}: seconds of the calls
        check                                                   {"y": [root mean square, samples...], ...}
        close                                                   {"what": ...}"""

    def __init__(self, name, command):
        self.name, self.command, self.process = name, command, None

    def ask(self, request):
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            stderr=subprocess.DEVNULL)
        try:
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            self.process.send_signal(signal.SIGSTOP)  # its threads would go on spinning beside the others' turns
        except OSError:
            line = ""
        try:
            return json.loads(line)
        except ValueError:
            self.stop()
            return {"error": "the process ended" if not line else f"no answer but {line[:80]!r}"}

    def open(self, cell, require):
        sizes = " ".join(str(cell[key]) for key in "tbihl")
        self.times, self.last = [], None
        dtype = "f32" if cell["dtype"] == "f32x3" and self.name != "sluice" else cell["dtype"]
        self.answer = self.ask(f"open {cell['cell']} {cell['mode']} {dtype} {sizes} {cell['threads']} "
                               f"{cell['option']} {require}")
        return "error" not in self.answer

    def check(self):
        """Results, by the first call, which also warms up."""
        begin = time.monotonic()
        answer = self.ask("check")
        self.last = time.monotonic() - begin
        return answer

    def turn(self, seconds):
        warm = 1 if self.last < QUICK else 0
        answer = self.ask(f"time {seconds:.4f} {warm}")
        if "error" in answer:
            self.answer = answer
        else:
            self.times += answer["times"]
            self.last = answer["times"][-1]

    def entry(self):
        if "error" in self.answer:
            return {"refusal": self.answer["error"]}
        return {"what": self.answer["what"], "median": statistics.median(self.times) * 1e3,
                "min": min(self.times) * 1e3, "max": max(self.times) * 1e3, "n": len(self.times)}

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


def sides_of(args):
    def path(name):
        return os.path.join(args.peers_folder, name)

    python = args.python or (path("venv/bin/python") if os.path.exists(path("venv/bin/python")) else sys.executable)
    commands = {"sluice": [path("side_sluice")], "onednn2": [path("side_onednn2")], "onednn3": [path("side_onednn3")],
                "torch": [python, os.path.join(HERE, "side_torch.py")],
                "onnxruntime": [python, os.path.join(HERE, "side_onnxruntime.py")]}
    return [Side(name, commands[name]) for name in ["sluice", *filter(None, args.peers.split(","))]]


def difference(ours, theirs):
    """Largest difference of samples (and of the root mean squares), as a multiple of the root mean square."""
    scale = max(abs(ours[0]), 1e-30)
    return max(abs(a - b) for a, b in zip(ours, theirs)) / scale


def measure_cell(args, sides, cell):
    able = []
    for side in sides:
        require = args.require if side.name == "sluice" else "-"
        if side.open(cell, require):
            able.append(side)
    checks = {side.name: side.check() for side in able}
    begin = time.monotonic()
    for r in range(args.rounds):
        if not able or r >= 2 and time.monotonic() - begin > LONG:
            break
        for side in able[r % len(able):] + able[:r % len(able)]:
            side.turn(args.seconds / args.rounds)
    line = {**cell, "sides": {side.name: side.entry() for side in sides}, "differences": {}}
    for name, results in checks.items():
        if cell["option"] != "rdrop" and name != "sluice" and "sluice" in checks and "error" not in results:
            line["differences"][name] = {key: float(f"{difference(checks['sluice'][key], values):.2g}")
                                         for key, values in results.items() if key in checks["sluice"]}
    for side in able:
        side.ask("close")
    return line


def measure_quietly(args, sides, cell):
    """Again, twice at most, where others took more than QUIET of the CPUs meanwhile; the quietest counts."""
    best = None
    for _ in range(3):
        others = Disturbance(lambda: [side.process.pid for side in sides if side.process])
        line = measure_cell(args, sides, cell)
        line["others"] = round(others.share(), 4)
        if best is None or line["others"] < best["others"]:
            best = line
        if best["others"] <= QUIET:
            break
    return best


def tell(line):
    times = ", ".join(f"{name} {entry['median']:.4g}" for name, entry in line["sides"].items() if "median" in entry)
    print(f"{name_of(line)}: {times} ms", flush=True)
    for name, found in line["differences"].items():
        for key, value in found.items():
            if not value <= TOLERANCE[line["dtype"]]:
                print(f"    DIFFERENT: {name} {key} by {value} of the root mean square", flush=True)


def measured_limits(args):
    if args.limits and os.path.exists(args.limits):
        with open(args.limits, encoding="utf-8") as file:
            limits = json.load(file)
        if all(threads in limits for threads in args.threads.split(",")):
            return limits
    limits = json.loads(subprocess.run([os.path.join(args.peers_folder, "limits"), args.threads], check=True,
                                       stdout=subprocess.PIPE, text=True).stdout)
    if args.limits:
        with open(args.limits, "w", encoding="utf-8") as file:
            json.dump(limits, file, indent=1)
    return limits


def source_hash():
    """Of everything that decides Sluice's times, by content."""
    digest, root = hashlib.sha256(), os.path.join(HERE, "..", "..")
    for folder in ("src", "include"):
        for where, folders, files in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(files):
                with open(os.path.join(where, name), "rb") as file:
                    digest.update(name.encode() + file.read())
    return digest.hexdigest()[:12]


def main():
    args = arguments()
    args.source = args.source or source_hash()
    where, known = machine(), known_lines(args.out)
    todo = [cell for cell in read_cells(args) if key_of(cell, args, where) not in known]
    if args.dry_run:
        print(*map(name_of, todo), sep="\n")
        return
    done, sides = 0, [] if args.tables_only else sides_of(args)
    limits = measured_limits(args)
    with open(args.out, "a", encoding="utf-8") as out:
        for cell in todo if sides else []:
            if time.monotonic() - START > args.limit_seconds:
                break
            line = {"case": key_of(cell, args, where), "source": args.source, "machine": where, "limits": limits,
                    **measure_quietly(args, sides, cell)}
            out.write(json.dumps(line) + "\n")
            out.flush()
            known[line["case"]] = line
            tell(line)
            done += 1
    for side in sides:
        side.stop()
    members = [line for line in known.values() if line["machine"] == where and line["source"] == args.source]
    text = report(members, args.notes, args.statistic)
    if args.table:
        with open(args.table, "w", encoding="utf-8") as file:
            file.write(text)
    print(f"{done} cells done, {len(todo) - done} left")


if __name__ == "__main__":
    main()
