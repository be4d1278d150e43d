"""Options and sizes of recurrent layers on a GPU, beside the plain layer and beside the sizes next to them.

    options.py [--sluice build/sluice] [--parts options,sizes] [--dtypes bf16,tf32] [--rounds 2] [--out options.jsonl]
               [--table options.md] [--source HASH] [--limit-seconds S] [--list]

Options: a layer with the option over the plain layer, each the fastest of our own rows (`sluice bench --require cuda:`).
In a round the plain layer is timed before and after its options; the median of all times of a problem counts.

Sizes: layers of sizes that no list of shapes has, over what their neighbours predict: the times of the next smaller and
larger size of `shapes.txt`, a straight line between them over the layer's FLOPs. Small sizes take turns with large ones.

One JSON line a problem and round; what --out has for the same --source is skipped. --list prints the problems alone.
"""
import argparse
import json
import os
import statistics
import sys
import time

from compare import Sluice, with_dtype
from lines import known_lines, tell

HERE = os.path.dirname(os.path.abspath(__file__))
START = time.monotonic()
POINTWISE, STAGE = 1.15, 1.5  # goals: time of the plain layer
WITHIN = 1.15  # of what the neighbours predict

SHAPES = {"small": "b32_t100_i256_h256", "middle": "b20_t35_i650_h650", "large": "b64_t50_i1024_h1024"}
# Name, cells, option, what it is in training and inference; "P" is half the units.
OPTIONS = [
    ("recurrent dropout", "lstm gru", "+rdrop=0.2", "train"),
    ("zoneout", "lstm", "+zoneout_c=0.1+zoneout_h=0.1", "train infer"),
    ("zoneout", "gru", "+zoneout_h=0.1", "train infer"),
    ("peephole", "lstm", "+peephole", "train infer"),
    ("clip", "lstm", "+clip=3", "train infer"),
    ("activations", "lstm gru", "+act=softsign+ract=hard_sigmoid", "train infer"),
    ("mask with holes", "lstm gru", "+mask=holes", "train infer"),
    ("mask on the left", "lstm gru", "+mask=left", "train infer"),
    ("lengths", "lstm gru", "+lengths", "train infer"),
    ("six together", "lstm", "+clip=3+lengths+peephole+rdrop=0.2+zoneout_c=0.1+zoneout_h=0.1", "train"),
    ("projection", "lstm", "_pP", "train infer"),
    ("reset before", "gru", "+reset=before", "train infer"),
]
STAGES = ("projection", "reset before")

SIZE = "b{batch}_t50_i{units}_h{units}"
BATCH = 32
LISTED = (64, 128, 256, 512, 768, 1024, 1536)
UNLISTED = (100, 300, 384, 1000, 1280)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "sluice"))
    parser.add_argument("--parts", default="options,sizes")
    parser.add_argument("--dtypes", default="bf16,tf32")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=0.03)
    parser.add_argument("--out", default="options.jsonl")
    parser.add_argument("--table")
    parser.add_argument("--source", default="")
    parser.add_argument("--limit-seconds", type=float, default=1e9)
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


# -------------------------------------------------------------------------------------------------------- problems --
def problem_of(cell, shape, mode, option=""):
    fields = shape + ("_train" if mode == "train" else "")
    if option == "_pP":
        return f"{cell}:{shape}_p{int(shape.rpartition('h')[2]) // 2}" + ("_train" if mode == "train" else "")
    return f"{cell}:{fields}{option}"


def options_of(cell, mode):
    return [(name, option) for name, cells, option, modes in OPTIONS if cell in cells.split() and mode in modes.split()]


