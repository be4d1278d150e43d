"""ONNX Runtime as a side of compare.py: one LSTM, GRU or RNN node a layer, inference, its CPU provider; its inputs and
outputs are bound once. `per_step` is a model of one step whose state goes through the caller, as in streaming."""
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import side

# ONNX's order of gates, by place in ours: i f g o -> i o f g, r z n -> z r n.
ORDER = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "rnn": [0]}


def numbers(shape, seed, scale):
    return side.numbers(lambda n: np.arange(n, dtype=np.int64), shape, seed, scale).astype(np.float32)


def in_order(value, cell, h):
    return np.concatenate([value[g * h:(g + 1) * h] for g in ORDER[cell]])


def layer_nodes(s, layer, source, states):
    """The nodes of one layer and its initialisers; `states`: names of the state that goes in and out, or none."""
    gates, scale, inputs = side.GATES[s.cell], s.h ** -0.5, s.i if layer == 0 else s.h

    def tensor(kind, *shape):
        return in_order(numbers(shape, 10 * layer + kind, scale), s.cell, s.h)

    bias = tensor(side.SEED_BIAS, gates * s.h)
    after = s.cell == "gru" and s.option != "before"
    recurrent_bias = tensor(side.SEED_RECURRENT_BIAS, gates * s.h) if after else np.zeros_like(bias)
    values = {"w": tensor(side.SEED_KERNEL, gates * s.h, inputs)[None], "b": np.concatenate([bias, recurrent_bias])[None],
              "r": tensor(side.SEED_RECURRENT, gates * s.h, s.h)[None]}
    initialisers = [numpy_helper.from_array(value, f"{name}{layer}") for name, value in values.items()]
    ins = [source, f"w{layer}", f"r{layer}", f"b{layer}", "lengths" if s.option == "lengths" else ""]
    attributes = {"linear_before_reset": 1} if after else {}
    node = helper.make_node(s.cell.upper(), ins + [f"{name}_in" for name in states],
                            [f"all{layer}"] + [f"{name}_out" for name in states], hidden_size=s.h, **attributes)
    squeeze = helper.make_node("Squeeze", [f"all{layer}", "axis"], [f"y{layer}"])
    return [node, squeeze], initialisers


def build(s, steps, states):
    nodes, initialisers, source = [], [numpy_helper.from_array(np.array([1], np.int64), "axis")], "x"
    for layer in range(s.l):
        more, values = layer_nodes(s, layer, source, states)
        nodes, initialisers, source = nodes + more, initialisers + values, f"y{layer}"
    real = TensorProto.FLOAT
    ins = [helper.make_tensor_value_info("x", real, [steps, s.b, s.i])]
    outs = [helper.make_tensor_value_info(source, real, [steps, s.b, s.h])]
    if s.option == "lengths":
        ins.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [s.b]))
    for name in states:
        ins.append(helper.make_tensor_value_info(f"{name}_in", real, [1, s.b, s.h]))
        outs.append(helper.make_tensor_value_info(f"{name}_out", real, [1, s.b, s.h]))
    graph = helper.make_graph(nodes, s.cell, ins, outs, initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()


class OnnxRuntime:
    def __init__(self, s):
        if s.mode == "train" or s.dtype != "f32" or s.option not in ("none", "lengths", "before", "per_step"):
            raise ValueError("not in ONNX Runtime")
        self.states = (["h", "c"] if s.cell == "lstm" else ["h"]) if s.option == "per_step" else []
        self.steps, steps = s.t, 1 if self.states else s.t
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = s.threads, 1
        self.session = onnxruntime.InferenceSession(build(s, steps, self.states), options,
                                                    providers=["CPUExecutionProvider"])
        self.every_x = numbers((s.t, s.b, s.i), side.SEED_X, 1)
        self.x, self.output, self.state = self.every_x[:steps], f"y{s.l - 1}", {}
        self.y = np.zeros((steps, s.b, s.h), np.float32)
        self.binding = self.session.io_binding()
        self.bound = [onnxruntime.OrtValue.ortvalue_from_numpy(self.x)]
        self.binding.bind_ortvalue_input("x", self.bound[0])
        if s.option == "lengths":
            self.bound.append(onnxruntime.OrtValue.ortvalue_from_numpy(np.array(side.lengths(s.b, s.t), np.int32)))
            self.binding.bind_ortvalue_input("lengths", self.bound[-1])
        self.out = onnxruntime.OrtValue.ortvalue_from_numpy(self.y)
        self.binding.bind_ortvalue_output(self.output, self.out)
        for name in self.states:  # the state is updated in place
            self.state[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, s.b, s.h), np.float32))
            self.binding.bind_ortvalue_input(f"{name}_in", self.state[name])
            self.binding.bind_ortvalue_output(f"{name}_out", self.state[name])
        self.what = f"{onnxruntime.__version__}"

    def call(self):
        for _ in range(self.steps if self.states else 1):
            self.session.run_with_iobinding(self.binding)

    def check(self):
        self.call()
        y = self.all_steps() if self.states else self.out.numpy()
        return {"y": side.told(y.ravel().astype(np.float64))}

    def all_steps(self):
        """Outputs of every step, from a state of zeros."""
        state, outputs = {f"{name}_in": np.zeros_like(value.numpy()) for name, value in self.state.items()}, []
        for x in self.every_x:
            y, *new = self.session.run([self.output, *(f"{name}_out" for name in self.states)], {"x": x[None], **state})
            state = {f"{name}_in": value for name, value in zip(self.states, new)}
            outputs.append(y)
        return np.array(outputs)


side.serve(OnnxRuntime)
