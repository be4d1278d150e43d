#!/usr/bin/env python3
"""Sides of compare.py against each other in short alternating bursts: what a change gains, on a machine whose speed drifts.

    alternate.py SIDE SIDE... -- 'CELL MODE DTYPE T B I H L THREADS [OPTION]'...

A SIDE is a driver that bench/cpu/setup made, such as side_sluice of two builds, with VARIABLE=VALUE before it if need be; REQUIRE=KERNEL
asks for a kernel. For each
shape: the least milliseconds of each side, and the median over the rounds of the first side's time over the others' (above 1: faster
than the first). ROUNDS and SECONDS of a burst are taken from the environment.
"""
import json
import os
import signal
import statistics
import subprocess
import sys


def start(side):
    *settings, program = side.split()
    environment = dict(os.environ, **dict(setting.split("=", 1) for setting in settings))
    return subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def ask(process, request):
    process.send_signal(signal.SIGCONT)
    process.stdin.write(request + "\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("{"):
            process.send_signal(signal.SIGSTOP)  # its threads would go on spinning beside the others' turns
            return json.loads(line)
    sys.exit(f"alternate.py: {process.args[0]} ended at the request '{request}'")


def measure(sides, shape, rounds, seconds):
    words = shape.split()
    processes = [start(side) for side in sides]
    times = [[] for _ in sides]
    for side, process in zip(sides, processes):
        required = [setting[8:] for setting in side.split() if setting.startswith("REQUIRE=")]
        ask(process, f"open {' '.join(words[:9])} {words[9] if len(words) > 9 else 'none'} {(required or ['-'])[0]}")
        ask(process, "time 0.05 1")
    for r in range(rounds):
        order = range(len(sides)) if r % 2 == 0 else reversed(range(len(sides)))
        for k in order:
            times[k].append(1e3 * statistics.median(ask(processes[k], f"time {seconds} 1")["times"]))
    for process in processes:
        process.kill()
    return times


def main():
    if "--" not in sys.argv or sys.argv.index("--") < 3:
        sys.exit(__doc__)
    split = sys.argv.index("--")
    rounds, seconds = int(os.environ.get("ROUNDS", "15")), os.environ.get("SECONDS", "0.05")
    for shape in sys.argv[split + 1:]:
        times = measure(sys.argv[1:split], shape, rounds, seconds)
        ratios = [statistics.median(a / b for a, b in zip(times[0], other)) for other in times[1:]]
        print(f"{shape:44}", " ".join(f"{min(t):9.4g}" for t in times), " first/this:",
              " ".join(f"{ratio:.3f}" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
