"""The tables of layers and language models in README.md and docs/MEASURED.md, from the committed lines of compare.py, lm.py and
cpu/compare.py.

    readme.py [--write] [--root FOLDER]

bench/results/LATEST names the files, oldest first. A cell (problem and precision) is its latest line that has a time of our
own kernels and of a peer. Each machine of CPUs has a line "cpu: what README calls it | what MEASURED does | its files", each other GPU
"gpu: its name | its files": apart, so that no line of theirs takes the place of one of the H200's. The tables stand between <!-- NAME --> and <!-- /NAME -->. Without --write nothing is written:
exit code 1, and a sentence, where a document has another table, or a file of results is not in LATEST.
"""
import argparse
import json
import os
import sys

from compare import read_shapes
from lines import known_lines
from lm import GOALS, speed
from tables import TARGETS, columns_of, geometric_mean, ratio, ratios_of

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "cpu"))
from report import goal_ratios  # noqa: E402
DTYPES = ["f32", "tf32", "bf16", "f16"]
PRESETS, LM_DTYPES = ["ptb-small", "ptb-medium", "ptb-large"], ["bf16", "tf32"]
LM_PEERS = {"eager": "eager", "graph": "graph", "pure_eager": "all bf16, eager", "pure_graph": "all bf16, graph"}

CPU_COLUMNS = [("inference", "fp32 inference"), ("training", "fp32 training"), ("lengths", "lengths, PyTorch packed / Sluice"),
               ("bf16 inference", "bf16 inference"), ("bf16 training", "bf16 training")]
# Title, title of cpu/report.py, goal of the mean, of every shape.
CPU_GOALS = [
    ("f32 inference", "fp32 inference", 1.3, 1.0), ("f32 training", "fp32 training", 1.4, 1.0),
    ("bf16 inference", "bf16 inference", 1.8, None), ("bf16 training", "bf16 training", 3, None),
    ("lengths, PyTorch's packed sequences", "lengths, PyTorch packed / Sluice", 5, None),
    ("recurrent dropout, PyTorch's loop", "recurrent dropout, PyTorch loop / Sluice", 5, None),
    ("GRU per FLOP, LSTM's time / GRU's", "GRU per FLOP", 1.0, None),
]


class Wrong(Exception):
    """A sentence for who runs this."""


# ------------------------------------------------------------------------------------------------------------- lines --
def read_latest(results):
    """The files of LATEST, oldest first; none that is like them may be missing there. [(name, name, files)] of CPUs, [(name, files)] of other GPUs."""
    names, left_out, cpus, gpus = [], set(), [], []
    with open(os.path.join(results, "LATEST"), encoding="utf-8") as file:
        for line in file:
            words = line.partition("#")[0].split()
            if words and words[0] == "cpu:":
                name, short, files = line.removeprefix("cpu:").split("|")
                cpus.append((name.strip(), short.strip(), files.split()))
            elif words and words[0] == "gpu:":
                name, files = line.removeprefix("gpu:").split("|")
                gpus.append((name.strip(), files.split()))
                left_out.update(files.split())
            elif words and words[0] == "-":
                left_out.add(words[1])
            elif words:
                names.append(words[0])
    for name in sorted(os.listdir(results)):
        name, end = os.path.splitext(name)
        if end == ".jsonl" and name.startswith(("layers_", "lm_")) and name not in left_out.union(names):
            raise Wrong(f"bench/results/{name}.jsonl is not in bench/results/LATEST.")
    return names, cpus, gpus


def lines_of(results, names, whole):
    """[line] of each cell, the latest that `whole` takes."""
    latest = {}
    for name in names:
        with open(os.path.join(results, name + ".jsonl"), encoding="utf-8") as file:
            for text in file:
                line = json.loads(text)
                if whole(line):
                    latest[line["case"].rpartition("|")[0]] = line
    return list(latest.values())


def whole_layer(line):
    columns = columns_of(line)
    return columns["own"][0] and columns["peer"][0]


def best_peer(line):
    """(words per second, name) of the fastest of PyTorch."""
    return max(((peer["words_per_s"], LM_PEERS[name]) for name, peer in line["torch"].items() if "words_per_s" in peer),
               default=(None, ""))


def whole_lm(line):
    return "words_per_s" in line["sluice"] and best_peer(line)[0]


# ------------------------------------------------------------------------------------------------------------ README --
def shape_name(line):
    return ("" if line["cell"] == "lstm" else line["cell"].upper() + " ") + line["shape"]


def worst_of(members):
    return min(((ratios_of(line, {})["peer"], shape_name(line)) for line in members), key=lambda pair: pair[0])


