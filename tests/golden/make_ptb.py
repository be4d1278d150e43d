"""The published Penn Treebank training (Zaremba 2014, TensorFlow's ptb_word_lm.py) in PyTorch, step by step.

    make_ptb.py TEXT MODEL PRESET [--steps 100] [--dtype float32] [--seed N] [--out FILE]
        the first losses of PRESET (ptb-small, ptb-medium, ptb-large) on TEXT from the weights in MODEL, a file that
        `sluice train lm --preset PRESET TEXT --out MODEL` wrote before its first step. Two numbers a line: the loss, and
        the loss when every weight starts one rounding error away (a relative 2^-53, or 2^-24 in float32, either way): how
        fast rounding grows in this training, whoever computes it
    make_ptb.py --tiny OUT.safetensors
        a model small enough for the tests, with everything on: two layers, dropout 0.5, clipping, decay per epoch

Embedding, dropout, LSTM, dropout, LSTM, dropout, softmax; forget bias 0; loss = sum over T, mean over B; gradients clipped by
their global norm; plain SGD; state carried, zero at the start of an epoch; a last block of less than T steps is dropped.
The numbers printed are nats per token. Dropout masks are Sluice's: Philox4x32-10, key = seed, counter = {element / 4, step,
(layer index + 1) << 8 | 2, 0}, dropped where the word is below p * 2^32.
"""
import argparse
import json
import re

import numpy as np
import torch

from golden import Golden, read_safetensors, rounded

PRESETS = {
    "ptb-small": dict(units=200, batch=20, steps=20, dropout=0.0, clip=5.0, hold=4, decay=0.5, scale=0.1),
    "ptb-medium": dict(units=650, batch=20, steps=35, dropout=0.5, clip=5.0, hold=6, decay=0.8, scale=0.05),
    "ptb-large": dict(units=1500, batch=20, steps=35, dropout=0.65, clip=10.0, hold=14, decay=1 / 1.15, scale=0.04),
}
TINY = dict(units=8, vocabulary=30, batch=4, steps=5, dropout=0.5, clip=1.5, hold=2, decay=0.8, seed=5, lr=1.0)
FIRST_STEP = 0  # the number of the first step, which keys the masks


def philox(seed, c0, c1, c2, c3):
    """Philox4x32-10 (Salmon 2011) for an array of c0 -> [len(c0)][4] words"""
    mask = np.uint64(0xFFFFFFFF)
    c = [np.asarray(c0, np.uint64)] + [np.full(len(c0), v, np.uint64) for v in (c1, c2, c3)]
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k0, p1 & mask, (p0 >> np.uint64(32)) ^ c[3] ^ k1, p0 & mask]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & mask, (k1 + np.uint64(0xBB67AE85)) & mask
    return np.stack(c, 1)


