"""Where the time of cells above 1.6 times their limit goes, by samples: one sentence each into notes.txt.

    where.py --peers-folder FOLDER LINES.jsonl [--seconds S] [--notes bench/cpu/notes.txt] [--statistic median|min] [--source HASH]

LINES.jsonl is what compare.py wrote. Sluice's side runs each of those cells alone for S seconds and takes samples of itself (samples.h);
the rates in a sentence are a thread's, from the FLOPs, the share of samples and the time in the line.
"""
import argparse
import bisect
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import report  # noqa: E402
from lines import known_lines  # noqa: E402

# What a function belongs to: a pattern of "LIBRARY FUNCTION".
PARTS = [
    ("waiting", r"wait|barrier|spin|futex|yield|pthread_cond|pthread_mutex"),
    ("packing", r"amx_pack|amx_turn|strips_down|panels_down|side_sluice (pack|transpose|convert)(_\w+)?(\.|$)"),
    ("products on tiles", r"side_sluice (product|multiply)_(half|halves|floats?)(\.|$)"),
    ("products over time", r"openblas|gemm|tile_along|tile_down|tile_\dx\d|dot_multiply|multiply_columns|edge_tile|isa_pack|product_few|run_slice"),
    ("products of panels", r"block_\d+x\d+x\d+|halves_\d|many_rows|few_rows|side_sluice product|panel"),
    ("the cell", r"(lstm|gru|rnn)_(forward|backward)|cell"),
    ("product and cell in one loop", r"side_sluice (usual_)?(lstm|gru|rnn)(_first|_second)?(\.|$)"),
    ("the call of a step", r"sl_stream|side_call|side_sluice step"),
    ("copies and sums", r"memcpy|memset|memmove|pack|sum|add|copy|bias|scatter|gather"),
]


HEAD = """# Where the time of a cell above 1.6 times its limit goes, one measured sentence:   PATTERN | sentence
# PATTERN is compared with "SERIES CELL MODE T/B/I/H/L OPTION DTYPE THREADSt", * stands for anything; the first that fits
# counts. where.py writes this file.
"""


def part_of(function):
    return next((name for name, pattern in PARTS if re.search(pattern, function)), "the rest")


def functions(program):
    """(addresses, names) of the functions of a program, as nm prints them, ascending."""
    text = subprocess.run(["nm", program], check=True, text=True, stdout=subprocess.PIPE).stdout
    found = sorted((int(address, 16), name) for address, name in re.findall(r"^([0-9a-f]+) [tTwW] (\S+)", text, re.M))
    return [address for address, _ in found], [name for _, name in found]


def samples(args, line):
    """{part: share} of the samples of one cell, from its second call on: opening it touches all its memory for the first time."""
    program = os.path.join(args.peers_folder, "side_sluice")
    side = subprocess.Popen([program], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(request):
        side.stdin.write(request + "\n")
        side.stdin.flush()
        return side.stdout.readline()

    sizes = " ".join(str(line[key]) for key in "tbihl")
    opened = ask(f"open {line['cell']} {line['mode']} {line['dtype']} {sizes} {line['threads']} {line['option']} -")
    ask("time 0.01 1")
    answer = ask(f"sample {args.seconds}")
    side.stdin.close()
    side.wait()
    if not answer.startswith('{"samples"'):
        sys.exit(f"where.py: {report.name_of(line)} gave no samples: side_sluice answered {opened.strip()!r}, {answer.strip()!r}")
    addresses, names = functions(program)
    shares = {}
    for address, library, symbol in json.loads(answer)["samples"]:
        at = f"{os.path.basename(library)} {symbol}" if library else f"side_sluice {names[bisect.bisect(addresses, address) - 1]}"
        part = part_of(at)
        shares[part] = shares.get(part, 0) + 1
    if not shares:
        sys.exit(f"where.py: {report.name_of(line)} gave no samples in {args.seconds} s: give more --seconds")
    total = sum(shares.values())
    return {part: count / total for part, count in shares.items()}


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
    text = [HEAD]
    for line in lines:
        ours = report.time_of(line, "sluice")
        if line["source"] == source and ours and ours * 1e-3 > report.EXPLAIN * report.limit_seconds(line):
            text.append(f"{report.name_of(line)} | {sentence(line, samples(args, line))}\n")
            print(text[-1], end="", flush=True)
    with open(args.notes, "w", encoding="utf-8") as file:
        file.writelines(text)


if __name__ == "__main__":
    main()
