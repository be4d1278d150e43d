"""Layers on a GPU: `sluice bench` beside PyTorch, eager and in a CUDA graph, on the same shapes in one run.

    compare.py [--sluice build/sluice] [--shapes bench/shapes.txt] [--filter TEXT,...] [--dtypes f32,tf32,bf16,f16]
               [--modes train,infer] [--out compare.jsonl] [--table compare.md] [--source HASH] [--limit-seconds S]

A cell is a shape, a mode (train: forward, backward, weight and input gradients; infer: forward) and a precision; f32x3 stands
beside PyTorch's f32. PyTorch is timed before and after Sluice, so that a drift of the machine meets both; medians of CUDA
events, at least 20 after warming up. Each cell appends one JSON line to --out; cells that are there for the same --source are
skipped, so that a table grows over several short runs. --table writes the Markdown table of everything in --out. A cell that
fails is a line with its error.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

from lines import known_lines

HERE = os.path.dirname(os.path.abspath(__file__))
START = time.monotonic()
LEAST, MOST = 20, 100  # timed repeats


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "sluice"))
    parser.add_argument("--shapes", default=os.path.join(HERE, "shapes.txt"))
    parser.add_argument("--filter", default="", help="only shapes whose name or problem contains one of these")
    parser.add_argument("--dtypes", default="f32,tf32,bf16,f16")
    parser.add_argument("--modes", default="train,infer")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=0.1, help="timed seconds of a Sluice kernel, and of PyTorch")
    parser.add_argument("--out", default="compare.jsonl")
    parser.add_argument("--table")
    parser.add_argument("--source", default="")
    parser.add_argument("--limit-seconds", type=float, default=1e9)
    return parser.parse_args()


# ---------------------------------------------------------------------------------------------------------- shapes --
def read_shapes(path):
    """Problems of a file: name from the comment behind each, numbers from its fields."""
    shapes = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            problem, _, comment = line.partition("#")
            problem = problem.strip()
            if not problem:
                continue
            cell, _, rest = problem.partition(":")
            fields = dict(re.findall(r"([a-z]+)(\d+)", rest.partition("+")[0]))
            numbers = {key: int(fields.get(key, 1)) for key in "btihl"}
            mode = "train" if "_train" in problem else "infer"
            shapes.append({"problem": problem, "name": comment.strip() or problem, "cell": cell, "mode": mode, **numbers})
    return shapes


def with_dtype(problem, dtype):
    head, plus, options = problem.partition("+")
    return f"{head}_{dtype}{plus}{options}"


def key_of(shape, dtype, source):
    return f"{shape['problem']}|{dtype}|{source}"


# ----------------------------------------------------------------------------------------------------------- torch --
class Torch:
    """One shape in one precision: eager and graphed calls, and the times of both."""

    def __init__(self, torch, shape, dtype):
        self.torch = torch
        self.samples = {"eager": [], "graph": []}
        self.errors = {}
        self.train = shape["mode"] == "train"
        kind = {"bf16": torch.bfloat16, "f16": torch.float16}.get(dtype, torch.float32)
        self.tf32 = dtype == "tf32"
        self.set_math()
        torch.manual_seed(1)
        make = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[shape["cell"]]
        self.layer = make(shape["i"], shape["h"], shape["l"]).cuda().to(kind)
        self.layer.flatten_parameters()
        self.layer.train(self.train)  # in train mode cuDNN computes a training forward even without gradients
        self.x = torch.randn(shape["t"], shape["b"], shape["i"], device="cuda").to(kind).requires_grad_(self.train)
        zeros = torch.zeros(shape["l"], shape["b"], shape["h"], device="cuda", dtype=kind)
        self.state = (zeros, zeros.clone()) if shape["cell"] == "lstm" else zeros
        self.dy = torch.randn(shape["t"], shape["b"], shape["h"], device="cuda").to(kind)
        self.graph = None

    def set_math(self):
        self.torch.backends.cudnn.allow_tf32 = self.torch.backends.cuda.matmul.allow_tf32 = self.tf32

    def call(self):
        if not self.train:
            with self.torch.no_grad():
                return self.layer(self.x, self.state)
        y, _ = self.layer(self.x, self.state)
        return self.torch.autograd.grad(y, [self.x, *self.layer.parameters()], self.dy)

    def record(self):
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.kept = self.call()
        self.graph = graph

    def time(self, call, seconds):
        torch = self.torch

        def once():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            return begin, end

        for _ in range(3):
            once()
        torch.cuda.synchronize()
        begin = time.monotonic()
        once()
        torch.cuda.synchronize()
        one = max(time.monotonic() - begin, 1e-6)
        events = [once() for _ in range(int(min(MOST, max(LEAST, seconds / one))))]
        torch.cuda.synchronize()
        return [b.elapsed_time(e) for b, e in events]

    def sample(self, seconds):
        for variant in ("eager", "graph"):
            try:
                if variant == "graph" and self.graph is None and "graph" not in self.errors:
                    self.record()
                if variant not in self.errors:
                    call = self.graph.replay if variant == "graph" else self.call
                    self.samples[variant] += self.time(call, seconds)
            except Exception as error:  # noqa: BLE001: whatever PyTorch says belongs into the line
                self.errors[variant] = repr(error)[:200]
                self.torch.cuda.synchronize()


# ---------------------------------------------------------------------------------------------------------- sluice --
def run_sluice(args, problems):
    """{problem: {kernel: {...}}}, or {problem: {"error": text}}."""
    command = [args.sluice, "bench", *problems, "--device", args.device, "--seconds", str(args.seconds), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        output, errors = done.stdout, done.stderr.strip().splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        output, errors = "", [repr(error)[:200]]
    answers = {}
    for line in output.splitlines():
        try:
            answer = json.loads(line)
            answers[answer["problem"]] = {row["kernel"]: row for row in answer["kernels"]}
        except (ValueError, KeyError):
            errors.append("not JSON: " + line[:100])
    missing = [problem for problem in problems if problem not in answers]
    if missing:  # the command stops at the first that it cannot time
        answers[missing[0]] = {"error": errors[-1] if errors else "no answer"}
        answers.update(run_sluice(args, missing[1:]) if missing[1:] else {})
    return answers


# ------------------------------------------------------------------------------------------------------------ cells --
def summary(samples):
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples), "n": len(samples)}


def cell_line(args, shape, dtype, peer, kernels):
    line = {"case": key_of(shape, dtype, args.source), "shape": shape["name"], "cell": shape["cell"], "mode": shape["mode"],
            "dtype": dtype, **{key: shape[key] for key in "tbihl"}}
    for variant in ("eager", "graph"):
        if peer and peer.samples[variant]:
            line["torch_" + variant] = summary(peer.samples[variant])
        elif peer and variant in peer.errors:
            line["torch_" + variant] = {"error": peer.errors[variant]}
    if "error" in kernels:
        line["error"] = kernels["error"]
    else:
        line["sluice"] = {
            name: {"refusal": row["refusal"]} if "refusal" in row else
            {"median": row["median_s"] * 1e3, "min": row["min_s"] * 1e3, "max": row["max_s"] * 1e3, "n": row["repeats"]}
            for name, row in kernels.items()}
    return line


def one_shape(args, torch, shape, dtypes):
    """Lines of a shape in several precisions: PyTorch in each, then Sluice in all, as one process, then PyTorch again."""
    peers = {}
    for dtype in dtypes:
        try:
            peers[dtype] = Torch(torch, shape, dtype)
            peers[dtype].sample(args.seconds)
        except Exception as error:  # noqa: BLE001
            print(f"torch: {shape['problem']} {dtype}: {error!r}"[:300], file=sys.stderr)
    problems = {dtype: with_dtype(shape["problem"], dtype) for dtype in dtypes}
    kernels = run_sluice(args, list(problems.values()))
    lines = []
    for dtype in dtypes:
        peer = peers.pop(dtype, None)
        if peer:
            peer.set_math()
            peer.sample(args.seconds)
        lines.append(cell_line(args, shape, dtype, peer, kernels[problems[dtype]]))
        del peer
    torch.cuda.empty_cache()
    return lines


# ------------------------------------------------------------------------------------------------------------ tables --
def best_of(entries):
    times = [(entry["median"], name) for name, entry in entries if entry and "median" in entry]
    return min(times) if times else (None, "")


def columns_of(line):
    """(time, name) of PyTorch eager, of the fastest of PyTorch, of our own kernels, of the cuDNN rows."""
    rows = list(line.get("sluice", {}).items())
    eager = best_of([("t", line.get("torch_eager"))])
    peer = best_of([("t", line.get("torch_eager")), ("tg", line.get("torch_graph"))])
    own = best_of([row for row in rows if not row[0].startswith("cudnn")])
    cudnn = best_of([row for row in rows if row[0].startswith("cudnn")])
    return eager, peer, own, cudnn


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def cell_text(entry):
    return f"{entry[0]:.4g} {entry[1]}" if entry[0] is not None else "-"


def table(lines):
    """Markdown: one table a mode and precision; ratios are PyTorch's best time over ours."""
    groups = {}
    for line in lines:
        groups.setdefault((line["cell"], line["mode"], line["dtype"]), []).append(line)
    out = []
    for (cell, mode, dtype), members in sorted(groups.items()):
        out += [f"### {cell} {mode} {dtype}", "",
                "| shape | T,B,I,H,L | PyTorch eager ms | PyTorch best ms | own ms | cuDNN row ms | best / own | best / any |",
                "|---|---|---|---|---|---|---|---|"]
        ratios = {"own": [], "any": []}
        for line in members:
            eager, peer, own, cudnn = columns_of(line)
            texts = {"own": "-", "any": "-"}
            if peer[0] and own[0]:
                ratios["own"].append(peer[0] / own[0])
                texts["own"] = f"{peer[0] / own[0]:.2f}"
            ours = [entry[0] for entry in (own, cudnn) if entry[0]]
            if peer[0] and ours:
                ratios["any"].append(peer[0] / min(ours))
                texts["any"] = f"{peer[0] / min(ours):.2f}"
            sizes = ",".join(str(line[key]) for key in "tbihl")
            note = f" ({line['error'][:60]})" if "error" in line else ""
            out.append(f"| {line['shape']}{note} | {sizes} | {cell_text(eager)} | {cell_text(peer)} | {cell_text(own)} | "
                       f"{cell_text(cudnn)} | {texts['own']} | {texts['any']} |")
        out += [f"| geometric mean | | | | | | {geometric_mean(ratios['own']):.2f} | {geometric_mean(ratios['any']):.2f} |", ""]
    return "\n".join(out)


