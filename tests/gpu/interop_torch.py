#!/usr/bin/env python3
"""Sluice's layers on PyTorch's own tensors, without copies (include/sluice_interop.h):

    interop_torch.py [--library libsluice.so] [--device cpu|cuda:N]

Parameters, inputs, outputs and all gradients are torch tensors, handed over by DLPack, in torch's current stream (one that is
not the default, with work queued before and after and nothing waited for). Forward, input gradients and weight gradients are
compared with torch.nn.LSTM and GRU in float32 (TF32 off); then torch's SGD trains the borrowed parameters by the borrowed
gradients beside a model of torch's own. On a GPU tensors of bfloat16 and float16 are lent as well (states are float32), and
beside them stands a model in float32 of the same numbers. That nothing is copied shows in this: pointers stay what they were, and what torch
writes into a tensor later is what the next call reads.

Prints one line a check and "N passed, N failed, N skipped" at the end; exit code 1 if any failed.
"""
import argparse
import ctypes
import os
import sys
from ctypes import byref, c_char_p, c_void_p

import torch
from sluice_types import Call, PlanOptions

# Of the largest element: sums of float32 in another order; and where PyTorch takes cuDNN's kernels for small layers, their
# activations are approximate (6e-6 measured, docs/GPU.md).
TOLERANCE = 3e-5
SHAPES = [(5, 7, 6, 12), (33, 20, 65, 96), (64, 35, 256, 256)]  # B, T, I, H
GATES = {"lstm": 4, "gru": 3}
NARROW = {"bf16": (torch.bfloat16, 3e-2), "f16": (torch.float16, 4e-3)}  # and a tolerance: operands are rounded in every step


class Refused(Exception):
    """A call of Sluice failed, with its sentence."""


