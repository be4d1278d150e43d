#!/bin/sh
# Characters per second of char-rnn training, Sluice beside PyTorch, in alternating runs; 1 and 2 threads.
#     PYTHON=/path/with/torch/bin/python bench/char_rnn.sh TEXT [ROUNDS] [SECONDS]
# Writes bench/results/char_rnn_cpu_DATE.json. SLUICE: the program (build/sluice). Leave the machine alone meanwhile.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
text=${1:?usage: bench/char_rnn.sh TEXT [ROUNDS] [SECONDS]}
rounds=${2:-5}
seconds=${3:-20}
sluice=${SLUICE:-$here/build/sluice}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for threads in 1 2; do
    for round in $(seq "$rounds"); do
        "$sluice" train lm --preset char-rnn "$text" --threads "$threads" --log "$work/sluice.$threads.$round" \
            --out "$work/model" >"$work/out" 2>&1 &
        process=$!
        sleep "$seconds"
        kill -KILL "$process" # speed only: no evaluation, no checkpoint
        wait "$process" 2>/dev/null || true
        rm -f "$work"/model*
        OMP_NUM_THREADS=$threads "$python" "$here/bench/char_rnn_pytorch.py" "$text" --threads "$threads" --steps 100 \
            >"$work/pytorch.$threads.$round" 2>/dev/null
    done
done
"$python" - "$work" "$here/bench/results/char_rnn_cpu_$(date +%Y-%m-%d).json" "$rounds" "$seconds" <<'END'
import json, platform, statistics, sys
work, out, rounds, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def sluice(threads, r):
    lines = [json.loads(l) for l in open(f"{work}/sluice.{threads}.{r}") if l.rstrip().endswith("}")]
    steps = [l for l in lines if "step" in l and "event" not in l]
    half = steps[len(steps) // 2:]  # a step is 2500 characters; the first half is warm-up
    return lines[0], 2500 * (len(half) - 1) / (half[-1]["seconds"] - half[0]["seconds"])

def row(values):
    return {"median": round(statistics.median(values)), "min": round(min(values)), "max": round(max(values))}

model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
result = {"what": "char-rnn preset, characters per second of the whole training step", "cpu": model, "rounds": rounds,
          "seconds_per_sluice_run": seconds, "threads": {}}
for threads in 1, 2:
    ours = [sluice(threads, r + 1) for r in range(rounds)]
    theirs = [json.load(open(f"{work}/pytorch.{threads}.{r + 1}")) for r in range(rounds)]
    result["sluice"], result["kernel"] = ours[0][0]["version"], ours[0][0]["kernel"]
    result["pytorch"] = theirs[0]["version"]
    a, b = row([o[1] for o in ours]), row([t["chars_per_second"] for t in theirs])
    result["threads"][threads] = {"sluice": a, "pytorch": b, "pytorch_onednn": theirs[0]["onednn"],
                                  "ratio": round(a["median"] / b["median"], 2)}
    print(f"{threads} thread(s): Sluice {a['median']} characters/s, PyTorch {b['median']}, "
          f"ratio {a['median'] / b['median']:.2f}")
json.dump(result, open(out, "w"), indent=1)
print("wrote", out)
END
