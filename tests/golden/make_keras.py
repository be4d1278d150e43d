"""Golden vectors from Keras 3 (torch backend, float64), and training losses.  usage: make_keras.py OUT.safetensors

Kernels are transposed and gates permuted to Sluice's order here; GRU's (2, 3H) bias becomes bias and recurrent_bias.
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import torch

from golden import Golden, keras_gates, rounded

keras.config.set_floatx("float64")
# Off TensorFlow Keras promotes two float64 to float32, as JAX does by default: matmul would lose half of the digits.
promotion = keras.src.backend.common.dtypes.BIT64_TO_BIT32_DTYPE
promotion["float64"] = "float64"
golden = Golden()
random = np.random.default_rng(3)


def hard_sigmoid(x):
    """keras.activations.hard_sigmoid; torch's own, behind it, takes 1/6 in float in the backward pass even of doubles"""
    return torch.clamp(x / 6 + 0.5, 0, 1)


KINDS = {"lstm": keras.layers.LSTM, "gru": keras.layers.GRU, "rnn": keras.layers.SimpleRNN}


def recurrent_parameters(layer, cell, name):
    """our name -> (Keras variable, function that brings a value or gradient into our order)"""
    c = layer.cell
    order = lambda a: keras_gates(cell, a)
    found = {f"{name}.kernel": (c.kernel, order), f"{name}.recurrent_kernel": (c.recurrent_kernel, order)}
    if c.bias is not None:
        if cell == "gru" and c.reset_after:
            found[f"{name}.bias"] = (c.bias, lambda a: order(a[0]))
            found[f"{name}.recurrent_bias"] = (c.bias, lambda a: order(a[1]))
        else:
            found[f"{name}.bias"] = (c.bias, order)
    return found


def layer_parameters(layer):
    """the same for any layer, under its own name"""
    if isinstance(layer, keras.layers.Bidirectional):
        cell = cell_of(layer.forward_layer)
        return recurrent_parameters(layer.forward_layer, cell, layer.name + ".forward") | recurrent_parameters(
            layer.backward_layer, cell, layer.name + ".backward")
    if hasattr(layer, "cell"):
        return recurrent_parameters(layer, cell_of(layer), layer.name)
    if isinstance(layer, keras.layers.Dense):
        return {f"{layer.name}.kernel": (layer.kernel, lambda a: np.asarray(a).T),
                f"{layer.name}.bias": (layer.bias, np.asarray)}
    if isinstance(layer, keras.layers.Embedding):
        return {f"{layer.name}.embeddings": (layer.embeddings, np.asarray)}
    return {}


def cell_of(layer):
    return next(k for k, v in KINDS.items() if isinstance(layer, v))


def numbers(variable):
    return variable.value.detach().numpy()


def time_major(a):
    return a.transpose(1, 0, *range(2, a.ndim))


def make_mask(kind, batch, steps):
    t, b = np.arange(steps), np.arange(batch)[:, None]
    if kind == "right":
        return t < np.maximum(steps - 2 * b, 1)
    if kind == "left":
        return t >= np.minimum(2 * b, steps - 1)
    mask = random.random((batch, steps)) < 0.6
    mask[0], mask[-1] = True, False  # one whole row and one empty row
    return mask


