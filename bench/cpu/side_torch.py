"""PyTorch as a side of compare.py: torch.nn.LSTM, GRU, RNN as users call them. Lengths: the sequences are packed, longest first, and
padded again behind the layer. Recurrent dropout (one mask a sequence) and GRU with reset before the product, which these layers
do not have, are loops over steps, as they must be written in PyTorch; the input's product for all steps is one call."""
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import side

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def numbers(shape, seed, scale, dtype):
    return side.numbers(lambda n: torch.arange(n, dtype=torch.int64), shape, seed, scale).to(dtype)


class Torch:
    def __init__(self, s):
        if s.option == "per_step":
            raise ValueError("not timed step by step")
        torch.set_num_threads(s.threads)
        dtype = DTYPES[s.dtype]
        self.shape, self.train, scale = s, s.mode == "train", s.h ** -0.5
        more = {"proj_size": side.outputs(s)} if side.outputs(s) != s.h else {}
        self.layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[s.cell](s.i, s.h, s.l, **more).to(dtype)
        self.layer.train(self.train)
        kinds = {"weight_ih": side.SEED_KERNEL, "weight_hh": side.SEED_RECURRENT, "bias_ih": side.SEED_BIAS,
                 "bias_hh": side.SEED_RECURRENT_BIAS, "weight_hr": side.SEED_PROJECTION}
        with torch.no_grad():
            for name, value in self.layer.named_parameters():
                kind, layer = name.rsplit("_l", 1)
                if kind == "bias_hh" and (s.cell != "gru" or s.option == "before"):
                    value.zero_()
                else:
                    value.copy_(numbers(tuple(value.shape), 10 * int(layer) + kinds[kind], scale, dtype))
        self.x = numbers((s.t, s.b, s.i), side.SEED_X, 1, dtype).requires_grad_(self.train)
        self.dy = numbers((s.t, s.b, side.outputs(s)), side.SEED_DY, 1, dtype)
        self.lengths = torch.tensor(side.lengths(s.b, s.t)) if s.option == "lengths" else None
        self.what = f"{torch.__version__} {'packed' if s.option == 'lengths' else s.option}"
        self.grads = None

    def forward(self):
        if self.shape.option == "rdrop":
            return self.dropout_loop()
        if self.shape.option == "before":
            return self.reset_loop()
        if self.lengths is None:
            return self.layer(self.x)[0]
        y, _ = self.layer(pack_padded_sequence(self.x, self.lengths))
        return pad_packed_sequence(y, total_length=self.shape.t)[0]

    def weights(self, layer):
        return (getattr(self.layer, f"{kind}_l{layer}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))

    def reset_loop(self):
        s, y = self.shape, self.x
        for layer in range(s.l):
            w_ih, w_hh, b_ih, b_hh = self.weights(layer)
            u_rz, u_n = torch.nn.functional.linear(y, w_ih, b_ih + b_hh).split([2 * s.h, s.h], 2)
            w_rz, w_n = w_hh.split([2 * s.h, s.h])
            h = torch.zeros(s.b, s.h, dtype=self.x.dtype)
            outputs = []
            for t in range(s.t):
                r, z = torch.sigmoid(torch.addmm(u_rz[t], h, w_rz.t())).chunk(2, 1)
                n = torch.tanh(torch.addmm(u_n[t], r * h, w_n.t()))
                h = n + z * (h - n)
                outputs.append(h)
            y = torch.stack(outputs)
        return y

    def dropout_loop(self):
        s, y = self.shape, self.x
        for layer in range(s.l):
            w_ih, w_hh, b_ih, b_hh = self.weights(layer)
            u = torch.nn.functional.linear(y, w_ih, b_ih + b_hh)
            h = c = torch.zeros(s.b, s.h, dtype=self.x.dtype)
            mask = torch.bernoulli(torch.full((s.b, s.h), 0.5, dtype=self.x.dtype)) * 2
            outputs = []
            for t in range(s.t):
                i, f, g, o = torch.addmm(u[t], h * mask, w_hh.t()).chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
                outputs.append(h)
            y = torch.stack(outputs)
        return y

    def call(self):
        if self.train:
            self.y = self.forward()
            self.grads = torch.autograd.grad(self.y, [self.x, *self.layer.parameters()], self.dy)
        else:
            with torch.inference_mode():
                self.y = self.forward()

    def check(self):
        self.call()
        results = {"y": self.y}
        if self.train:
            results.update(zip(("dx", "d_kernel", "d_recurrent"), self.grads))
        return {key: side.told(value.detach().float().flatten()) for key, value in results.items()}


side.serve(Torch)
