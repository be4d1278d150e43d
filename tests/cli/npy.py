"""Writes a small .npy file with the standard library alone: npy.py FILE TYPE SHAPE [VALUE...]

TYPE is f4 f8 i4 i8 u1; SHAPE is 3x5x2; without values a fixed pattern in [-1, 1) (0 1 2 0 1 2 ... for whole numbers)."""
import struct
import sys

path, kind, shape = sys.argv[1], sys.argv[2], [int(n) for n in sys.argv[3].split("x")]
count = 1
for n in shape:
    count *= n
whole = kind[0] != "f"
values = [int(v) if whole else float(v) for v in sys.argv[4:]]
if not values:
    values = [i % 3 if whole else (i * 37 % 64) / 32 - 1 for i in range(count)]
code = {"f4": "f", "f8": "d", "i4": "i", "i8": "q", "u1": "B"}[kind]
order = "|" if kind == "u1" else "<"
text = "{'descr': '%s%s', 'fortran_order': False, 'shape': (%s,), }" % (order, kind, ", ".join(map(str, shape)))
text += " " * (-(10 + len(text) + 1) % 64) + "\n"
with open(path, "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
    file.write(struct.pack("<%d%s" % (len(values), code), *values))
