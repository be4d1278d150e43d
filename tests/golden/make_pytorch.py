"""Golden vectors from PyTorch: nn.LSTM, nn.GRU, nn.RNN in float64, and training losses.  usage: make_pytorch.py OUT.safetensors

PyTorch's gate orders (LSTM i f g o, GRU r z n) are ours, so nothing is permuted; both biases are kept.
"""
import sys

import numpy as np
import torch
from torch import nn

from golden import Golden

torch.set_default_dtype(torch.float64)
golden = Golden()


def rounded(tensor):
    return tensor.float().double()


def layer_names(layers, bidirectional):
    for k in range(layers):
        for d, suffix in enumerate(["forward", "backward"] if bidirectional else [""]):
            yield k, d, f"l{k}" + ("." + suffix if suffix else "")


def parameters(module, layers, bidirectional):
    """our name -> PyTorch parameter"""
    found = {}
    for k, d, name in layer_names(layers, bidirectional):
        for ours, theirs in [("kernel", "weight_ih"), ("recurrent_kernel", "weight_hh"), ("bias", "bias_ih"),
                             ("recurrent_bias", "bias_hh"), ("projection", "weight_hr")]:
            p = getattr(module, f"{theirs}_l{k}" + ("_reverse" if d else ""), None)
            if p is not None:
                found[f"{name}.{ours}"] = p
    return found


def recurrent_case(name, cell, batch, steps, inputs, units, layers=1, bi=False, projection=0, act="tanh", initial=False,
                   lengths=None, bias=True):
    torch.manual_seed(len(golden.metadata))
    kind = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[cell]
    extra = {"proj_size": projection} if projection else {}
    if cell == "rnn":
        extra["nonlinearity"] = act
    module = kind(inputs, units, layers, bias=bias, bidirectional=bi, **extra)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(rounded(torch.rand_like(p) * 1.2 - 0.6))
    golden.case(name, cell=cell, batch=batch, steps=steps, inputs=inputs, units=units, layers=layers,
                bi="concat" if bi else "no", projection=projection, bias="double" if bias else "none", forget="none",
                act=act, sequences=1, state=1, initial=int(initial), mask="lengths" if lengths else "none",
                masked="zero")
    directions, out = (2 if bi else 1), (projection or units)
    x = rounded(torch.randn(steps, batch, inputs)).requires_grad_()
    h0 = rounded(torch.randn(layers * directions, batch, out) * 0.5).requires_grad_()
    c0 = rounded(torch.randn(layers * directions, batch, units)).requires_grad_()
    state = ((h0, c0) if cell == "lstm" else h0) if initial else None
    if lengths:
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
        y, final = module(packed, state)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, total_length=steps)
        golden.put("in", "lengths", np.array(lengths, dtype=np.int32))
    else:
        y, final = module(x, state)
    hn, cn = final if cell == "lstm" else (final, None)

    golden.put("in", "x", x.detach())
    outputs = [(f"l{layers - 1}", y)]
    for k, d, layer in layer_names(layers, bi):
        row = k * directions + d
        outputs.append((layer + ".h", hn[row]))
        if cell == "lstm":
            outputs.append((layer + ".c", cn[row]))
        if initial:
            golden.put("in", layer + ".h0", h0[row].detach())
            if cell == "lstm":
                golden.put("in", layer + ".c0", c0[row].detach())
    loss = 0
    for tensor, value in outputs:
        weight = rounded(torch.randn_like(value))
        golden.put("out", tensor, value.detach())
        golden.put("dout", tensor, weight)
        loss = loss + (weight * value).sum()
    loss.backward()
    golden.put("din", "x", x.grad)
    for k, d, layer in layer_names(layers, bi):
        row = k * directions + d
        if initial:
            golden.put("din", layer + ".h0", h0.grad[row])
            if cell == "lstm":
                golden.put("din", layer + ".c0", c0.grad[row])
    for ours, p in parameters(module, layers, bi).items():
        golden.put("param", ours, p.detach())
        golden.put("grad", ours, p.grad)


