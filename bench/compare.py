"""Layers on a GPU beside their peers, on the same shapes in one run: PyTorch eager and in a CUDA graph, cuDNN's C API
with every algorithm that it accepts (the cudnn: rows of `sluice bench`), and Sluice's own kernels.

    compare.py [--sluice build/sluice] [--shapes bench/shapes.txt] [--filter TEXT,...]
               [--dtypes f32,f32x3,tf32,bf16,f16] [--modes train,infer] [--out compare.jsonl] [--table compare.md]
               [--source HASH] [--limit-seconds S] [--dry-run] [--no-torch] [--no-floats]

A cell is a shape, a mode (train: forward, backward, weight and input gradients; infer: forward) and a precision.
PyTorch is timed before and after Sluice, so that a drift of the machine meets both; medians of CUDA events, at least 20
after warming up. f32x3 stands beside its peers' f32. Each cell appends one JSON line to --out; cells that are there for
the same --source are skipped, so that a table grows over several short runs. Kinds of shapes take turns: what fits into
--limit-seconds is a sample of all. --table writes the Markdown tables of everything in --out, `published.txt` as a
second ratio. A cell that fails is a line with its error. One process of PyTorch and one of Sluice do all of it. --dry-
run prints the order alone; --no-torch times Sluice alone, on --device cpu as well. In bf16 and f16 the peers' parameters, inputs and
outputs, and their gradients, are of 16 bits, and Sluice is timed so ("narrow" of a line) beside its float ones, which --no-floats leaves
out.
"""
import argparse
import json
import os
import re
import select
import statistics
import subprocess
import sys
import time

from lines import known_lines
from tables import columns_of, read_published, tables

HERE = os.path.dirname(os.path.abspath(__file__))
START = time.monotonic()
LEAST, MOST = 10, 40  # timed repeats, before Sluice and once more after it
PATIENCE = 240  # seconds that a problem may take


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "sluice"))
    parser.add_argument("--shapes", default=os.path.join(HERE, "shapes.txt"))
    parser.add_argument("--published", default=os.path.join(HERE, "published.txt"))
    parser.add_argument("--filter", default="", help="only shapes whose name or problem contains one of these")
    parser.add_argument("--dtypes", default="f32,f32x3,tf32,bf16,f16")
    parser.add_argument("--modes", default="train,infer")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=0.05,
                        help="timed seconds of Sluice, and of PyTorch before and after it")
    parser.add_argument("--out", default="compare.jsonl")
    parser.add_argument("--table")
    parser.add_argument("--source", default="")
    parser.add_argument("--limit-seconds", type=float, default=1e9)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-floats", action="store_true")
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
            name = comment.strip() or problem
            shapes.append({"problem": problem, "name": name, "cell": cell, "mode": mode, **numbers})
    return shapes


def take_turns(shapes):
    """Cells and modes by turns, within one the series (the part of a name before _) by turns, and of those every third."""
    def interleave(groups):
        groups = [list(group) for group in groups]
        while any(groups):
            for group in groups:
                if group:
                    yield group.pop(0)

    def by(key, members):
        groups = {}
        for member in members:
            groups.setdefault(key(member), []).append(member)
        return groups.values()

    kinds = by(lambda s: (s["mode"], s["cell"]), shapes)
    return list(interleave(interleave(series[0::3] + series[1::3] + series[2::3] for series in
                                      by(lambda s: s["name"].split("_")[0], kind)) for kind in kinds))


def with_dtype(problem, dtype):
    head, plus, options = problem.partition("+")
    return f"{head}_{dtype}{plus}{options}"


def key_of(shape, dtype, source):
    return f"{shape['problem']}|{dtype}|{source}"


def peer_dtype(dtype):
    return "f32" if dtype == "f32x3" else dtype