def main():
    args = arguments()
    shapes = [s for s in read_shapes(args.shapes) if s["mode"] in args.modes.split(",")]
    if args.filter:
        shapes = [s for s in shapes if any(f in s["name"] or f in s["problem"] for f in args.filter.split(","))]
    known = known_lines(args.out)
    todo = [(s, [d for d in args.dtypes.split(",") if key_of(s, d, args.source) not in known]) for s in shapes]
    todo = [(shape, dtypes) for shape, dtypes in todo if dtypes]
    done = 0
    if todo:
        import torch
        print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name(0)}")
        with open(args.out, "a", encoding="utf-8") as out:
            for shape, dtypes in todo:
                if time.monotonic() - START > args.limit_seconds:
                    break
                for line in one_shape(args, torch, shape, dtypes):
                    out.write(json.dumps(line) + "\n")
                    known[line["case"]] = line
                    eager, peer, own, cudnn = columns_of(line)
                    print(f"{shape['cell']} {shape['name']:12s} {shape['mode']:5s} {line['dtype']:4s} {cell_text(eager)}, best "
                          f"{cell_text(peer)}; own {cell_text(own)}, cudnn {cell_text(cudnn)} {line.get('error', '')[:100]}",
                          flush=True)
                out.flush()
                done += 1
    text = table([line for key, line in known.items() if key.endswith("|" + args.source)])
    if args.table:
        with open(args.table, "w", encoding="utf-8") as file:
            file.write(text)
    means = [line for line in text.splitlines() if line.startswith(("###", "| geometric"))]
    print("\n".join(means))
    print(f"{done} shapes done, {len(todo) - done} left")


if __name__ == "__main__":
    main()