def recurrent_cases():
    for cell, act in [("lstm", "tanh"), ("gru", "tanh"), ("rnn", "tanh"), ("rnn", "relu")]:
        c = cell if act == "tanh" else "rnn_relu"
        case = lambda name, *a, **k: recurrent_case(f"{c}_{name}", cell, *a, act=act, **k)
        case("one", 3, 5, 4, 6)
        case("batch1", 1, 9, 5, 7)
        case("unit1", 2, 4, 1, 1)
        case("step1", 4, 1, 3, 5, initial=True)
        case("nobias", 3, 4, 4, 5, bias=False)
        case("initial", 3, 5, 4, 6, initial=True)
        case("awkward", 5, 7, 9, 13)
        case("layers2", 3, 6, 5, 7, layers=2)
        case("layers3", 2, 5, 3, 5, layers=3, initial=True)
        case("bi", 3, 5, 4, 6, bi=True, initial=True)
        case("bi_layers2", 2, 5, 3, 5, layers=2, bi=True)
        case("lengths", 5, 7, 4, 6, lengths=[7, 1, 4, 6, 2])
        case("lengths_initial", 4, 6, 3, 5, lengths=[2, 6, 5, 1], initial=True)
        case("lengths_bi_layers2", 3, 6, 4, 5, layers=2, bi=True, lengths=[3, 6, 1], initial=True)
    recurrent_case("lstm_long", "lstm", 2, 150, 3, 5)
    recurrent_case("gru_long", "gru", 2, 150, 3, 5)
    recurrent_case("lstm_wide", "lstm", 17, 3, 6, 20)
    recurrent_case("gru_wide", "gru", 17, 3, 6, 20)
    recurrent_case("lstm_projection", "lstm", 3, 5, 4, 7, projection=3)
    recurrent_case("lstm_projection_initial", "lstm", 3, 5, 4, 7, projection=3, initial=True)
    recurrent_case("lstm_projection_layers2_bi", "lstm", 2, 5, 3, 6, layers=2, bi=True, projection=4, initial=True)
    recurrent_case("lstm_projection_lengths", "lstm", 3, 6, 3, 5, projection=2, lengths=[6, 2, 4])


# ------------------------------------------------------------------------------------------------- training losses
class LanguageModel(nn.Module):
    """embedding -> LSTM x 2, state carried -> dense; loss: softmax cross-entropy"""

    def __init__(self, vocabulary, embed, units):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embed)
        self.rnn = nn.LSTM(embed, units, 2)
        self.dense = nn.Linear(units, vocabulary)

    def forward(self, tokens, state):
        y, state = self.rnn(self.embedding(tokens), state)
        return self.dense(y), tuple(s.detach() for s in state)


class Regressor(nn.Module):
    """x -> bidirectional GRU, outputs at every step -> dense tanh; loss: mean squared error"""

    def __init__(self, inputs, units, outputs):
        super().__init__()
        self.rnn = nn.GRU(inputs, units, bidirectional=True)
        self.dense = nn.Linear(2 * units, outputs)

    def forward(self, x):
        return torch.tanh(self.dense(self.rnn(x)[0]))


OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.5), dict(kind="sgd", lr=0.5)),
    "sgd_decay": (lambda p: torch.optim.SGD(p, 0.5, weight_decay=0.01), dict(kind="sgd", lr=0.5, decay=0.01)),
    "momentum": (lambda p: torch.optim.SGD(p, 0.2, momentum=0.9), dict(kind="sgd", lr=0.2, momentum=0.9)),
    "nesterov": (lambda p: torch.optim.SGD(p, 0.2, momentum=0.8, nesterov=True),
                 dict(kind="sgd", lr=0.2, momentum=0.8, nesterov=1)),
    "adam": (lambda p: torch.optim.Adam(p, 0.01), dict(kind="adam", lr=0.01)),
    "adam_betas": (lambda p: torch.optim.Adam(p, 0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02),
                   dict(kind="adam", lr=0.02, beta1=0.8, beta2=0.95, eps=1e-6, decay=0.02)),
    "adamw": (lambda p: torch.optim.AdamW(p, 0.01), dict(kind="adamw", lr=0.01)),
    "adamw_decay": (lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.2), dict(kind="adamw", lr=0.01, decay=0.2)),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, 0.005, alpha=0.95), dict(kind="rmsprop", lr=0.005, rho=0.95)),
}
CLIPS = {"none": 0, "value": 0.02, "norm": 0.05, "global": 0.1}


