"""The tables of compare.py: each cell beside its peers and its physical limit, one row for each goal.

The limit of a cell is the sum of what cannot be had for less on this machine, as limits.c measured it:
    the products over all steps (input projection; in training d x and the weight gradients), FLOPs at the peak of all threads
    each step of the recurrence: the longer of its FLOPs at the peak and reading a thread's part of the recurrent weights, as much
        of it as fits from L1, then L2, the rest from L3, or from memory where all of them do not fit there
    the cell's mathematics, CELL_FLOPS a unit, at the peak
    a barrier a step, the cheapest way to meet, if units are split over threads; or none, and every thread reads all weights, if the
        batch is
Layers follow each other."""
import fnmatch
import math
import os
import statistics

# Multiply-adds count two. A rational tanh or sigmoid: about 12 FLOPs of multiply-adds each way, 24 in all.
CELL_FLOPS = {"lstm": 5 * 24 + 8, "gru": 3 * 24 + 10, "rnn": 26}
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
SIDES = ["onednn2", "onednn3", "torch", "onnxruntime"]
TITLES = {"onednn2": "oneDNN 2", "onednn3": "oneDNN 3", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
QUIET = 0.02  # of the CPUs' time, that others may take while a cell is measured
EXPLAIN = 1.6  # times the limit, from which on a sentence is due
# Goals: title, series, mode (None: both), dtype, peers, geometric mean, floor of every shape.
GOALS = [
    ("fp32 inference", "page", "infer", "f32", SIDES, 1.3, 1.0),
    ("fp32 training", "page", "train", "f32", SIDES, 1.4, 1.0),
    ("f32x3 inference, peers in fp32", "page", "infer", "f32x3", SIDES, None, None),
    ("f32x3 training, peers in fp32", "page", "train", "f32x3", SIDES, None, None),
    ("bf16 inference", "page", "infer", "bf16", SIDES, 1.8, None),
    ("bf16 training", "page", "train", "bf16", SIDES, 3.0, None),
    ("GRU, fp32 inference", "gru", "infer", "f32", SIDES, None, None),
    ("GRU, fp32 training", "gru", "train", "f32", SIDES, None, None),
    ("RNN, fp32", "rnn", None, "f32", SIDES, None, None),
    ("lengths, PyTorch packed / Sluice", "lengths", None, "f32", ["torch"], 5.0, None),
    ("lengths, strongest peer / Sluice", "lengths", None, "f32", SIDES, None, None),
    ("per step, H <= 64, ONNX Runtime's call a step / Sluice's", "steps", None, "f32", ["onnxruntime"], 2.0, None),
    ("recurrent dropout, PyTorch loop / Sluice", "rdrop", None, "f32", ["torch"], None, None),
    ("GRU, reset before, fp32 inference", "before", "infer", "f32", SIDES, None, None),
    ("GRU, reset before, fp32 training", "before", "train", "f32", SIDES, None, None),
    ("LSTM with a projection, fp32", "proj", None, "f32", SIDES, None, None),
]


# ---------------------------------------------------------------------------------------------------------- limits --
def length_of(b, batch, steps):
    return steps - (steps - 1) * b // (batch - 1) if batch > 1 else steps


def rows_alive(line):
    """Rows of each step."""
    if line["option"] != "lengths":
        return [line["b"]] * line["t"]
    ends = [length_of(b, line["b"], line["t"]) for b in range(line["b"])]
    return [sum(end > t for end in ends) for t in range(line["t"])]


def outputs_of(line):
    return line["h"] // 2 if line["option"] == "proj" else line["h"]


AMX_PRODUCTS = {"bf16": 1, "f32x3": 6}  # of bf16 on AMX for one
WEIGHT_BYTES = {"f32": 4, "f32x3": 6, "bf16": 2}


def recurrent_weights(line):
    """Of a layer: R, and a projection."""
    matrices = GATES[line["cell"]] + (line["option"] == "proj")
    return line["h"] * outputs_of(line) * matrices


def flops_of(line):
    rows, inputs = sum(rows_alive(line)), line["i"]
    total = 0
    for _ in range(line["l"]):
        total += 2 * rows * (line["h"] * GATES[line["cell"]] * inputs + recurrent_weights(line))
        inputs = outputs_of(line)
    return total * (3 if line["mode"] == "train" else 1)


def peak_of(line, rates):
    if line["dtype"] in AMX_PRODUCTS and "amx_bf16" in rates:
        return rates["amx_bf16"] * 1e9 / AMX_PRODUCTS[line["dtype"]]
    pairs = rates.get("dot_bf16", 0) if line["dtype"] == "bf16" else 0
    return max(pairs, *(value for key, value in rates.items() if key.startswith("fma_"))) * 1e9


def stream_seconds(limits, rates, mine, all_bytes):
    """Reading `mine` bytes, a thread's part of `all_bytes`, once more."""
    seconds, far = 0, "l3_gbs" if all_bytes <= limits["l3_bytes"] else "dram_gbs"
    for room, rate in ((limits["l1_bytes"] * 0.75, "l1_gbs"), (limits["l2_bytes"] * 0.875, "l2_gbs"), (mine, far)):
        part = min(mine, room)
        seconds += part / rates[rate] * 1e-9
        mine -= part
    return seconds


def recurrence_seconds(line, split_batch):
    limits, threads = line["limits"], line["threads"]
    rates = limits[str(threads)]
    h, weights = line["h"], recurrent_weights(line)
    every = weights * WEIGHT_BYTES[line["dtype"]]
    read = stream_seconds(limits, rates, every if split_batch else every / threads, every)
    peak = peak_of(line, rates) * threads
    maths = max(value for key, value in rates.items() if key.startswith("fma_")) * 1e9 * threads
    barrier = 0 if split_batch else rates["barrier_ns"] * 1e-9
    return sum(max(2 * rows * weights / peak, read) + rows * h * CELL_FLOPS[line["cell"]] / maths + barrier
               for rows in rows_alive(line))


def limit_seconds(line):
    threads = line["threads"]
    peak = peak_of(line, line["limits"][str(threads)]) * threads
    rows, gates, inputs, total = sum(rows_alive(line)), GATES[line["cell"]], line["i"], 0
    steps = recurrence_seconds(line, False)
    if line["b"] >= threads:
        steps = min(steps, recurrence_seconds(line, True))
    train = line["mode"] == "train"
    for _ in range(line["l"]):
        product = 2 * rows * gates * line["h"] / peak
        total += product * inputs + steps
        if train:  # the recurrence backward; d x and d kernel; d recurrent kernel
            total += steps + product * 2 * inputs + 2 * rows * recurrent_weights(line) / peak
        inputs = outputs_of(line)
    return total


# ---------------------------------------------------------------------------------------------------------- ratios --
STATISTIC = "median"


def time_of(line, side):
    return line["sides"].get(side, {}).get(STATISTIC)


def strongest(line, sides):
    times = [(time_of(line, side), side) for side in sides if time_of(line, side)]
    return min(times) if times else (None, "")


def ratio_of(line, sides):
    ours, peer = time_of(line, "sluice"), strongest(line, sides)[0]
    return peer / ours if ours and peer else None


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def number(value):
    return f"{value:.2f}" if value else "-"


def sizes_of(line):
    return "/".join(str(line[key]) for key in "tbihl")


def name_of(line):
    return f"{line['series']} {line['cell']} {line['mode']} {sizes_of(line)} {line['option']} {line['dtype']} {line['threads']}t"


def goal_row(title, members, sides, goal, floor):
    pairs = [(ratio_of(line, sides), line) for line in members]
    pairs = [(value, line) for value, line in pairs if value]
    if not pairs:
        return None
    worst, line = min(pairs, key=lambda pair: pair[0])
    below = sum(value < (floor or 0) for value, _ in pairs)
    at_limit = geometric_mean([strongest(line, sides)[0] / (limit_seconds(line) * 1e3) for _, line in pairs])
    return (f"| {title} | {len(pairs)} | {number(geometric_mean([v for v, _ in pairs]))} | {number(at_limit)} | {goal or '-'} "
            f"| {number(worst)} {line['cell']} {line['mode']} {sizes_of(line)} | {floor or '-'} | {below if floor else '-'} |")


def gru_pairs(members):
    """[(Sluice's LSTM time a FLOP / its GRU time a FLOP, shape)], on the same shapes."""
    times = {(line["cell"], line["mode"], sizes_of(line)): time_of(line, "sluice") / flops_of(line) for line in members
             if line["option"] == "none" and line["dtype"] == "f32" and time_of(line, "sluice")}
    return [(times["lstm", mode, sizes] / value, f"{mode} {sizes}") for (cell, mode, sizes), value in times.items()
            if cell == "gru" and ("lstm", mode, sizes) in times]


def gru_per_flop(members):
    pairs = gru_pairs(members)
    if not pairs:
        return None
    worst = min(pairs)
    return (f"| GRU per FLOP, LSTM / GRU of Sluice | {len(pairs)} | {number(geometric_mean([v for v, _ in pairs]))} | - | 1.0 "
            f"| {number(worst[0])} {worst[1]} | - | - |")


def one_call(members):
    """ONNX Runtime with all steps in one call, which streaming cannot have, / Sluice's stream with a call a step."""
    steps = [line for line in members if line["series"] == "steps" and line["h"] <= 64]
    whole = {(line["cell"], sizes_of(line)): time_of(line, "onnxruntime") for line in steps if line["option"] == "none"}
    pairs = [(whole[line["cell"], sizes_of(line)] / time_of(line, "sluice"), f"{line['cell']} {sizes_of(line)}")
             for line in steps if line["option"] == "per_step" and whole.get((line["cell"], sizes_of(line)))
             and time_of(line, "sluice")]
    if not pairs:
        return None
    worst = min(pairs)
    return (f"| per step, H <= 64, ONNX Runtime's one call for all steps / Sluice's call a step | {len(pairs)} "
            f"| {number(geometric_mean([v for v, _ in pairs]))} | - | - | {number(worst[0])} {worst[1]} | - | - |")


def members_of(lines, series, mode, dtype):
    members = [line for line in lines if line["series"] == series and line["dtype"] == dtype and mode in (None, line["mode"])]
    if series == "steps":
        members = [line for line in members if line["option"] == "per_step" and line["h"] <= 64]
    return members


def goal_ratios(lines, threads):
    """{title: the ratios of its shapes}, of GOALS, and of GRU per FLOP."""
    mine, found = [line for line in lines if line["threads"] == threads], {}
    for title, series, mode, dtype, sides, _, _ in GOALS:
        found[title] = [value for value in (ratio_of(line, sides) for line in members_of(mine, series, mode, dtype)) if value]
    found["GRU per FLOP"] = [value for value, _ in gru_pairs(mine)]
    return found


def goal_table(lines, threads):
    out = [f"### Goals, {threads} thread{'s' * (threads > 1)}", "",
           "| | shapes | strongest peer / Sluice, geometric mean | the same of a kernel at the machine's limit | goal | worst | floor "
           "| below it |", "|---|---|---|---|---|---|---|---|"]
    mine = [line for line in lines if line["threads"] == threads]
    for title, series, mode, dtype, sides, goal, floor in GOALS:
        out.append(goal_row(title, members_of(mine, series, mode, dtype), sides, goal, floor))
    out += [one_call(mine), gru_per_flop(mine)]
    return "\n".join(filter(None, out)) + "\n"


# ---------------------------------------------------------------------------------------------------------- tables --
def read_notes(path):
    """(pattern of a cell's name, sentence) of a file of lines `PATTERN | sentence`."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        pairs = [line.partition("|") for line in file if "|" in line and not line.startswith("#")]
    return [(pattern.strip(), sentence.strip()) for pattern, _, sentence in pairs]


def note_of(line, notes):
    name = name_of(line)
    return next((sentence for pattern, sentence in notes if fnmatch.fnmatchcase(name, pattern)), "")


def cell_text(line, side):
    time = time_of(line, side)
    return f"{time:.4g}" if time else "-"


def detail_table(title, lines, notes):
    out = [f"### {title}", "",
           "| T/B/I/H/L | " + " | ".join(TITLES[side] for side in SIDES) + " | Sluice | kernel | strongest / Sluice "
           "| GFLOP/s | limit | time / limit | where the time goes |", "|---" * (len(SIDES) + 8) + "|"]
    for line in lines:
        ours, least = time_of(line, "sluice"), limit_seconds(line) * 1e3
        over = ours / least if ours else None
        kernel = line["sides"]["sluice"].get("what", line["sides"]["sluice"].get("refusal", ""))
        cells = [sizes_of(line), *(cell_text(line, side) for side in SIDES), cell_text(line, "sluice"),
                 kernel.split(" ")[-1] if ours else kernel[:60], number(ratio_of(line, SIDES)),
                 f"{flops_of(line) / ours * 1e-6:.1f}" if ours else "-", f"{least:.4g}", number(over),
                 note_of(line, notes) if over and over > EXPLAIN else ""]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def versions(lines):
    found = {}
    for line in lines:
        for side, entry in line["sides"].items():
            if "what" in entry:
                found[side] = entry["what"].split(" ")[0]
    return ", ".join(f"{TITLES.get(side, 'Sluice')} {version}" for side, version in found.items())


def limits_text(limits):
    parts = []
    for threads in sorted(key for key in limits if key.isdigit()):
        rates = ", ".join(f"{key} {value:g}" for key, value in limits[threads].items())
        parts.append(f"{threads} thread{'s' * (threads != '1')}: {rates}")
    return "; ".join(parts) + ". GFLOP/s and GB/s of a thread, all threads at work."


def others_text(lines):
    """What is known of others at work meanwhile (disturbance.py)."""
    shares = [line["others"] for line in lines if "others" in line]
    if not shares:
        return ""
    loud = sum(share > QUIET for share in shares)
    return (f" While a cell was measured, others took {100 * statistics.median(shares):.1f}% of the CPUs (median), "
            f"more than {100 * QUIET:.0f}% in {loud} of {len(shares)} cells, {100 * max(shares):.0f}% at most.")


def report(lines, notes_path, statistic="median"):
    """Markdown of all lines of one machine and source; "min": of the fastest calls, where others use the machine."""
    global STATISTIC
    STATISTIC = statistic
    if not lines:
        return "Nothing was measured.\n"
    notes, threads = read_notes(notes_path), sorted({line["threads"] for line in lines})
    out = [f"# Layers on the CPU beside their peers\n\n{lines[0]['machine']}. {versions(lines)}. Source "
           f"{lines[0]['source']}.\nMilliseconds, {statistic} of all calls. Limits measured in the same run: "
           f"{limits_text(lines[0]['limits'])}{others_text(lines)}\n"]
    out += [goal_table(lines, count) for count in threads]
    groups = {}
    for line in lines:
        groups.setdefault((line["series"], line["mode"], line["dtype"], line["threads"]), []).append(line)
    for (series, mode, dtype, count), members in groups.items():
        cells = "/".join(sorted({line["cell"] for line in members}))
        title = f"{series}: {cells} {mode} {dtype}, {count} thread{'s' * (count > 1)}"
        if cells.count("/"):
            for cell in cells.split("/"):
                some = [line for line in members if line["cell"] == cell]
                out.append(detail_table(title.replace(cells, cell), some, notes))
        else:
            out.append(detail_table(title, members, notes))
    return "\n".join(out)