def dropout_factor(shape, rate, seed, step, layer_index):
    """[T][B][H] of 0 or 1 / (1 - rate)"""
    count = int(np.prod(shape))
    words = philox(seed, np.arange((count + 3) // 4), step, (layer_index + 1) << 8 | 2, 0).reshape(-1)[:count]
    return ((words >= int(rate * 2**32)) / (1 - rate)).reshape(shape)


def words_of(text):
    """split at white space, <eos> for every line end"""
    return [w for w in re.split(r"[ \t\r\v\f]+|(\n)", text) if w]


def encode(text, limit):
    """tokens and vocabulary: the `limit` most frequent, ties by first appearance, <unk> last unless the text has it"""
    words = ["<eos>" if w == "\n" else w for w in words_of(text)]
    counts = {}
    for w in words:
        counts[w] = counts.get(w, 0) + 1
    kept = sorted(counts, key=lambda w: -counts[w])  # stable: ties stay in the order of appearance
    if len(kept) > limit:
        kept = kept[:limit] if "<unk>" in kept[:limit] else [w for w in kept if w != "<unk>"][:limit - 1] + ["<unk>"]
    index = {w: i for i, w in enumerate(kept)}
    return np.array([index.get(w, index.get("<unk>", -1)) for w in words], dtype=np.int32), kept


def recurrent(weights, name, x, state):
    zero = torch.zeros_like(weights[name + ".bias"])
    flat = [weights[name + ".kernel"], weights[name + ".recurrent_kernel"], weights[name + ".bias"], zero]
    y, h, c = torch.lstm(x, state, flat, True, 1, 0.0, False, False, False)
    return y, (h.detach(), c.detach())


def losses(weights, tokens, config, count, dtype, seed, learning_rate=1.0, log=None):
    weights = {k: torch.tensor(v, dtype=dtype).requires_grad_() for k, v in weights.items()}
    batch, steps, units, rate = config["batch"], config["steps"], config["units"], config["dropout"]
    length = len(tokens) // batch
    streams = torch.tensor(tokens[:length * batch].reshape(batch, length).T.astype(np.int64))  # [L][B]
    blocks, found, state = (length - 1) // steps, [], None

    def dropped(x, step, layer_index):
        if rate == 0:
            return x
        return x * torch.tensor(dropout_factor(tuple(x.shape), rate, seed, step, layer_index), dtype=dtype)

    for k in range(count):
        epoch, block = divmod(k, blocks)
        if block == 0:
            state = [(torch.zeros(1, batch, units, dtype=dtype),) * 2] * 2
        x, target = streams[block * steps:(block + 1) * steps], streams[block * steps + 1:(block + 1) * steps + 1]
        step = k + FIRST_STEP
        # layers of the preset: 0 tokens, 1 embedding, 2 dropout0, 3 lstm1, 4 dropout1, 5 lstm2, 6 dropout2, 7 logits
        y = dropped(torch.nn.functional.embedding(x, weights["embedding.embeddings"]), step, 2)
        y, first = recurrent(weights, "lstm1", y, state[0])
        y, second = recurrent(weights, "lstm2", dropped(y, step, 4), state[1])
        state = [first, second]
        logits = dropped(y, step, 6) @ weights["logits.kernel"].T + weights["logits.bias"]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum") / batch
        loss.backward()
        with torch.no_grad():
            norm = float(torch.sqrt(sum((w.grad.double()**2).sum() for w in weights.values())))
            scale = config["clip"] / max(norm, config["clip"])
            rate_now = learning_rate * config["decay"]**max(epoch + 1 - config["hold"], 0)
            for w in weights.values():
                w -= rate_now * scale * w.grad
                w.grad = None
        found.append(float(loss.detach()) / steps)
        if log:
            log(k, found[-1], norm)
    return np.array(found)


def tiny(path):
    random, c = np.random.default_rng(11), TINY
    tokens = np.zeros(c["batch"] * 63 + 1, dtype=np.int32)
    for t in range(1, len(tokens)):
        tokens[t] = (tokens[t - 1] * 7 + 3) % c["vocabulary"] if random.random() < 0.8 else random.integers(
            c["vocabulary"])
    uniform = lambda *shape: rounded(random.uniform(-0.3, 0.3, shape))
    units, vocabulary = c["units"], c["vocabulary"]
    weights = {"embedding.embeddings": uniform(vocabulary, units), "logits.kernel": uniform(vocabulary, units),
               "logits.bias": uniform(vocabulary)}
    for name in "lstm1", "lstm2":
        weights |= {name + ".kernel": uniform(4 * units, units), name + ".recurrent_kernel": uniform(4 * units, units),
                    name + ".bias": uniform(4 * units)}
    golden = Golden()
    golden.case("ptb", **c)
    golden.put("in", "tokens", tokens)
    for name, value in weights.items():
        golden.put("param", name, value)
    clipped = []
    found = losses(weights, tokens, c, 100, torch.float64, c["seed"], c["lr"],
                   lambda k, loss, norm: clipped.append(norm > c["clip"]))
    print(f"tiny: loss {found[0]:.4f} -> {found[-1]:.4f}, {sum(clipped)} of 100 steps clipped")
    golden.put("losses", "nats", found)
    golden.write(path, made_by=f"make_ptb.py, torch {torch.__version__}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?")
    parser.add_argument("model", nargs="?")
    parser.add_argument("preset", nargs="?", choices=list(PRESETS))
    parser.add_argument("--tiny")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--seed", type=int, default=0)  # the presets' own
    parser.add_argument("--out")
    a = parser.parse_args()
    if a.tiny:
        return tiny(a.tiny)
    if not (a.text and a.model and a.preset):
        parser.error("TEXT, MODEL and PRESET are needed, or --tiny OUT")
    config = PRESETS[a.preset]
    with open(a.text, encoding="utf-8", newline="") as f:
        tokens, vocabulary = encode(f.read(), 10000)
    tensors, metadata = read_safetensors(a.model)
    if json.loads(metadata["vocabulary"])["tokens"] != vocabulary:
        raise SystemExit("the vocabulary of the model is not the one of the text")
    weights = {k: v for k, v in tensors.items() if not k.startswith(("optim.", "state."))}
    dtype = getattr(torch, a.dtype)
    random, unit = np.random.default_rng(1), torch.finfo(dtype).eps / 2
    moved = {k: v.astype(np.float64) * (1 + unit * random.choice([-1.0, 1.0], v.shape)) for k, v in weights.items()}
    show = lambda k, loss, norm: print(f"{k + 1} {loss:.9f} {norm:.6f}", flush=True)
    found = losses(weights, tokens, config, a.steps, dtype, a.seed, log=show)
    other = losses(moved, tokens, config, a.steps, dtype, a.seed)
    if a.out:
        with open(a.out, "w") as f:
            f.writelines(f"{x:.16g} {y:.16g}\n" for x, y in zip(found, other))


main()
