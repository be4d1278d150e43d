#!/bin/sh
# The first losses of a PTB preset beside PyTorch's from the same weights and text (tests/golden/make_ptb.py).
#     bench/ptb_losses.sh TEXT [PRESET] [STEPS]        ptb-small 100; f64 runs on the reference kernels and takes its time
# SLUICE: the program (build/sluice); PYTHON: one with torch. Without PYTHON, PyTorch's losses are the committed ones
# (tests/data/golden/PRESET.losses), which belong to War and Peace and to the weights of seed 1.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
text=${1:?usage: bench/ptb_losses.sh TEXT [PRESET] [STEPS]}
preset=${2:-ptb-small}
steps=${3:-100}
dtype=${DTYPE:-f64} # in f32 rounding errors grow tenfold every six steps, for PyTorch as for us: bench/README.md
[ "$dtype" = f64 ] && torch=float64 || torch=float32
sluice=${SLUICE:-$here/build/sluice}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The weights before the first step: one step with a learning rate that moves nothing.
"$sluice" train lm --preset "$preset" "$text" --lr 1e-12 --max-minutes 0.00001 --out "$work/initial" >"$work/out" 2>&1 ||
    { cat "$work/out"; exit 1; }

if [ -n "${PYTHON:-}" ]; then
    "$PYTHON" "$here/tests/golden/make_ptb.py" "$text" "$work/initial" "$preset" --steps "$steps" --dtype "$torch" --out "$work/theirs" \
        >/dev/null
else
    head -n "$steps" "$here/tests/data/golden/$preset.losses" >"$work/theirs"
fi

"$sluice" train lm --preset "$preset" "$text" --init-from "$work/initial" --dtype "$dtype" --log "$work/log" --out "$work/model" \
    >"$work/out" 2>&1 &
process=$!
losses() { sed -n '/^{"step"/s/.*"loss": *\([-+.0-9eE]*\).*/\1/p' "$work/log" 2>/dev/null | head -n "$steps"; }
while [ "$(losses | wc -l)" -lt "$steps" ] && kill -0 "$process" 2>/dev/null; do sleep 1; done
kill -KILL "$process" 2>/dev/null || true
wait "$process" 2>/dev/null || true
losses >"$work/ours"

paste "$work/ours" "$work/theirs" | awk -v preset="$preset" '
    { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) { worst = d; at = NR } first = NR == 1 ? $1 : first; last = $1 }
    NF < 2 { short = 1 }
    END {
        printf "%s: %d losses, %.6f -> %.6f nats a word; max relative difference %.2e (step %d)\n", preset, NR, first, last,
            worst, at
        exit short || NR == 0 || worst > 1e-6
    }'