def recurrent_case(name, cell, batch=3, steps=5, inputs=4, units=5, bi="no", initial=False, mask="none", masked="repeat",
                   sequences=True, state=True, backwards=False, calls=1, **options):
    keras.utils.set_random_seed(len(golden.metadata))
    common = dict(return_sequences=sequences, return_state=state, go_backwards=backwards, stateful=calls > 1)
    layer = KINDS[cell](units, name="l0", **common, **options)
    if masked == "zero" and mask != "none":
        layer.zero_output_for_mask = True
    if bi != "no":
        layer = keras.layers.Bidirectional(layer, merge_mode=bi, name="l0")
        layer.forward_layer.name, layer.backward_layer.name = "forward", "backward"
    if calls > 1:
        layer.build((batch, steps, inputs))
    else:
        layer.build((None, steps, inputs))
    params = layer_parameters(layer)
    for v in {id(v): v for v, _ in params.values()}.values():
        v.assign(rounded(random.uniform(-0.7, 0.7, v.shape)))
    bias = "double" if cell == "gru" and options.get("reset_after", True) else "single"
    gate = options.get("recurrent_activation", "sigmoid")
    golden.case(name, cell=cell, batch=batch, steps=steps, inputs=inputs, units=units, layers=1, bi=bi, projection=0,
                bias=bias if options.get("use_bias", True) else "none", forget="none",
                act=options.get("activation", "tanh"), recurrent_act=getattr(gate, "__name__", gate),
                sequences=int(sequences), state=int(state), initial=int(initial),
                mask="steps" if mask != "none" else "none", masked=masked, backwards=int(backwards), calls=calls,
                reset_before=int(cell == "gru" and not options.get("reset_after", True)))

    x = torch.tensor(rounded(random.standard_normal((batch, steps * calls, inputs))), requires_grad=True)
    parts = ["forward", "backward"] if bi != "no" else [""]
    state_names = ["l0" + ("." + p if p else "") + s for p in parts for s in ([".h", ".c"] if cell == "lstm" else [".h"])]
    states = [torch.tensor(rounded(random.standard_normal((batch, units)) * 0.5), requires_grad=True) for _ in state_names]
    keywords = {"initial_state": states} if initial else {}
    if mask != "none":
        values = make_mask(mask, batch, steps)
        keywords["mask"] = torch.tensor(values)
        golden.put("in", "mask", values.T.astype(np.uint8))
    outputs, stateful = {}, []
    if calls > 1:  # the carried state is assigned in place, which autograd refuses: outputs first, then the same by hand
        with torch.no_grad():
            stateful = [layer(x[:, k * steps:(k + 1) * steps], **keywords)[0] for k in range(calls)]
        layer.stateful = False
    for k in range(calls):
        got = layer(x[:, k * steps:(k + 1) * steps], **keywords)
        got = list(got) if isinstance(got, (list, tuple)) else [got]
        if calls > 1:
            assert torch.equal(got[0], stateful[k])
            keywords["initial_state"] = [s.detach() for s in got[1:]]
        for tensor, value in zip(["l0"] + state_names, got):
            outputs.setdefault(tensor, []).append(value)
    golden.put("in", "x", time_major(x.detach().numpy()))
    loss = 0
    for tensor, values in outputs.items():
        major = tensor == "l0" and sequences  # [T][B][F]; the rest is [B][F] and stacked by call
        weights = [torch.tensor(rounded(random.standard_normal(v.shape))) for v in values]
        for kind, all_calls in [("out", values), ("dout", weights)]:
            arrays = [v.detach().numpy() for v in all_calls]
            golden.put(kind, tensor, np.concatenate([time_major(a) if major else a for a in arrays]))
        loss = loss + sum((w * v).sum() for w, v in zip(weights, values))
    loss.backward()
    golden.put("din", "x", time_major(x.grad.numpy()))
    for tensor, value in zip(state_names, states):
        if initial:
            golden.put("in", tensor + "0", value.detach())
            golden.put("din", tensor + "0", value.grad)
    for ours, (variable, order) in params.items():
        golden.put("param", ours, order(numbers(variable)))
        golden.put("grad", ours, order(variable.value.grad.numpy()))


def recurrent_cases():
    for cell, title, extra in [("lstm", "lstm", {}), ("gru", "gru_after", {}), ("gru", "gru_before", {"reset_after": False}),
                               ("rnn", "rnn", {})]:
        case = lambda name, **k: recurrent_case(f"{title}_{name}", cell, **extra, **k)
        case("plain")
        case("last", sequences=False, state=False)
        case("initial", initial=True)
        case("backwards", backwards=True, initial=True)
        case("backwards_last", backwards=True, sequences=False, state=False)
        case("stateful", calls=3)
        case("nobias", use_bias=False)
        case("mask_right", mask="right", steps=6)
        case("mask_left", mask="left", steps=6)
        case("mask_holes", mask="holes", steps=7, batch=4, initial=True)
        case("mask_holes_last", mask="holes", steps=7, batch=4, sequences=False, state=False)
        case("mask_holes_backwards", mask="holes", steps=7, batch=4, backwards=True)
        case("mask_zero", mask="holes", masked="zero", steps=7, batch=4)
        case("mask_stateful", mask="right", steps=4, calls=2)
        case("relu", activation="relu")
        case("softsign", activation="softsign")
        case("bi_concat", bi="concat", initial=True)
        case("bi_sum", bi="sum")
        case("bi_mul", bi="mul")
        case("bi_ave", bi="ave")
        case("bi_last", bi="concat", sequences=False, state=False)
        # Bidirectional sets zero_output_for_mask where sequences are returned.
        case("bi_mask", bi="concat", mask="holes", masked="zero", steps=6, batch=4)
        case("bi_mask_last", bi="sum", mask="right", steps=6, sequences=False, state=False)
        if cell != "rnn":
            case("hard_sigmoid", recurrent_activation=hard_sigmoid)
            case("linear_relu", activation="linear", recurrent_activation="relu")


