"""The tables of compare.py: columns of a line, ratios, geometric means, the worst shape of each row of the targets."""
import math

# Rows of the targets: title, mode, precisions, strongest peer / own: goal and floor, default / own: goal.
TARGETS = [
    ("training, bf16", "train", ["bf16"], 3, 1.3, 10),
    ("training, f16", "train", ["f16"], 2.5, 1.2, 6),
    ("training, tf32", "train", ["tf32"], 3, 1.3, 6),
    ("training, f32", "train", ["f32"], 1.5, 1.0, 2.5),
    ("training, f32x3 beside f32", "train", ["f32x3"], 1.5, 1.0, 2.5),
    ("inference, bf16", "infer", ["bf16"], 3, 1.2, None),
    ("inference, tf32", "infer", ["tf32"], 3, 1.2, None),
    ("inference, f16", "infer", ["f16"], 2, 1.1, None),
    ("inference, f32", "infer", ["f32"], 1.5, 1.0, None),
    ("inference, f32x3 beside f32", "infer", ["f32x3"], 1.5, 1.0, None),
]


def read_published(path):
    """{(cell, shape, mode, dtype): (ms, name)} of published.txt."""
    published = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.partition("#")[0].split()
            if words:
                cell, shape, mode, dtype, name, ms = words
                published[cell, shape, mode, dtype] = (float(ms), name)
    return published


def best_of(entries):
    times = [(entry["median"], name) for name, entry in entries if entry and "median" in entry]
    return min(times) if times else (None, "")


def predicted_of(entry):
    values = [value for key, value in entry.items() if key.startswith("predicted") and isinstance(value, (int, float))]
    return values[0] if "median" in entry and values and values[0] >= 0 else None


def columns_of(line):
    """(ms, name) of each column. `peer` is the best of PyTorch and cuDNN's C API; `own` our own kernels alone, with parameters and
    tensors of 16 bits where those were timed, as the peers' are, `floats` with float ones; `plan` what the planner's prediction would
    take, cuDNN's rows included unless memory has 16 bits; `any` the fastest of all rows."""
    rows = line.get("sluice", {})
    cudnn = [(name, entry) for name, entry in {**rows, **line.get("peer_rows", {})}.items() if name.startswith("cudnn")]
    eager, graph = ("t", line.get("torch_eager")), ("tg", line.get("torch_graph"))
    floats = best_of([item for item in rows.items() if not item[0].startswith("cudnn")])
    own = best_of(line["narrow"].items()) if "narrow" in line else floats
    rows = line["narrow"] if "narrow" in line else rows
    predicted = [(predicted_of(entry), name) for name, entry in rows.items() if predicted_of(entry) is not None]
    plan = min(predicted)[1] if predicted else None
    return {"eager": best_of([eager]), "graph": best_of([graph]), "cudnn": best_of(cudnn),
            "peer": best_of([eager, graph, *cudnn]), "any": best_of([*rows.items(), *cudnn]),
            "own": own, "floats": floats,
            "plan": (rows[plan]["median"], plan) if plan else (None, "")}


def ratio(above, below):
    return above[0] / below[0] if above[0] and below[0] else None


def geometric_mean(values):
    values = [value for value in values if value]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def number(value):
    return f"{value:.2f}" if value else "-"


def cell_text(entry):
    return f"{entry[0]:.4g} {entry[1]}".strip() if entry[0] else "-"


def ratios_of(line, published):
    c = columns_of(line)
    dtype = line["dtype"].replace("f32x3", "f32")
    quoted = published.get((line["cell"], line["shape"], line["mode"], dtype), (None, ""))
    return {"peer": ratio(c["peer"], c["own"]), "default": ratio(c["eager"], c["own"]), "any": ratio(c["peer"], c["any"]),
            "plan": ratio(c["peer"], c["plan"]), "published": ratio(quoted, c["own"]), "quoted": quoted}


def target_row(title, members, goal, floor, default_goal, published):
    ratios = [(ratios_of(line, published), line) for line in members]
    peers = [(r["peer"], f"{line['cell']} {line['shape']}") for r, line in ratios if r["peer"]]
    worst = min(peers) if peers else (None, "")
    below = [name for value, name in peers if value < floor]
    missing = len(members) - len(peers)
    without = f" ({missing} without)" if missing else ""
    return (f"| {title} | {len(peers)}{without} | {number(geometric_mean([v for v, _ in peers]))} "
            f"| {goal} | {number(geometric_mean([r['default'] for r, _ in ratios]))} | {default_goal or '-'} "
            f"| {number(worst[0])} {worst[1]} | {floor} | {len(below)} | "
            f"{number(geometric_mean([r['plan'] or r['any'] for r, _ in ratios]))} "
            f"| {number(geometric_mean([r['published'] for r, _ in ratios]))} |")


def target_table(lines, published):
    out = ["| | shapes | strongest peer / Sluice | goal | default / Sluice | goal | worst | floor | shapes below it "
           "| strongest peer / plan's choice | published / Sluice |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for title, mode, dtypes, goal, floor, default_goal in TARGETS:
        members = [line for line in lines if line["mode"] == mode and line["dtype"] in dtypes]
        if members:
            out.append(target_row(title, members, goal, floor, default_goal, published))
    return "\n".join(out) + "\n"


def detail_table(title, lines, published):
    out = [f"### {title}", "",
           "| shape | T,B,I,H,L | eager | graph | cuDNN C API | Sluice | float parameters | plan's choice | strongest / Sluice "
           "| default / Sluice | published | published / Sluice |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    all_ratios = []
    for line in lines:
        c, r = columns_of(line), ratios_of(line, published)
        all_ratios.append(r)
        sizes = ",".join(str(line[key]) for key in "tbihl")
        note = f" ({line['error'][:60]})" if "error" in line else ""
        cells = [line["shape"] + note, sizes, cell_text((c["eager"][0], "")), cell_text((c["graph"][0], "")),
                 *(cell_text(c[name]) for name in ("cudnn", "own", "floats", "plan")), number(r["peer"]), number(r["default"]),
                 cell_text(r["quoted"]), number(r["published"])]
        out.append("| " + " | ".join(cells) + " |")
    means = {key: number(geometric_mean([r[key] for r in all_ratios])) for key in ("peer", "default", "published")}
    out += [f"| geometric mean | | | | | | | | {means['peer']} | {means['default']} | | {means['published']} |", ""]
    return "\n".join(out)


def tables(lines, published):
    """Markdown: one row for each row of the targets; and every shape by cell, mode and precision."""
    groups = {}
    for line in lines:
        groups.setdefault((line["cell"], line["mode"], line["dtype"]), []).append(line)
    details = [detail_table(" ".join(key), sorted(members, key=lambda line: line["shape"]), published)
               for key, members in sorted(groups.items())]
    return target_table(lines, published), "\n".join(details)