def groups(parts):
    """Lists of (problem, key): what is timed in one go, the plain layer at both ends."""
    for size in SHAPES if "options" in parts else ():
        for cell in ("lstm", "gru"):
            for mode in ("train", "infer"):
                plain = problem_of(cell, SHAPES[size], mode)
                timed = [(problem_of(cell, SHAPES[size], mode, option), name) for name, option in options_of(cell, mode)]
                yield [(plain, "plain"), *timed, (plain, "plain again")]
    for cell in ("lstm", "gru") if "sizes" in parts else ():
        for mode in ("train", "infer"):
            sizes = sorted(LISTED + UNLISTED)
            turns = [size for pair in zip(sizes, sizes[len(sizes) // 2:]) for size in pair]
            yield [(problem_of(cell, SIZE.format(batch=BATCH, units=units), mode), str(units)) for units in turns]


def fastest(rows):
    """(ms, row), or (None, why not)."""
    if "error" in rows:
        return None, rows["error"]
    times = [(row["median_s"] * 1e3, name) for name, row in rows.items() if "median_s" in row]
    return min(times) if times else (None, "no row computes it")


# ---------------------------------------------------------------------------------------------------------- tables --
class Times:
    def __init__(self, lines, source):
        self.times, self.rows = {}, {}
        for line in lines.values():
            if line["source"] == source and line["ms"] is not None:
                self.times.setdefault((line["problem"], line["dtype"]), []).append(line["ms"])
                self.rows[line["problem"], line["dtype"]] = line["row"]

    def of(self, problem, dtype):
        times = self.times.get((problem, dtype))
        return statistics.median(times) if times else None


def option_table(times, dtypes):
    out, worst = ["| option | cell | mode | dtype | " + " | ".join(SHAPES) + " | row |", "|---" * (5 + len(SHAPES)) + "|"], {}
    for name in dict.fromkeys(option[0] for option in OPTIONS):
        for cell in ("lstm", "gru"):
            for mode in ("train", "infer"):
                option = dict(options_of(cell, mode)).get(name)
                for dtype in dtypes if option else ():
                    cells, rows = [], []
                    for shape in SHAPES.values():
                        problem, plain = problem_of(cell, shape, mode, option), problem_of(cell, shape, mode)
                        ms, base = times.of(problem, dtype), times.of(plain, dtype)
                        ratio = ms / base if ms and base else None
                        cells.append(f"{ratio:.2f} ({1e3 * ms:.0f} of {1e3 * base:.0f} us)" if ratio else "-")
                        rows.append(times.rows.get((problem, dtype), "-"))
                        worst.setdefault(name, []).append(ratio or 0)
                    out.append(f"| {name} | {cell} | {mode} | {dtype} | " + " | ".join(cells) +
                               f" | {' '.join(dict.fromkeys(rows))} |")
    out += ["", "| option | goal | largest | over the goal |", "|---|---|---|---|"]
    for name, ratios in worst.items():
        ratios = [ratio for ratio in ratios if ratio]
        goal = STAGE if name in STAGES else POINTWISE
        if ratios:
            out.append(f"| {name} | {goal} | {max(ratios):.2f} | {sum(r > goal for r in ratios)} of {len(ratios)} |")
    return out


def flops(cell, units):
    """Of a step of a row, in proportion: both products."""
    return {"lstm": 4, "gru": 3}[cell] * 2 * units * units


def size_table(times, dtypes):
    out = ["| cell | mode | dtype | " + " | ".join(f"{units} units" for units in UNLISTED) + " |",
           "|---" * (3 + len(UNLISTED)) + "|"]
    for cell in ("lstm", "gru"):
        for mode in ("train", "infer"):
            for dtype in dtypes:
                cells = []
                for units in UNLISTED:
                    low = max(size for size in LISTED if size < units)
                    high = min(size for size in LISTED if size > units)
                    ms = {size: times.of(problem_of(cell, SIZE.format(batch=BATCH, units=size), mode), dtype)
                          for size in (low, units, high)}
                    if None in ms.values():
                        cells.append("-")
                        continue
                    share = (flops(cell, units) - flops(cell, low)) / (flops(cell, high) - flops(cell, low))
                    expected = ms[low] + (ms[high] - ms[low]) * share
                    cells.append(f"{ms[units] / expected:.2f} ({1e3 * ms[units]:.0f} of {1e3 * expected:.0f} us)")
                out.append(f"| {cell} | {mode} | {dtype} | " + " | ".join(cells) + " |")
    return out


# ------------------------------------------------------------------------------------------------------------ main --
def measure(args, known):
    sluice, done = Sluice(args, ["--require", "cuda:"]), 0
    with open(args.out, "a", encoding="utf-8") as out:
        for number in range(args.rounds):
            for dtype in args.dtypes.split(","):
                for group in groups(args.parts.split(",")):
                    for problem, name in group:
                        case = f"{problem}|{dtype}|{name}|{number}|{args.source}"
                        if case in known or time.monotonic() - START > args.limit_seconds:
                            continue
                        ms, row = fastest(sluice.time(with_dtype(problem, dtype)))
                        known[case] = {"case": case, "problem": problem, "dtype": dtype, "round": number,
                                       "source": args.source, "ms": ms, "row": row}
                        out.write(json.dumps(known[case]) + "\n")
                        out.flush()
                        done += 1
    sluice.stop()
    print(f"{done} done")


def main():
    args = arguments()
    dtypes = args.dtypes.split(",")
    if args.list:
        problems = (with_dtype(problem, dtype) for dtype in dtypes for group in groups(args.parts.split(","))
                    for problem, _ in group)
        print("\n".join(dict.fromkeys(problems)))
        return
    known = known_lines(args.out)
    measure(args, known)
    times = Times(known, args.source)
    text = "\n".join(option_table(times, dtypes) + ["", *size_table(times, dtypes)]) + "\n"
    tell(text, args.table)


if __name__ == "__main__":
    sys.exit(main())
