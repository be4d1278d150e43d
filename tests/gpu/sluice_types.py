#!/usr/bin/env python3
"""C's structs of Sluice's headers as interop_torch.py hands them over by ctypes.

    sluice_types.py [INCLUDE]     compares them with the headers: exit code 1 where members, order or types differ
"""
import os
import re
import sys
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_size_t, c_uint32, c_void_p


class Optimizer(Structure):
    _fields_ = [("kind", c_int), ("momentum", c_double), ("nesterov", c_int), ("beta1", c_double), ("beta2", c_double),
                ("rho", c_double), ("epsilon", c_double), ("weight_decay", c_double)]


class Clip(Structure):
    _fields_ = [("kind", c_int), ("value", c_double)]


class PlanOptions(Structure):
    _fields_ = [("batch", c_int), ("steps", c_int), ("train", c_int), ("dtype", c_int), ("device", c_char_p),
                ("require", c_char_p), ("memory_limit", c_size_t), ("threads", c_int), ("thread_pool", c_void_p),
                ("masking", c_int), ("batch_major", c_int), ("input_gradients", c_int), ("loss", c_int),
                ("reduction", c_int), ("optimizer", Optimizer), ("clip", Clip), ("no_graph", c_int),
                ("recompute_gates", c_int), ("narrow_parameters", c_int), ("narrow_tensors", c_int), ("allocator", c_void_p), ("choices", c_char_p), ("tune", c_int)]


class Call(Structure):
    _fields_ = [("batch", c_int), ("steps", c_int), ("training", c_int), ("parameters_changed", c_int),
                ("step", c_uint32), ("inputs", POINTER(c_void_p)), ("outputs", POINTER(c_void_p)),
                ("lengths", c_void_p)]


# ------------------------------------------------------------------------------------------------------- comparing --
# Struct, header, class. An enum is an int.
STRUCTS = [("sl_optimizer", "sluice.h", Optimizer), ("sl_clip", "sluice.h", Clip),
           ("sl_plan_options", "sluice.h", PlanOptions), ("sl_interop_call", "sluice_interop.h", Call)]
MEMBER = re.compile(r"((?:const )?\w+(?:(?: const)?(?: \*+const| \*+))?) ?(.*)")
NAMED = {"double": c_double, "size_t": c_size_t, "uint32_t": c_uint32, "sl_optimizer": Optimizer, "sl_clip": Clip}


def members_of(text, name):
    """[(name, type)] of a struct; pointers are None."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    body = re.search(rf"struct {name} \{{(.*?)\}}", text, re.S).group(1)
    members = []
    for declaration in filter(None, map(str.strip, body.split(";"))):
        kind, names = MEMBER.fullmatch(" ".join(declaration.split())).groups()
        for each in names.split(","):
            pointer = "*" in kind or "*" in each
            members.append((each.strip(" *"), None if pointer else NAMED.get(kind, c_int)))
    return members


def ours(kind):
    return None if kind in (c_char_p, c_void_p) or hasattr(kind, "contents") else kind


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    include = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "../../include")
    failed = 0
    for name, header, struct in STRUCTS:
        with open(os.path.join(include, header), encoding="utf-8") as file:
            theirs = members_of(file.read(), name)
        own = [(field, ours(kind)) for field, kind in struct._fields_]
        if own != theirs:
            failed += 1
            print(f"{name} of {header} is not {struct.__name__}: {theirs}, not {own}")
    print(f"{len(STRUCTS) - failed} structs as in the headers, {failed} not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
