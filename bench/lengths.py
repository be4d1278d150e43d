"""What rows that ended cost on a GPU: a layer's time beside its time with full rows, and the share of steps that are alive.

    lengths.py [--library build/libsluice.so] [--device cuda:0] [--table lengths.md]

A call by sluice_interop.h on PyTorch's tensors (kernels launched one by one, 500 steps), CUDA events around it, medians of 15.
Rows all end at a share of the steps; or anywhere, each length once, in order of length or in none: a slice of the batch
goes on until its longest row has ended.
"""
import argparse
import ctypes
import os
import statistics
import sys
from ctypes import byref

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "gpu"))

STEPS, CALLS = 500, 15
LAYERS = ["lstm:b64_t500_i256_h256_bf16", "gru:b64_t500_i256_h256_tf32", "lstm:b64_t500_i650_h650_bf16",
          "lstm:b64_t500_i1024_h1024_bf16", "gru:b64_t500_i1024_h1024_tf32"]
SHARES = [0.75, 0.5, 0.25, 0.02]


class Layer:
    def __init__(self, interop, sluice, problem, device, train):
        from sluice_types import PlanOptions
        self.interop, self.sluice, self.train = interop, sluice, train
        self.things = [ctypes.c_void_p() for _ in range(4)]
        model, plan, params, run = self.things
        options = PlanOptions()
        text, plus, rest = problem.partition("+")
        sluice("sl_model_from_problem", None, (text + ("_train" if train else "") + plus + rest).encode(), byref(model),
               byref(options))
        options.device, options.require, options.input_gradients = device.encode(), b"cuda:", int(train)
        sluice("sl_plan_new", model, byref(options), byref(plan))
        sluice("sl_params_new", plan, byref(params))
        sluice("sl_params_init", params, 3)
        sluice("sl_run_new", plan, params, byref(run))
        torch = interop.torch
        sluice("sl_interop_stream", run, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        number = {key: int(value) for key, value in ((field[0], field[1:]) for field in text.partition(":")[2].split("_"))
                  if value.isdigit() and key in "btih"}
        b, t, i, h = (number[key] for key in "btih")
        states = 2 if text.startswith("lstm") else 1
        self.x, self.d_x = torch.randn(t, b, i, device=device), torch.empty(t, b, i, device=device)
        self.outputs = [torch.empty(t, b, h, device=device), *[torch.empty(b, h, device=device) for _ in range(states)]]
        self.d_outputs = [torch.randn_like(o) for o in self.outputs]
        self.b, self.t, self.first = b, t, True

    def call(self, lengths):
        from sluice_types import Call
        inputs, outputs = self.interop.Borrowed([self.x]), self.interop.Borrowed(self.outputs)
        kept = self.interop.dl_tensor(lengths) if lengths is not None else None
        call = Call(batch=self.b, steps=self.t, training=int(self.train), parameters_changed=int(self.first),
                    inputs=inputs.array, outputs=outputs.array, lengths=kept and kept[1])
        self.first = False
        self.sluice("sl_interop_forward", self.things[3], byref(call))
        if self.train:
            d_outputs, d_inputs = self.interop.Borrowed(self.d_outputs), self.interop.Borrowed([self.d_x])
            self.sluice("sl_interop_backward", self.things[3], d_outputs.array, d_inputs.array)

    def us(self, lengths):
        torch = self.interop.torch
        times = []
        for _ in range(CALLS + 3):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            self.call(lengths)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        return statistics.median(times[3:])

    def close(self):
        for function, thing in zip(("sl_run_free", "sl_params_free", "sl_plan_free", "sl_model_free"),
                                   reversed(self.things)):
            getattr(self.sluice.lib, function)(thing)


def patterns(torch, batch, device):
    """(name, share of steps alive, lengths)."""
    for share in SHARES:
        steps = max(1, round(share * STEPS))
        yield f"all end at {share:g}", steps / STEPS, torch.full((batch,), steps, dtype=torch.int32, device=device)
    uniform = torch.linspace(1, STEPS, batch, device=device).round().to(torch.int32)
    yield "1 to all, in order", uniform.float().mean().item() / STEPS, uniform
    torch.manual_seed(1)
    yield "1 to all, mixed", uniform.float().mean().item() / STEPS, uniform[torch.randperm(batch, device=device)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=os.path.join(HERE, "..", "build", "libsluice.so"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--table")
    args = parser.parse_args()
    import interop_torch as interop
    from lines import tell
    sluice, torch, out = interop.Library(args.library), interop.torch, []
    names = [name for name, _, _ in patterns(torch, 64, args.device)]
    alive = [share for _, share, _ in patterns(torch, 64, args.device)]
    out.append("| layer | mode | no lengths, us | full rows | " + " | ".join(names) + " |")
    out.append("|---" * (4 + len(names)) + "|")
    out.append("| share of steps alive | | | 1 | " + " | ".join(f"{share:.2f}" for share in alive) + " |")
    with torch.cuda.stream(torch.cuda.Stream(args.device)):
        for problem in LAYERS:
            for train in (False, True):
                plain = Layer(interop, sluice, problem, args.device, train)
                base = plain.us(None)
                plain.close()
                layer = Layer(interop, sluice, problem + "+lengths", args.device, train)
                times = [layer.us(torch.full((layer.b,), STEPS, dtype=torch.int32, device=args.device))]
                times += [layer.us(lengths) for _, _, lengths in patterns(torch, layer.b, args.device)]
                layer.close()
                out.append(f"| {problem} | {'train' if train else 'infer'} | {base:.0f} | " +
                           " | ".join(f"{us / base:.2f}" for us in times) + " |")
    text = "\n".join(out) + "\n"
    tell(text, args.table)


if __name__ == "__main__":
    sys.exit(main())