def layer_table(lines, others):
    """A row of the H200's training and inference, and of each of `others`, [(GPU, lines)]."""
    out = ["| | " + " | ".join(DTYPES) + " |", "|---|" + "---|" * len(DTYPES)]
    for gpu, of in [("", lines)] + others:
        out += layer_rows(of, f"{gpu}, " if gpu else "")
    return "\n".join(out)


def layer_rows(lines, gpu):
    out = []
    for title, mode in (("training", "train"), ("inference", "infer")):
        cells = []
        for dtype in DTYPES:
            members = [line for line in lines if line["mode"] == mode and line["dtype"] == dtype]
            if not members:
                cells.append("-")
                continue
            mean, (worst, name) = geometric_mean([ratios_of(line, {})["peer"] for line in members]), worst_of(members)
            shapes = "" if any(cell != "-" for cell in cells) else " shapes"
            cells.append(f"{mean:.2f} ({len(members)}{shapes}, worst {worst:.2f}: {name})")
        if not gpu or any(cell != "-" for cell in cells):
            out.append(f"| {gpu}{title} | " + " | ".join(cells) + " |")
    return out


def lm_rows(lines):
    rows = {(line["preset"], line["dtype"]): line for line in lines}
    return [rows[preset, dtype] for preset in PRESETS for dtype in LM_DTYPES if (preset, dtype) in rows]


def lm_table(lines, others):
    """Rows of the H200, then of each of `others`, [(GPU, lines)]."""
    out = ["| preset | dtype | Sluice, own kernels | Sluice, as planned | PyTorch, its best | ratio | as planned |",
           "|---|---|---|---|---|---|---|"]
    for gpu, line in [(f"{gpu}, " if gpu else "", line) for gpu, of in [("", lines)] + others for line in lm_rows(of)]:
        best, name = best_peer(line)
        planned = line.get("planned") or {}
        both = [f"{entry['words_per_s'] / best:.2f}" if "words_per_s" in entry else "-" for entry in (line["sluice"], planned)]
        out.append(f"| {gpu}{line['preset']} | {line['dtype']} | {speed(line['sluice'])} | {speed(planned)} "
                   f"| {best:,.0f} ({name}) | {both[0]} | {both[1]} |")
    return "\n".join(out)


# ---------------------------------------------------------------------------------------------------------- MEASURED --
def judged(value, goal, digits=2):
    if value is None:
        return f"not measured (goal {goal})"
    while value < goal <= round(value, digits):  # a digit more than 10.0 of 10: missed
        digits += 1
    return f"{value:.{digits}f} of {goal}: {'met' if value >= goal else 'missed'}"


def floor_text(members, floor):
    if not members:
        return f"not measured (goal {floor})"
    worst, name = worst_of(members)
    below = sum(ratios_of(line, {})["peer"] < floor for line in members)
    return f"{worst:.2f} ({name}) of {floor}: " + (f"missed, {below} of {len(members)} below" if below else "met")


def layer_goals(lines, others):
    out = ["| layers | strongest peer / Sluice | default / Sluice | floor on every shape | strongest peer / as planned |",
           "|---|---|---|---|---|"]
    for gpu, of in [("", lines)] + others:
        out += goal_rows(of, f"{gpu}, " if gpu else "")
    return "\n".join(out)


def goal_rows(lines, gpu):
    """A row of each goal; of other GPUs than the H200 those alone that all shapes were timed for: a part of them is not the goal's mean."""
    out, shapes = [], read_shapes(os.path.join(HERE, "shapes.txt"))
    for title, mode, dtypes, goal, floor, default_goal in TARGETS:
        members = [line for line in lines if line["mode"] == mode and line["dtype"] in dtypes]
        if gpu and len(members) < sum(shape["mode"] == mode for shape in shapes):
            continue
        ratios = [ratios_of(line, {}) for line in members]
        mean = {key: geometric_mean([r[key] for r in ratios]) for key in ("peer", "default")}
        planned = geometric_mean([ratio(columns_of(line)["peer"], columns_of(line)["plan"]) for line in members])
        default = judged(mean["default"], default_goal, 1) if default_goal else f"{mean['default']:.1f}" if members else "-"
        out.append(f"| {gpu}{title} | {judged(mean['peer'], goal)} | {default} | {floor_text(members, floor)} "
                   f"| {f'{planned:.2f}' if planned else '-'} |")
    return out