# ----------------------------------------------------------------------------------------------------------- torch --
class Torch:
    """One shape in one precision: eager and graphed calls, and the times of both."""

    def __init__(self, torch, shape, dtype):
        self.torch = torch
        self.samples = {"eager": [], "graph": []}
        self.errors = {}
        self.warm = set()
        self.train = shape["mode"] == "train"
        kind = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]
        self.tf32 = dtype == "tf32"
        self.set_math()
        torch.manual_seed(1)
        make = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[shape["cell"]]
        self.layer = make(shape["i"], shape["h"], shape["l"], device="cuda", dtype=kind)
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
            self.call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.kept = self.call()
        self.graph = graph

    def time(self, call, seconds, warm_ups):
        torch = self.torch

        def once():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            return begin, end

        for _ in range(warm_ups - 1):
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
        self.set_math()
        for variant in ("eager", "graph"):
            try:
                if variant == "graph" and self.graph is None and "graph" not in self.errors:
                    self.record()
                if variant not in self.errors:
                    call = self.graph.replay if variant == "graph" else self.call
                    self.samples[variant] += self.time(call, seconds, 2 if variant in self.warm else 4)
                    self.warm.add(variant)
            except Exception as error:  # noqa: BLE001: whatever PyTorch says belongs into the line
                self.errors[variant] = repr(error)[:200]
                self.torch.cuda.synchronize()

    def entry(self, variant):
        samples = self.samples[variant]
        if not samples:
            return {"error": self.errors.get(variant, "not timed")}
        return {"median": statistics.median(samples), "min": min(samples), "max": max(samples), "n": len(samples)}


# ---------------------------------------------------------------------------------------------------------- sluice --
class Sluice:
    """`sluice bench -`: problems go in one by one, an answer comes out for each. One process, started again if it ends."""

    def __init__(self, args, options=()):
        self.command = [args.sluice, "bench", "-", "--device", args.device, "--seconds", str(args.seconds), "--json",
                        *options]
        self.process = None
        self.errors = os.path.join(os.path.dirname(os.path.abspath(args.out)), f".compare.{os.getpid()}{''.join(options).replace(':', '')}.errors")

    def start(self):
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                            bufsize=0)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None
        if os.path.exists(self.errors):
            os.remove(self.errors)

    def complaint(self, said):
        """The last sentence of the command on stderr since it held `said` bytes."""
        with open(self.errors, "rb") as file:
            file.seek(said)
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.startswith("sluice: ")]
        return lines[-1][8:308] if lines else None

    def answer(self, problem, said):
        """(kernels, None), or (None, why not): the command complains, ends, or takes too long."""
        text, until = b"", time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if select.select([self.process.stdout], [], [], 0.05)[0]:
                piece = self.process.stdout.read(1 << 16)
                if not piece:
                    return None, self.complaint(said) or f"ended with code {self.process.wait()}"
                text += piece
                if text.endswith(b"\n"):
                    answers = [json.loads(line) for line in text.splitlines()]
                    if answers[-1]["problem"] == problem:
                        return answers[-1]["kernels"], None
                    text = b""
            elif self.complaint(said):
                return None, self.complaint(said)
        return None, f"no answer in {PATIENCE} s"

    def time(self, problem):
        """{kernel: {...}} or {"error": text}."""
        if not self.process:
            self.start()
        said = os.path.getsize(self.errors)
        try:
            self.process.stdin.write(problem.encode() + b"\n")
        except OSError:
            pass
        kernels, why = self.answer(problem, said)
        if kernels is not None:
            return {row["kernel"]: row for row in kernels}
        try:  # after some errors the command goes on to the next problem, after others it ends
            if not why.startswith("no answer"):
                self.process.wait(timeout=1)
            self.stop()
        except subprocess.TimeoutExpired:
            pass
        return {"error": why}


# ------------------------------------------------------------------------------------------------------------ cells --
def entry_of(row):
    if "refusal" in row:
        return {"refusal": row["refusal"]}
    if row.get("apart", 0) > 1:
        return {"error": f"its numbers are {row['apart']:.3g} times as far from another kernel's as rounding explains"}
    entry = {"median": row["median_s"] * 1e3, "min": row["min_s"] * 1e3, "max": row["max_s"] * 1e3, "n": row["repeats"]}
    entry.update({key: value for key, value in row.items() if key.startswith("predicted")})
    return entry


def is_narrow(args, dtype):
    """The peers' parameters, inputs and outputs, and their gradients, are of 16 bits: Sluice's are timed so as well, on GPUs."""
    return dtype in ("bf16", "f16") and args.device.startswith("cuda")


