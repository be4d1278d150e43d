"""Words per second of the PTB presets' training steps: `sluice train` beside PyTorch on the same GPU, in one run.

    lm.py [--sluice build/sluice] [--presets ptb-small,ptb-medium,ptb-large] [--dtypes f32,tf32,bf16,f16] [--steps 300]
          [--out lm.jsonl] [--table lm.md] [--source HASH] [--limit-seconds S]

PyTorch's step: embedding, dropout, two LSTM layers with dropout, linear, cross-entropy, backward, clipping, SGD; eager,
and the whole step as one CUDA graph; f32, tf32, bf16 and f16 by autocast with f32 parameters (f16 with a gradient
scaler's factor, fixed), bf16 also with everything in bf16; its data lies on the GPU. Sluice is our own kernels (--require
cuda:), and once more as the plan chooses. It trains as users do, on a synthetic text of 10,000 words, and its words per
second come from the log, without the first fifth of the steps; a second training with --profile says where
the time of a step goes. PyTorch is timed before and after. Each preset and precision appends one JSON line; what --out
has for the same --source is skipped.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from lines import known_lines

HERE = os.path.dirname(os.path.abspath(__file__))
START = time.monotonic()
VOCABULARY = 10000
# units, steps, dropout, clip
PRESETS = {"ptb-small": (200, 20, 0.0, 5), "ptb-medium": (650, 35, 0.5, 5), "ptb-large": (1500, 35, 0.65, 10)}
BATCH = 20
GOALS = {("ptb-large", "bf16"): 550000, ("ptb-large", "tf32"): 400000, ("ptb-medium", "bf16"): 1200000,
         ("ptb-small", "bf16"): 1500000}  # words per second


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=os.path.join(HERE, "..", "build", "sluice"))
    parser.add_argument("--presets", default=",".join(PRESETS))
    parser.add_argument("--dtypes", default="f32,tf32,bf16,f16")
    parser.add_argument("--steps", type=int, default=300, help="training steps of Sluice")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--require", default="cuda:", help="the kernels that are Sluice's")
    parser.add_argument("--out", default="lm.jsonl")
    parser.add_argument("--table")
    parser.add_argument("--source", default="")
    parser.add_argument("--limit-seconds", type=float, default=1e9)
    return parser.parse_args()


# ------------------------------------------------------------------------------------------------------------- text --
def write_text(path, words):
    """`words` tokens of 9,999 words and line ends: every word at least once, the others by Zipf's law."""
    generator = random.Random(1)
    names = [f"w{k}" for k in range(VOCABULARY - 1)]
    weights = [1 / (k + 1) for k in range(VOCABULARY - 1)]
    tokens = names + generator.choices(names, weights, k=max(0, words - VOCABULARY))
    generator.shuffle(tokens)
    with open(path, "w", encoding="utf-8") as file:
        for at in range(0, len(tokens), 19):
            file.write(" ".join(tokens[at:at + 19]) + "\n")


# ----------------------------------------------------------------------------------------------------------- sluice --
def profile_of(command):
    """{part: share} of a training with --profile."""
    done = subprocess.run(command + ["--profile"], capture_output=True, text=True, timeout=280, check=False)
    lines = done.stdout.splitlines()
    starts = [k for k, line in enumerate(lines) if line.startswith("profile ")]
    parts = re.findall(r"^(?:profile| +) +(\S.*?) +([0-9.]+) %", "\n".join(lines[starts[0]:] if starts else []), re.M)
    return {name: float(share) / 100 for name, share in parts}


