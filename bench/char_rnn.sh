#!/bin/sh
# Characters per second of char-rnn training, Sluice beside PyTorch, in alternating runs; f32; on a CPU with AVX512_BF16 bf16, too; with AMX f32x3 (PyTorch: f32) and bf16;
# 1 and 2 threads.
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

dtypes=f32
grep -q avx512_bf16 /proc/cpuinfo && dtypes="f32 bf16"
grep -q amx_bf16 /proc/cpuinfo && dtypes="f32 f32x3 bf16"
run() { # DTYPE THREADS ROUND
    "$sluice" train lm --preset char-rnn "$text" --dtype "$1" --threads "$2" --log "$work/sluice.$1.$2.$3" \
        --out "$work/model" --overwrite >"$work/out" 2>&1 &
    process=$!
    sleep "$seconds"
    kill -KILL "$process" 2>/dev/null || { cat "$work/out" >&2; exit 1; } # speed only: no evaluation, no checkpoint
    wait "$process" 2>/dev/null || true
    rm -f "$work"/model*
    onednn=best
    [ "$1" = bf16 ] && onednn=on # its own loop is 25 times slower there
    theirs=$1
    [ "$1" = f32x3 ] && theirs=f32
    OMP_NUM_THREADS=$2 "$python" "$here/bench/char_rnn_pytorch.py" "$text" --dtype "$theirs" --threads "$2" --steps 100 \
        --onednn $onednn >"$work/pytorch.$1.$2.$3" 2>/dev/null
}
for dtype in $dtypes; do
    for threads in 1 2; do
        for round in $(seq "$rounds"); do run "$dtype" "$threads" "$round"; done
    done
done
"$python" - "$work" "$here/bench/results/char_rnn_cpu_$(date +%Y-%m-%d).json" "$rounds" "$seconds" "$dtypes" <<'END'
import json, platform, statistics, sys
work, out, rounds, seconds, dtypes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5].split()

def sluice(dtype, threads, r):
    lines = [json.loads(l) for l in open(f"{work}/sluice.{dtype}.{threads}.{r}") if l.rstrip().endswith("}")]
    steps = [l for l in lines if "step" in l and "event" not in l]
    half = [l["seconds"] for l in steps[len(steps) // 2:]]  # a step is 2500 characters; the first half is warm-up
    return lines[0], 2500 / statistics.median(after - before for before, after in zip(half, half[1:]))  # as PyTorch's side

def row(values):
    return {"median": round(statistics.median(values)), "min": round(min(values)), "max": round(max(values))}

model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
result = {"what": "char-rnn preset, characters per second of the whole training step", "cpu": model, "rounds": rounds,
          "seconds_per_sluice_run": seconds, "dtypes": {dtype: {} for dtype in dtypes}}
for dtype in dtypes:
    for threads in 1, 2:
        ours = [sluice(dtype, threads, r + 1) for r in range(rounds)]
        theirs = [json.load(open(f"{work}/pytorch.{dtype}.{threads}.{r + 1}")) for r in range(rounds)]
        result["sluice"], result["kernel"] = ours[0][0]["version"], ours[0][0]["kernel"]
        result["pytorch"] = theirs[0]["version"]
        a, b = row([o[1] for o in ours]), row([t["chars_per_second"] for t in theirs])
        result["dtypes"][dtype][threads] = {"sluice": a, "pytorch": b, "pytorch_onednn": theirs[0]["onednn"],
                                            "ratio": round(a["median"] / b["median"], 2)}
        print(f"{dtype}, {threads} thread(s): Sluice {a['median']} characters/s, PyTorch {b['median']}, "
              f"ratio {a['median'] / b['median']:.2f}")
json.dump(result, open(out, "w"), indent=1)
print("wrote", out)
END