def cell_line(args, shape, dtype, peer, answers):
    line = {"case": key_of(shape, dtype, args.source), "shape": shape["name"], "cell": shape["cell"],
            "mode": shape["mode"], "dtype": dtype, **{key: shape[key] for key in "tbihl"}}
    if peer:
        line["torch_eager"], line["torch_graph"] = peer.entry("eager"), peer.entry("graph")
    kernels, others = answers[dtype], answers.get(peer_dtype(dtype), {})
    if "error" in kernels:
        line["error"] = kernels["error"]
    else:
        line["sluice"] = {name: entry_of(row) for name, row in kernels.items()}
    narrow = answers.get(dtype + "+narrow")
    if narrow and "error" in narrow:
        line["narrow"], line["narrow_error"] = {}, narrow["error"]
    elif narrow:
        line["narrow"] = {name: entry_of(row) for name, row in narrow.items()}
    if peer_dtype(dtype) != dtype and "error" not in others:
        line["peer_rows"] = {name: entry_of(row) for name, row in others.items() if name.startswith("cudnn")}
    return line


def one_shape(args, torch, sluice, shape, dtypes):
    """Lines of a shape in several precisions: PyTorch in each, then Sluice in each, then PyTorch again."""
    peers, answers = {}, {}
    wanted = list(dict.fromkeys([peer_dtype(dtype) for dtype in dtypes] + dtypes))
    for dtype in wanted if torch else []:
        try:
            if dtype == peer_dtype(dtype):
                peers[dtype] = Torch(torch, shape, dtype)
                peers[dtype].sample(args.seconds)
        except Exception as error:  # noqa: BLE001
            print(f"torch: {shape['problem']} {dtype}: {error!r}"[:300], file=sys.stderr)
    for dtype in wanted:
        which = "cudnn" if args.no_floats and is_narrow(args, dtype) else "all"
        answers[dtype] = sluice[which].time(with_dtype(shape["problem"], dtype))
        if is_narrow(args, dtype):
            answers[dtype + "+narrow"] = sluice["cuda"].time(with_dtype(shape["problem"], dtype) + "+narrow+narrow_io")
    for peer in peers.values():
        peer.sample(args.seconds)
    return [cell_line(args, shape, dtype, peers.get(peer_dtype(dtype)), answers) for dtype in dtypes]


def text_of(entry):
    return f"{entry[0]:.4g} {entry[1]}" if entry[0] is not None else "-"


def tell(line):
    c = columns_of(line)
    print(f"{line['cell']} {line['shape']:12s} {line['mode']:5s} {line['dtype']:5s} eager {text_of(c['eager'])}, graph "
          f"{text_of(c['graph'])}, cuDNN {text_of(c['cudnn'])}; own {text_of(c['own'])} {line.get('error', '')[:100]}",
          flush=True)


def measure(args, todo, known):
    torch, done = None, 0
    if not args.no_torch:
        import torch
        print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name(0)}")
    sluice, own, peers = Sluice(args), Sluice(args, ("--require", "cuda:")), Sluice(args, ("--require", "cudnn:"))
    with open(args.out, "a", encoding="utf-8") as out:
        for shape, dtypes in todo:
            if time.monotonic() - START > args.limit_seconds:
                break
            for line in one_shape(args, torch, {"all": sluice, "cuda": own, "cudnn": peers}, shape, dtypes):
                out.write(json.dumps(line) + "\n")
                known[line["case"]] = line
                tell(line)
            out.flush()
            done += 1
            if torch:
                torch.cuda.empty_cache()
    for process in (sluice, own, peers):
        process.stop()
    return done


def main():
    args = arguments()
    shapes = [s for s in take_turns(read_shapes(args.shapes)) if s["mode"] in args.modes.split(",")]
    if args.filter:
        shapes = [s for s in shapes if any(f in s["name"] or f in s["problem"] for f in args.filter.split(","))]
    known = known_lines(args.out)
    todo = [(s, [d for d in args.dtypes.split(",") if key_of(s, d, args.source) not in known]) for s in shapes]
    todo = [(shape, dtypes) for shape, dtypes in todo if dtypes]
    if args.dry_run:
        for shape, dtypes in todo:
            print(f"{shape['cell']} {shape['name']} {shape['mode']}: {' '.join(dtypes)}")
        return
    done = measure(args, todo, known) if todo else 0
    members = [line for key, line in known.items() if key.endswith("|" + args.source)]
    summary, details = tables(members, read_published(args.published))
    if args.table:
        with open(args.table, "w", encoding="utf-8") as file:
            file.write(summary + "\n" + details)
    print(summary)
    print(f"{done} shapes done, {len(todo) - done} left")


if __name__ == "__main__":
    main()