def lm_goals(lines):
    """Of the H200, which these goals are of."""
    out = ["| words per second | goal | own kernels | as planned |", "|---|---|---|---|"]
    for line in lm_rows(lines):
        goal = GOALS.get((line["preset"], line["dtype"]))
        if goal:
            cells = [f"{speed(entry)}: {'met' if entry['words_per_s'] >= goal else 'missed'}" if "words_per_s" in entry else "-"
                     for entry in (line["sluice"], line.get("planned") or {})]
            out.append(f"| {line['preset']} {line['dtype']} | {goal:,} | {cells[0]} | {cells[1]} |")
    return "\n".join(out)


# -------------------------------------------------------------------------------------------------------------- CPUs --
def cpu_ratios(results, names, threads):
    """{title: ratios} of a machine's files."""
    found = {}
    for name in names:
        path = os.path.join(results, name + ".jsonl")
        if not os.path.exists(path):
            raise Wrong(f"bench/results/{name}.jsonl is in bench/results/LATEST, but not here.")
        for title, ratios in goal_ratios(known_lines(path).values(), threads).items():
            if ratios:
                found[title] = ratios
    return found


def cpu_table(results, cpus):
    out = ["| | threads | " + " | ".join(title for title, _ in CPU_COLUMNS) + " |", "|---|---|" + "---|" * len(CPU_COLUMNS)]
    for machine, _, names in cpus:
        for threads in (1, 2):
            ratios = cpu_ratios(results, names, threads)
            cells = [f"{geometric_mean(ratios[title]):.2f} ({min(ratios[title]):.2f})" if title in ratios else ""
                     for _, title in CPU_COLUMNS]
            out.append(f"| {machine if threads == 1 else ''} | {threads} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def cpu_judged(values, goal):
    """One thread's and two threads' value beside the goal, before they are rounded; None was not measured."""
    if not any(values):
        return "not measured"
    return ", ".join(f"{value:.2f}: {'met' if value >= goal else 'missed'}" if value else "not measured" for value in values)


def cpu_goals(results, cpus):
    out = ["| layers | goal | " + " | ".join(name for _, name, _ in cpus) + " |", "|---|---|" + "---|" * len(cpus)]
    ratios = [[cpu_ratios(results, names, threads) for threads in (1, 2)] for _, _, names in cpus]
    for title, key, mean, floor in CPU_GOALS:
        means = [cpu_judged([geometric_mean(of.get(key, [])) for of in both], mean) for both in ratios]
        out.append(f"| {title}, mean | {mean} | " + " | ".join(means) + " |")
        if floor:
            worst = [cpu_judged([min(of[key]) if key in of else None for of in both], floor) for both in ratios]
            out.append(f"| every shape | {floor} | " + " | ".join(worst) + " |")
    return "\n".join(out)


# --------------------------------------------------------------------------------------------------------- documents --
def replaced(text, document, name, table):
    first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, found, rest = text.partition(first)
    _, ended, after = rest.partition(last)
    if not found or not ended:
        raise Wrong(f"{document} has no place for a table: <!-- {name} --> and <!-- /{name} -->.")
    return before + first + table + "\n" + last + after


def lines_of_all(results, names, gpus, prefix, whole):
    """The H200's lines of one kind of file, and [(GPU, lines)] of the other GPUs."""
    def of(files):
        return lines_of(results, [name for name in files if name.startswith(prefix)], whole)
    return of(names), [(gpu, of(files)) for gpu, files in gpus]


def documents(results):
    """{path: {name: table}}"""
    names, cpus, gpus = read_latest(results)
    layers = lines_of_all(results, names, gpus, "layers_", whole_layer)
    models = lines_of_all(results, names, gpus, "lm_", whole_lm)
    found = {"README.md": {"gpu-layer-table": layer_table(*layers), "gpu-lm-table": lm_table(*models)},
             "docs/MEASURED.md": {"gpu-layer-goals": layer_goals(*layers), "gpu-lm-goals": lm_goals(models[0])}}
    if cpus:
        found["README.md"]["cpu-layer-table"] = cpu_table(results, cpus)
        found["docs/MEASURED.md"]["cpu-layer-goals"] = cpu_goals(results, cpus)
    return found


def check(root, write):
    changed = {}
    for document, tables in documents(os.path.join(root, "bench", "results")).items():
        path = os.path.join(root, document)
        with open(path, encoding="utf-8") as file:
            old = text = file.read()
        for name, table in tables.items():
            text = replaced(text, document, name, table)
            if text != old and not write:
                raise Wrong(f"{document}: {name} is not what bench/results/LATEST gives; bench/readme.py --write writes it.")
        if text != old:
            changed[path] = text
    for path, text in changed.items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(HERE, ".."))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    try:
        check(args.root, args.write)
    except (Wrong, FileNotFoundError) as error:
        sys.exit(f"readme.py: {error}")


if __name__ == "__main__":
    main()