# ------------------------------------------------------------------------------------------------- training losses
# Keras puts epsilon elsewhere (RMSprop: inside the root; Adam: beside the uncorrected root). With 1e-30 both are the same.
OPTIMIZERS = {
    "sgd": (keras.optimizers.SGD, dict(learning_rate=0.3), dict(kind="sgd", lr=0.3)),
    "momentum": (keras.optimizers.SGD, dict(learning_rate=0.1, momentum=0.9), dict(kind="sgd", lr=0.1, momentum=0.9)),
    "nesterov": (keras.optimizers.SGD, dict(learning_rate=0.1, momentum=0.9, nesterov=True),
                 dict(kind="sgd", lr=0.1, momentum=0.9, nesterov=1)),
    "adam": (keras.optimizers.Adam, dict(learning_rate=0.01, epsilon=1e-30), dict(kind="adam", lr=0.01, eps=1e-30)),
    "adamw": (keras.optimizers.AdamW, dict(learning_rate=0.01, epsilon=1e-30, weight_decay=0.05),
              dict(kind="adamw", lr=0.01, eps=1e-30, decay=0.05)),
    "rmsprop": (keras.optimizers.RMSprop, dict(learning_rate=0.005, rho=0.9, epsilon=1e-30),
                dict(kind="rmsprop", lr=0.005, rho=0.9, eps=1e-30)),
}
CLIPS = {"none": ({}, 0), "value": ({"clipvalue": 0.02}, 0.02), "norm": ({"clipnorm": 0.05}, 0.05),
         "global": ({"global_clipnorm": 0.1}, 0.1)}


def training_case(name, layers, loss, loss_name, batches, all_clips=True):
    keras.utils.set_random_seed(len(golden.metadata))
    model = keras.Sequential(layers, name=name)
    golden.case(name, task=loss_name, batch=batches[0][0].shape[0], steps=batches[0][0].shape[1])
    golden.metadata["json " + name] = model.to_json()
    model.set_weights([rounded(w) for w in model.get_weights()])
    for layer in model.layers:
        for ours, (variable, order) in layer_parameters(layer).items():
            golden.put("param", ours, order(numbers(variable)))
    labels = lambda y: y.T if y.ndim > 1 and y.dtype == np.int32 else time_major(y) if y.ndim > 2 else y
    golden.put("in", "x", np.stack([time_major(x) for x, _ in batches]))
    golden.put("in", "target", np.stack([labels(y) for _, y in batches]))
    initial = model.get_weights()
    for optimizer, (kind, options, words) in OPTIMIZERS.items():
        for clip, (clip_options, limit) in CLIPS.items():
            if clip != "none" and not all_clips:
                continue
            model.set_weights(initial)
            model.compile(kind(**options, **clip_options), loss, run_eagerly=True, jit_compile=False)
            losses = []
            for x, y in batches:
                losses.append(float(model.evaluate(x, y, batch_size=len(x), verbose=0)))
                model.train_on_batch(x, y)
            golden.put("losses", f"{optimizer}_{clip}", np.array(losses))
            text = " ".join(f"{k}={v}" for k, v in words.items())
            golden.metadata[f"losses {name} {optimizer}_{clip}"] = f"{text} clip={clip} limit={limit} reduction=mean"


def training_cases():
    L = keras.layers
    floats = lambda *shape: rounded(random.standard_normal(shape))
    ints = lambda top, *shape: random.integers(0, top, shape, dtype=np.int32)
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    training_case("train_mse", [L.Input((6, 3)), L.LSTM(5, return_sequences=True, name="first"),
                                L.GRU(4, reset_after=False, name="second"), L.Dense(2, name="out")],
                  keras.losses.MeanSquaredError(), "mse", [(floats(4, 6, 3), floats(4, 2)) for _ in range(10)])
    training_case("train_tokens", [L.Input((7,), dtype="int32"), L.Embedding(11, 5, name="embedding"),
                                   L.Bidirectional(L.LSTM(4), name="both"), L.Dense(3, name="out")],
                  crossentropy, "softmax", [(ints(11, 4, 7), ints(3, 4)) for _ in range(10)])
    training_case("train_steps", [L.Input((5, 3)), L.Bidirectional(L.SimpleRNN(4, return_sequences=True), "sum", name="both"),
                                  L.Dense(6, activation="relu", name="hidden"), L.Dense(3, name="out")],
                  crossentropy, "softmax", [(floats(4, 5, 3), ints(3, 4, 5)) for _ in range(10)])
    # GRU with reset_after: its two biases are one tensor for Keras's clipnorm, two for ours; so no clipping here.
    training_case("train_binary", [L.Input((6, 3)), L.GRU(5, name="gru"), L.Dense(1, name="out")],
                  keras.losses.BinaryCrossentropy(from_logits=True), "binary",
                  [(floats(4, 6, 3), ints(2, 4, 1).astype("float64")) for _ in range(10)], all_clips=False)


recurrent_cases()
training_cases()
golden.write(sys.argv[1], made_by=f"make_keras.py, keras {keras.__version__}, torch {torch.__version__}")
