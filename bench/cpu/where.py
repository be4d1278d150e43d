"""Where the time of cells above 1.6 times their limit goes, by samples of perf: one sentence each into notes.txt.

    where.py --peers-folder FOLDER LINES.jsonl [--seconds S] [--notes bench/cpu/notes.txt] [--statistic median|min] [--source HASH]

LINES.jsonl is what compare.py wrote. Sluice's side runs each of those cells alone for S seconds under `perf record`; the rates in a
sentence are a thread's, from the FLOPs, the share of samples and the time in the line. Needs perf and the right to use it.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import report  # noqa: E402
from lines import known_lines  # noqa: E402

# What a function belongs to: a pattern of "LIBRARY FUNCTION".
PARTS = [
    ("waiting", r"wait|barrier|spin|futex|yield|pthread_cond|pthread_mutex"),
    ("the system, which parks and wakes threads", r"^\[kernel"),
    ("packing", r"amx_pack|amx_turn|strips_down|panels_down|side_sluice (pack|transpose|convert)(_\w+)?(\.|$)"),
    ("products on tiles", r"side_sluice (product|multiply)_(half|halves|floats?)(\.|$)"),
    ("products over time", r"openblas|gemm|tile_along|tile_down|edge_tile|isa_pack|product_few|run_slice"),
    ("products of panels", r"block_\d+x\d+x\d+|halves_\d|many_rows|few_rows|side_sluice product|panel"),
    ("the cell", r"(lstm|gru|rnn)_(forward|backward)|cell"),
    ("product and cell in one loop", r"side_sluice (lstm|gru|rnn)$"),
    ("the call of a step", r"sl_stream|side_call|side_sluice step"),
    ("copies and sums", r"memcpy|memset|memmove|pack|sum|add|copy|bias|scatter|gather"),
]


def part_of(function):
    return next((name for name, pattern in PARTS if re.search(pattern, function)), "the rest")


def record(args, line):
    """perf's report of one cell, from its second call on: opening it touches all its memory for the first time; what the side said."""
    sizes = " ".join(str(line[key]) for key in "tbihl")
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "perf.data")
        side = subprocess.Popen([os.path.join(args.peers_folder, "side_sluice")], text=True, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE)

        def ask(request):
            side.stdin.write(request + "\n")
            side.stdin.flush()
            return side.stdout.readline()

        opened = ask(f"open {line['cell']} {line['mode']} {line['dtype']} {sizes} {line['threads']} {line['option']} -")
        ask("time 0.01 1")
        perf = subprocess.Popen(["perf", "record", "-q", "-F", "1999", "-o", data, "-p", str(side.pid)])
        time.sleep(0.3)  # until it listens
        ask(f"time {args.seconds} 1")
        perf.send_signal(signal.SIGINT)
        perf.wait()
        side.stdin.close()
        side.wait()
        text = subprocess.run(["perf", "report", "-i", data, "--stdio", "-q", "--sort", "dso,symbol"], check=True, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return text, opened.strip()


def samples(args, line):
    """{part: share} of the samples of one cell."""
    shares = {}
    for _ in range(3):  # perf may begin too late for a short cell
        text, opened = record(args, line)
        if text.strip():
            break
    for percent, library, function in re.findall(r"^\s*([\d.]+)%\s+(\S+)\s+\[.\]\s+(\S+)", text, re.M):
        part = part_of(f"{library} {function}")
        shares[part] = shares.get(part, 0) + float(percent)
    if not shares:
        sys.exit(f"where.py: {report.name_of(line)} gave no samples: side_sluice answered {opened!r}; perf must be allowed to "
                 "look at other processes (kernel.perf_event_paranoid)")
    total = sum(shares.values())
    return {part: share / total for part, share in shares.items()}


def sentence(line, shares):
    rows, h, gates = sum(report.rows_alive(line)), line["h"], report.GATES[line["cell"]]
    every = report.flops_of(line)
    train = line["mode"] == "train"
    panels = every / 3 + 2 * rows * gates * h * h * line["l"] if train else every  # W x and R h', dz R
    flops = {"products of panels": panels, "products over time": every - panels}
    if "products on tiles" in shares:
        flops = {"products on tiles": every}
    words = []
    for part, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share >= 0.04:
            seconds = share * report.time_of(line, "sluice") * 1e-3 * line["threads"]
            rate = f" at {flops[part] / seconds * 1e-9:.0f} GFLOP/s" if part in flops else ""
            words.append(f"{part} {100 * share:.0f}%{rate}")
    return ", ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines")
    parser.add_argument("--peers-folder", default=os.path.join(HERE, "..", "..", "build", "cpu_peers"))
    parser.add_argument("--notes", default=os.path.join(HERE, "notes.txt"))
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--statistic", default="median", choices=["median", "min"])
    parser.add_argument("--source", help="of the lines; default: the last")
    args = parser.parse_args()
    report.STATISTIC = args.statistic
    lines = list(known_lines(args.lines).values())
    source = args.source or lines[-1]["source"]
    with open(args.notes, encoding="utf-8") as file:
        text = [line for line in file if line.startswith("#")]
    for line in lines:
        ours = report.time_of(line, "sluice")
        if line["source"] == source and ours and ours * 1e-3 > report.EXPLAIN * report.limit_seconds(line):
            text.append(f"{report.name_of(line)} | {sentence(line, samples(args, line))}\n")
            print(text[-1], end="", flush=True)
    with open(args.notes, "w", encoding="utf-8") as file:
        file.writelines(text)


if __name__ == "__main__":
    main()
