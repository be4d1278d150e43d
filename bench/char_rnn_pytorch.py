"""The char-rnn preset's training in PyTorch, for comparison: characters per second of the whole training step.

    char_rnn_pytorch.py TEXT [--threads N] [--steps 200] [--warmup 20] [--onednn on|off|best] [--dtype f32|bf16]

2 x 128 LSTM on one-hot characters, batch 50, 50 steps, RMSprop, gradients clamped to +-5, state carried. A step is what a
user writes: batch, one-hot vectors, forward, loss, backward, clamp, update. One-hot vectors come from a lookup in a frozen
identity table, which is faster than torch.nn.functional.one_hot(...).float(); nn.LSTM offers nothing cheaper for its input.
PyTorch's LSTM on a CPU runs on oneDNN or on its own loop; "best" times both and reports the faster one. In bf16 it has two ways,
both timed: autocast around the model, or the LSTM's parameters in bf16 themselves.
Prints one JSON object.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn

B, T, H = 50, 50, 128


class Model(nn.Module):
    def __init__(self, vocabulary, lstm_dtype):
        super().__init__()
        self.lstm_dtype = lstm_dtype
        self.one_hot = nn.Embedding.from_pretrained(torch.eye(vocabulary))
        self.lstm = nn.LSTM(vocabulary, H, 2).to(lstm_dtype)
        self.logits = nn.Linear(H, vocabulary)
        for p in [*self.lstm.parameters(), *self.logits.parameters()]:
            nn.init.uniform_(p, -0.08, 0.08)

    def forward(self, tokens, state):
        y, state = self.lstm(self.one_hot(tokens).to(self.lstm_dtype), state)
        return self.logits(y.to(self.logits.weight.dtype)), state


def seconds_per_step(tokens, vocabulary, steps, warmup, onednn, way):
    torch.manual_seed(1)
    model = Model(vocabulary, torch.bfloat16 if way == "bf16" else torch.float32)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.RMSprop(parameters, lr=2e-3, alpha=0.95, eps=1e-8)
    streams = tokens[:len(tokens) // (B * T) * B * T].view(B, -1).t().contiguous()
    blocks = (streams.shape[0] - 1) // T
    state, times = None, []
    with torch.backends.mkldnn.flags(enabled=onednn):
        for k in range(warmup + steps):
            start = time.perf_counter()
            at = k % blocks * T
            x, target = streams[at:at + T], streams[at + 1:at + T + 1]
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
                logits, state = model(x, state)
            state = tuple(s.detach() for s in state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), reduction="sum") / B
            loss.backward()
            nn.utils.clip_grad_value_(parameters, 5.0)
            optimizer.step()
            times.append(time.perf_counter() - start)
    return times[warmup:], float(loss.detach()) / T


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--onednn", default="best", choices=["on", "off", "best"])
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    with open(a.text, encoding="utf-8") as f:
        text = f.read()
    index = {c: i for i, c in enumerate(sorted(set(text)))}
    tokens = torch.tensor([index[c] for c in text])
    results = {}
    for name in ["on", "off"] if a.onednn == "best" else [a.onednn]:
        for way in ["f32"] if a.dtype == "f32" else ["autocast", "bf16"]:
            times, loss = seconds_per_step(tokens, len(index), a.steps, a.warmup, name == "on", way)
            key = name if way == "f32" else f"{name}, {way}"
            results[key] = (B * T / statistics.median(times), loss, B * T * len(times) / sum(times))
    best = max(results, key=lambda name: results[name][0])
    print(json.dumps({"system": "pytorch", "version": torch.__version__, "dtype": a.dtype, "threads": a.threads, "steps": a.steps,
                      "onednn": best, "chars_per_second": round(results[best][0]),
                      "chars_per_second_mean": round(results[best][2]), "last_loss": round(results[best][1], 4),
                      "all": {name: round(r[0]) for name, r in results.items()}}))


main()