def clip(parameters, kind, limit):
    """As TensorFlow and Keras: scaled by limit / norm where the norm is above it (torch adds 1e-6 to the norm)."""
    grads = [p.grad for p in parameters]
    if kind == "value":
        for g in grads:
            g.clamp_(-limit, limit)
    if kind == "norm":
        for g in grads:
            g.mul_(min(1.0, limit / float(g.norm())))
    if kind == "global":
        scale = min(1.0, limit / float(torch.sqrt(sum((g * g).sum() for g in grads))))
        for g in grads:
            g.mul_(scale)


def train(module, batches, make_optimizer, clip_kind, reduction):
    """ten losses, each before its update"""
    initial = {k: v.clone() for k, v in module.state_dict().items()}
    optimizer, state, losses = make_optimizer(module.parameters()), None, []
    for x, target in batches:
        optimizer.zero_grad()
        if isinstance(module, LanguageModel):
            logits, state = module(x, state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum")
            loss = loss / (target.shape[1] if reduction == "time" else target.numel())
        else:
            loss = nn.functional.mse_loss(module(x), target)
        loss.backward()
        clip(list(module.parameters()), clip_kind, CLIPS[clip_kind])
        optimizer.step()
        losses.append(float(loss.detach()))
    module.load_state_dict(initial)
    return np.array(losses)


def training_case(name, module, batches, options, params):
    golden.case(name, **options)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(rounded(p))
    golden.put("in", "x", np.stack([x.numpy().astype(np.int32) if x.dtype == torch.int64 else x.numpy()
                                    for x, _ in batches]))
    golden.put("in", "target", np.stack([y.numpy().astype(np.int32) if y.dtype == torch.int64 else y.numpy()
                                         for _, y in batches]))
    for ours, p in params.items():
        golden.put("param", ours, p.detach())
    for optimizer, (make, words) in OPTIMIZERS.items():
        for clip_kind in CLIPS:
            for reduction in ["mean", "time"] if options["task"] == "lm" and optimizer == "sgd" else ["mean"]:
                losses = train(module, batches, make, clip_kind, reduction)
                variant = f"{optimizer}_{clip_kind}_{reduction}"
                golden.put("losses", variant, losses)
                text = " ".join(f"{k}={v}" for k, v in words.items())
                golden.metadata[f"losses {name} {variant}"] = f"{text} clip={clip_kind} limit={CLIPS[clip_kind]} " \
                                                              f"reduction={reduction}"


def training_cases():
    torch.manual_seed(7)
    vocabulary, embed, units, batch, steps = 11, 5, 6, 4, 7
    stream = torch.randint(vocabulary, (10 * steps + 1, batch))
    for t in range(1, len(stream)):  # something to learn: most tokens follow from the last
        keep = torch.rand(batch) < 0.8
        stream[t] = torch.where(keep, (stream[t - 1] * 3 + 1) % vocabulary, stream[t])
    module = LanguageModel(vocabulary, embed, units)
    params = {"embedding.embeddings": module.embedding.weight} | parameters(module.rnn, 2, False) | {
        "dense.kernel": module.dense.weight, "dense.bias": module.dense.bias}
    batches = [(stream[i:i + steps], stream[i + 1:i + steps + 1]) for i in range(0, 10 * steps, steps)]
    training_case("train_lm", module, batches,
                  dict(task="lm", batch=batch, steps=steps, inputs=vocabulary, embed=embed, units=units), params)

    inputs, units, outputs = 3, 5, 2
    module = Regressor(inputs, units, outputs)
    params = parameters(module.rnn, 1, True) | {"dense.kernel": module.dense.weight, "dense.bias": module.dense.bias}
    batches = []
    for _ in range(10):
        x = torch.randn(6, 4, inputs)
        y = torch.stack([torch.tanh(x.cumsum(0)[:, :, 0]), torch.sin(x[:, :, 1] * x[:, :, 2])], -1) * 0.7
        batches.append((rounded(x), rounded(y)))
    training_case("train_regressor", module, batches,
                  dict(task="regressor", batch=4, steps=6, inputs=inputs, units=units, outputs=outputs), params)


recurrent_cases()
training_cases()
golden.write(sys.argv[1], made_by=f"make_pytorch.py, torch {torch.__version__}")