def run_sluice(args, preset, dtype, folder, options, profile):
    units, steps, _, _ = PRESETS[preset]
    text, log = os.path.join(folder, f"{preset}.txt"), os.path.join(folder, "log.jsonl")
    if not os.path.exists(text):
        write_text(text, (args.steps + 2) * BATCH * steps)
    if os.path.exists(log):
        os.remove(log)
    command = [args.sluice, "train", "lm", "--preset", preset, text, "--device", args.device, "--dtype", dtype, "--epochs",
               "1", "--valid-split", "0", "--lr", "0.1", "--log", log, "--out", os.path.join(folder, "model"), "--overwrite", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        if done.returncode != 0:
            return {"error": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
        times = []
        with open(log, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                if entry.get("step") and entry.get("event") in (None, "step") and entry.get("seconds") is not None:
                    times.append((entry["step"], entry["seconds"]))
        times = sorted(dict(times).items())
        first = times[len(times) // 5]
        last = times[-1]
        words = (last[0] - first[0]) * BATCH * steps
        result = {"words_per_s": words / (last[1] - first[1]), "steps": last[0] - first[0], "units": units}
        if profile:
            result["profile"] = profile_of(command)
        return result
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError, ZeroDivisionError) as error:
        return {"error": repr(error)[:300]}


# ------------------------------------------------------------------------------------------------------------ torch --
class Step:
    """PyTorch's training step, eager or graphed."""

    def __init__(self, torch, preset, dtype, pure):
        nn = torch.nn
        units, steps, dropout, self.clip = PRESETS[preset]
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = dtype not in ("f32", "f32x3")
        torch.manual_seed(1)
        self.torch = torch
        self.words = BATCH * steps
        self.amp = None if pure else {"bf16": torch.bfloat16, "f16": torch.float16}.get(dtype)
        self.scale = 1024.0 if dtype == "f16" else 1.0
        kind = torch.bfloat16 if pure else torch.float32
        self.embedding = nn.Embedding(VOCABULARY, units)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(units, units, 2, dropout=dropout)
        self.output = nn.Linear(units, VOCABULARY)
        self.modules = nn.ModuleList([self.embedding, self.lstm, self.output, self.dropout]).cuda().to(kind)
        for p in self.modules.parameters():
            nn.init.uniform_(p, -0.05, 0.05)
        self.lstm.flatten_parameters()
        self.parameters = list(self.modules.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=1e-3, foreach=True)
        self.x = torch.randint(0, VOCABULARY, (steps, BATCH), device="cuda")
        self.y = torch.randint(0, VOCABULARY, (steps, BATCH), device="cuda")
        self.state = [torch.zeros(2, BATCH, units, device="cuda", dtype=kind) for _ in range(2)]
        self.graph = None

    def step(self):
        torch = self.torch
        with torch.autocast("cuda", dtype=self.amp or torch.bfloat16, enabled=self.amp is not None, cache_enabled=False):
            h, state = self.lstm(self.dropout(self.embedding(self.x)), tuple(self.state))
            logits = self.output(self.dropout(h)).view(-1, VOCABULARY)
            loss = torch.nn.functional.cross_entropy(logits.float(), self.y.view(-1))
        (loss * self.scale).backward()
        if self.scale != 1:
            torch._foreach_mul_([p.grad for p in self.parameters], 1 / self.scale)
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip, foreach=True)
        self.optimizer.step()
        for old, new in zip(self.state, state):
            old.copy_(new.detach())

    def eager(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.step()

    def record(self):
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                self.eager()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.optimizer.zero_grad(set_to_none=True)  # the graph then writes its gradients, it does not add
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph = graph

    def time(self, call, repeats=40):
        torch = self.torch
        for _ in range(5):
            call()
        events = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            events.append((begin, end))
        torch.cuda.synchronize()
        return [b.elapsed_time(e) for b, e in events]


def time_torch(torch, preset, dtype, samples):
    """Adds milliseconds to samples[variant], or a text."""
    for pure in (False, True) if dtype == "bf16" else (False,):
        for variant in ("eager", "graph"):
            name = ("pure_" if pure else "") + variant
            if isinstance(samples.get(name), str):
                continue
            try:
                step = Step(torch, preset, dtype, pure)
                if variant == "graph":
                    step.record()
                samples[name] = samples.get(name, []) + step.time(step.graph.replay if step.graph else step.eager)
            except Exception as error:  # noqa: BLE001: whatever PyTorch says belongs into the line
                samples[name] = repr(error)[:200]
                torch.cuda.synchronize()
            step = None
            torch.cuda.empty_cache()


# ------------------------------------------------------------------------------------------------------------ lines --
def measure(args, torch, preset, dtype, folder):
    samples = {}
    time_torch(torch, preset, dtype, samples)
    ours = run_sluice(args, preset, dtype, folder, ["--require", args.require] if args.require else [], True)
    planned = run_sluice(args, preset, dtype, folder, [], False)
    time_torch(torch, preset, dtype, samples)
    words = BATCH * PRESETS[preset][1]
    peers = {}
    for name, times in samples.items():
        if isinstance(times, str):
            peers[name] = {"error": times}
        else:
            peers[name] = {"words_per_s": words / statistics.median(times) * 1e3, "ms": statistics.median(times),
                           "min": min(times), "max": max(times), "n": len(times)}
    return {"case": f"{preset}|{dtype}|{args.source}", "preset": preset, "dtype": dtype, "sluice": ours, "planned": planned,
            "torch": peers}


def speed(entry):
    return f"{entry['words_per_s']:,.0f}" if entry and "words_per_s" in entry else "-"


def table(lines):
    names = ("eager", "graph", "pure_eager", "pure_graph")
    out = ["| preset | dtype | Sluice | goal | as planned | PyTorch eager | graph | all bf16, eager | all bf16, graph "
           "| Sluice / best | Sluice / eager |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for line in lines:
        peers = [line["torch"].get(name) for name in names]
        best = max((p["words_per_s"] for p in peers if p and "words_per_s" in p), default=None)
        ours = line["sluice"].get("words_per_s")
        ratio = f"{ours / best:.2f}" if ours and best else line["sluice"].get("error", "-")[:60]
        eager = peers[0]["words_per_s"] if peers[0] and "words_per_s" in peers[0] else None
        goal = GOALS.get((line["preset"], line["dtype"]))
        out.append(f"| {line['preset']} | {line['dtype']} | {speed(line['sluice'])} | {f'{goal:,}' if goal else '-'} | "
                   f"{speed(line.get('planned'))} | " + " | ".join(speed(p) for p in peers) +
                   f" | {ratio} | {f'{ours / eager:.2f}' if ours and eager else '-'} |")
    return "\n".join(out) + "\n" + breakdown(lines)


def breakdown(lines):
    """Microseconds of each part of Sluice's step."""
    profiles = [(line, line["sluice"]["profile"]) for line in lines if line["sluice"].get("profile")]
    names = sorted({name for _, profile in profiles for name in profile},
                   key=lambda name: -sum(profile.get(name, 0) for _, profile in profiles))
    if not names:
        return ""
    out = ["", "Microseconds of a step of Sluice", "", "| preset | dtype | step | " + " | ".join(names) + " |",
           "|---|---|---|" + "---|" * len(names)]
    for line, profile in profiles:
        step = 1e6 * BATCH * PRESETS[line["preset"]][1] / line["sluice"]["words_per_s"]
        out.append(f"| {line['preset']} | {line['dtype']} | {step:.0f} | " +
                   " | ".join(f"{step * profile.get(name, 0):.0f}" for name in names) + " |")
    return "\n".join(out) + "\n"


def main():
    args = arguments()
    known = known_lines(args.out)
    todo = [(p, d) for p in args.presets.split(",") for d in args.dtypes.split(",")]
    todo = [(p, d) for p, d in todo if f"{p}|{d}|{args.source}" not in known]
    done = 0
    if todo:
        import torch
        print(f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name(0)}")
        with tempfile.TemporaryDirectory() as folder, open(args.out, "a", encoding="utf-8") as out:
            for preset, dtype in todo:
                if time.monotonic() - START > args.limit_seconds:
                    break
                line = measure(args, torch, preset, dtype, folder)
                out.write(json.dumps(line) + "\n")
                out.flush()
                known[line["case"]] = line
                done += 1
                if "error" in line["sluice"]:
                    print(f"{preset} {dtype}: {line['sluice']['error']}", file=sys.stderr)
    text = "Words per second\n\n" + table([line for key, line in known.items() if key.endswith("|" + args.source)])
    if args.table:
        with open(args.table, "w", encoding="utf-8") as file:
            file.write(text)
    print(text + f"{done} done, {len(todo) - done} left")


if __name__ == "__main__":
    main()
