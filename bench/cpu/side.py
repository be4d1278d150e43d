"""What the sides of compare.py written in Python share; sides.h has the same in C: numbers that every side makes alike,
the answers to `time` and `check`, and the loop over the requests on standard input."""
import json
import math
import sys
import time
from types import SimpleNamespace

SAMPLES = 64
SEED_KERNEL, SEED_RECURRENT, SEED_BIAS, SEED_RECURRENT_BIAS, SEED_PROJECTION, SEED_X, SEED_DY = 1, 2, 3, 4, 5, 1001, 1002
FIELDS = ["cell", "mode", "dtype", "t", "b", "i", "h", "l", "threads", "option", "require"]
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def numbers(arange, shape, seed, scale):
    """Tensor `seed`, uniform in +-scale; `arange` makes int64 counters of NumPy or PyTorch, and so chooses the library."""
    x = (arange(math.prod(shape)) * 2654435761 & 0xffffffff) + seed * 40503 & 0xffffffff
    x = x ^ x >> 15
    x = x * 2246822519 & 0xffffffff
    x = x ^ x >> 13
    return (((x >> 8) / 8388608.0 - 1.0) * scale).reshape(shape)


def outputs(s):
    """Outputs of a layer: with a projection half its units."""
    return s.h // 2 if s.option == "proj" else s.h


def lengths(batch, steps):
    """Steps of each row, the longest first: evenly from T down to 1."""
    return [steps - (steps - 1) * b // (batch - 1) if batch > 1 else steps for b in range(batch)]


def told(values):
    """Root mean square, and samples at even distances, of a flat array."""
    count = len(values)
    return [math.sqrt(float((values * values).mean())), *(float(values[s * count // SAMPLES]) for s in range(SAMPLES))]


def timed(call, seconds, warm):
    for _ in range(warm):
        call()
    times = []
    begin = last = time.perf_counter()
    while not times or last - begin < seconds:
        call()
        now = time.perf_counter()
        times.append(now - last)
        last = now
    return times


def serve(make):
    """`make(shape)`: an object with `what`, `call()` and `check()`; an exception of it is the answer to the request."""
    side = None
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "open":
                side = None
                shape = SimpleNamespace(**{key: int(word) if word.isdigit() else word
                                           for key, word in zip(FIELDS, words[1:])})
                side = make(shape)
                answer = {"what": side.what}
            elif words[0] == "time":
                answer = {"times": timed(side.call, float(words[1]), int(words[2]))}
            elif words[0] == "check":
                answer = side.check()
            else:
                side = None
                answer = {"what": "closed"}
        except Exception as error:  # noqa: BLE001: whatever the library says belongs into the line
            answer = {"error": (str(error).strip() or repr(error)).splitlines()[0][:200]}
        print(json.dumps(answer), flush=True)
