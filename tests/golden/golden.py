"""What the generators share: the safetensors writer, option strings, and the order of gates.

A golden file holds cases. `__metadata__` has one key per case, "case NAME", whose value is the case's options as
`key=value` words; tensors are called "NAME/in/TENSOR", "NAME/out/TENSOR", "NAME/dout/TENSOR" (gradient given to an output),
"NAME/din/TENSOR", "NAME/param/PARAMETER" and "NAME/grad/PARAMETER", all in Sluice's own names, shapes and gate order, so
that the C tests compare without converting anything. Time-major. What is given (in, param, dout) was rounded to float and
is stored so; what was computed from it is float64.
"""
import json
import os
import struct

import numpy as np

DTYPES = {"float64": "F64", "float32": "F32", "int32": "I32", "uint8": "U8"}


def write_safetensors(path, tensors, metadata):
    """tensors: name -> numpy array. 8-byte elements first, so that every tensor is aligned to its element."""
    header, offset, names = {"__metadata__": metadata}, 0, sorted(tensors, key=lambda n: (-tensors[n].itemsize, n))
    for name in names:
        a = tensors[name]
        header[name] = {"dtype": DTYPES[str(a.dtype)], "shape": list(a.shape),
                        "data_offsets": [offset, offset + a.nbytes]}
        offset += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            f.write(np.ascontiguousarray(tensors[name]).tobytes())
    os.replace(path + ".tmp", path)


def read_safetensors(path):
    """-> tensors (name -> numpy array), metadata. Enough for the files that Sluice writes."""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    metadata = header.pop("__metadata__", {})
    kinds = {v: k for k, v in DTYPES.items()} | {"I64": "int64", "BOOL": "uint8"}
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], kinds[info["dtype"]]).reshape(info["shape"])
    return tensors, metadata


def rounded(a):
    """to the nearest float, still double"""
    return np.asarray(a).astype(np.float32).astype(np.float64)


class Golden:
    def __init__(self):
        self.tensors, self.metadata = {}, {}

    def case(self, name, **options):
        assert "case " + name not in self.metadata, name
        self.metadata["case " + name] = " ".join(f"{k}={v}" for k, v in options.items())
        self.name = name

    def put(self, kind, tensor, value):
        a = np.asarray(value)
        if a.dtype == np.float64 and kind in ("in", "param", "dout"):
            a, exact = a.astype(np.float32), a
            assert (a == exact).all(), f"{self.name}/{kind}/{tensor} is not rounded to float"
        key = f"{self.name}/{kind}/{tensor}"
        assert key not in self.tensors, key
        self.tensors[key] = a.astype({"i": "int32", "u": "uint8", "b": "uint8"}.get(a.dtype.kind, a.dtype))

    def write(self, path, **metadata):
        write_safetensors(path, self.tensors, self.metadata | metadata)
        print(f"{path}: {len(self.metadata)} cases, {len(self.tensors)} tensors, {os.path.getsize(path)} bytes")


def keras_gates(cell, matrix):
    """Keras's last axis (LSTM i f c o, GRU z r h) to ours (i f g o, r z n), transposed: (I, G*H) -> [G*H][I]."""
    a = np.asarray(matrix)
    if cell == "gru":
        z, r, h = np.split(a, 3, axis=-1)
        a = np.concatenate([r, z, h], axis=-1)
    return a.T.copy()