class Library:
    def __init__(self, path):
        path = os.path.abspath(path)
        jansson = os.path.join(os.path.dirname(path), "libjansson.so.4")
        if os.path.exists(jansson):  # of a machine that may have none of its own (tools/gpu_pack)
            ctypes.CDLL(jansson, mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(path)
        self.lib.sl_error_detail.restype = c_char_p
        self.lib.sl_plan_kernels.restype = c_char_p
        self.lib.sl_params_name.restype = c_char_p

    def __call__(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            raise Refused(f"{name}: {self.lib.sl_error_detail().decode()}")


def dl_tensor(tensor):
    """The DLTensor of a torch tensor: a capsule, to be kept alive, and its address."""
    capsule = torch.utils.dlpack.to_dlpack(tensor.detach())
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    return capsule, c_void_p(get(capsule, b"dltensor"))


class Borrowed:
    """DLTensors of several tensors as C's array of pointers."""

    def __init__(self, tensors):
        self.kept = [None if t is None else dl_tensor(t) for t in tensors]
        self.array = (c_void_p * len(tensors))(*[k and k[1].value for k in self.kept])


class Layer:
    """One recurrent layer of Sluice whose parameters and gradients are torch's."""

    def __init__(self, sluice, cell, shape, device, require, dtype, parameters):
        b, t, i, h = shape
        self.sluice, self.shape, self.parameters, self.kept = sluice, shape, parameters, []
        self.model, self.plan, self.params, self.run = c_void_p(), c_void_p(), c_void_p(), c_void_p()
        options = PlanOptions()
        problem = f"{cell}:b{b}_t{t}_i{i}_h{h}{'_' + dtype if dtype else ''}_train"
        problem += ("+bias=double" if cell == "lstm" else "") + ("+narrow+narrow_io" if dtype else "")
        sluice("sl_model_from_problem", None, problem.encode(), byref(self.model), byref(options))
        options.device, options.require, options.input_gradients = device.encode(), require, 1
        sluice("sl_plan_new", self.model, byref(options), byref(self.plan))
        sluice("sl_params_new", self.plan, byref(self.params))
        sluice("sl_run_new", self.plan, self.params, byref(self.run))
        if device != "cpu":
            sluice("sl_interop_stream", self.run, c_void_p(torch.cuda.current_stream().cuda_stream))
        for name, p in parameters.items():
            p.grad = torch.zeros_like(p)
            for function, owner, tensor in (("sl_interop_parameter", self.params, p),
                                            ("sl_interop_gradient", self.run, p.grad)):
                kept = dl_tensor(tensor)
                sluice(function, owner, name.encode(), kept[1])
                self.kept.append(kept)

    def kernels(self):
        return self.sluice.lib.sl_plan_kernels(self.plan).decode()

    def forward(self, x, outputs):
        self.inputs, self.outputs = Borrowed([x]), Borrowed(outputs)
        call = Call(batch=self.shape[0], steps=self.shape[1], training=1, parameters_changed=1,
                    inputs=self.inputs.array, outputs=self.outputs.array)
        self.sluice("sl_interop_forward", self.run, byref(call))

    def backward(self, d_outputs, d_x):
        self.d_outputs, self.d_inputs = Borrowed(d_outputs), Borrowed([d_x])
        self.sluice("sl_interop_backward", self.run, self.d_outputs.array, self.d_inputs.array)

    def close(self):
        for function, thing in (("sl_run_free", self.run), ("sl_params_free", self.params), ("sl_plan_free", self.plan),
                                ("sl_model_free", self.model)):
            getattr(self.sluice.lib, function)(thing)


NAMES = {"rnn1.kernel": "weight_ih_l0", "rnn1.recurrent_kernel": "weight_hh_l0", "rnn1.bias": "bias_ih_l0",
         "rnn1.recurrent_bias": "bias_hh_l0"}


class Counts:
    passed = failed = skipped = 0

    def check(self, what, right, detail=""):
        print(f"{'ok  ' if right else 'FAIL'} {what}{': ' if detail else ''}{detail}")
        self.passed += right
        self.failed += not right

    def skip(self, what, reason):
        print(f"skipped  {what}: {reason}")
        self.skipped += 1


def difference(got, wanted):
    return ((got.float() - wanted).abs().max() / wanted.abs().max()).item()


def busy(device):
    """Work that is still under way when the next calls are queued: who reads too early reads what was there before."""
    if device == "cpu":
        return
    a = torch.randn(4096, 4096, device=device)
    for _ in range(20):
        a = a @ a * 1e-3


def compare(counts, sluice, cell, shape, device, require, dtype=None):
    b, t, i, h = shape
    what = " ".join(filter(None, [f"{cell} B={b} T={t} I={i} H={h}", dtype, require.decode() if require else None]))
    kind, tolerance = NARROW[dtype] if dtype else (torch.float32, TOLERANCE)
    torch.manual_seed(b)
    theirs = (torch.nn.LSTM if cell == "lstm" else torch.nn.GRU)(i, h).to(device)
    own = {name: getattr(theirs, other).detach().to(kind, copy=True).requires_grad_() for name, other in NAMES.items()}
    with torch.no_grad():
        for name, other in NAMES.items():
            getattr(theirs, other).copy_(own[name])
    try:
        layer = Layer(sluice, cell, shape, device, require, dtype, own)
    except Refused as refused:
        if require and str(refused).startswith("sl_plan_new: "):
            counts.skip(what, refused)
        else:
            counts.check(what, False, str(refused))
        return
    states = 2 if cell == "lstm" else 1
    x, d_x, *outputs = (torch.full(size, float("nan"), device=device, dtype=kind if len(size) == 3 else torch.float32)
                        for size in [(t, b, i), (t, b, i), (t, b, h), *[(b, h)] * states])
    d_outputs = [torch.randn_like(o) / b for o in outputs]  # small, so that training does not magnify rounding
    tensors = [x, d_x, *outputs, *d_outputs, *own.values(), *[p.grad for p in own.values()]]
    before = [tensor.data_ptr() for tensor in tensors]
    optimizers = [torch.optim.SGD(list(own.values()), lr=0.05), torch.optim.SGD(theirs.parameters(), lr=0.05)]
    for step in range(3):
        fresh = torch.randn_like(x)
        busy(device)
        x.copy_(fresh)  # after the busy work, in the same stream; written in place
        optimizers[0].zero_grad(set_to_none=False)
        layer.forward(x, outputs)
        layer.backward(d_outputs, d_x)
        if step == 0:
            results = [r.clone() for r in (*outputs, d_x, *[p.grad for p in own.values()])]
        optimizers[0].step()
        their_x = fresh.float().requires_grad_()
        y, state = theirs(their_x)
        state = [s[0] for s in (state if cell == "lstm" else (state,))]
        optimizers[1].zero_grad()
        torch.autograd.backward([y, *state], [d.float() for d in d_outputs])
        if step == 0:
            wanted = [r.detach().clone() for r in (y, *state, their_x.grad)]
            wanted += [getattr(theirs, other).grad.clone() for other in NAMES.values()]
        optimizers[1].step()
    names = ["output", *["final h", "final c"][:states], "input gradient", *[f"gradient of {n}" for n in NAMES]]
    errors = {name: difference(r, w) for name, r, w in zip(names, results, wanted)}
    worst = max(errors, key=lambda name: errors[name] if errors[name] == errors[name] else float("inf"))
    counts.check(f"{what} ({layer.kernels()})", all(e <= tolerance for e in errors.values()),
                 f"largest difference {errors[worst]:.1e}, of {worst}")
    trained = max(difference(own[name].detach(), getattr(theirs, other).detach()) for name, other in NAMES.items())
    counts.check(f"{what}: three steps of torch's SGD on what is lent", trained <= 10 * tolerance, f"{trained:.1e}")
    counts.check(f"{what}: all {len(tensors)} tensors stayed where they were",
                 before == [tensor.data_ptr() for tensor in tensors])
    if device != "cpu":
        torch.cuda.current_stream().synchronize()
    layer.close()


def reason_to_skip(device):
    if device == "cpu":
        return None
    if not torch.cuda.is_available():
        return "PyTorch finds no usable GPU"
    if int(device.split(":")[1]) >= torch.cuda.device_count():
        return f"PyTorch sees no {device}"
    return None


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description="Sluice on PyTorch's tensors, without copies")
    parser.add_argument("--library", default=os.path.join(here, "../../build/libsluice.so"))
    parser.add_argument("--device", default="cuda:0")
    arguments = parser.parse_args()
    counts, device = Counts(), arguments.device
    reason = reason_to_skip(device)
    if reason:
        counts.skip("interop", reason)
    else:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        sluice = Library(arguments.library)
        requires = [None] if device == "cpu" else [None, b"cuda:step", b"cudnn:standard"]
        stream = torch.cuda.Stream(device) if device != "cpu" else None
        with torch.cuda.stream(stream) if stream else torch.inference_mode(False):
            for cell in GATES:
                for shape in SHAPES:
                    for require in requires:
                        compare(counts, sluice, cell, shape, device, require)
            for cell in GATES if stream else ():
                for shape in SHAPES:
                    for require in (None, b"cuda:step"):
                        for dtype in NARROW:
                            compare(counts, sluice, cell, shape, device, require, dtype)
        if stream:  # PyTorch's default stream is CUDA's legacy one
            for require in requires:
                compare(counts, sluice, next(iter(GATES)), SHAPES[0], device, require)
    print(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
