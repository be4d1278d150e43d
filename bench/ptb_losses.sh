#!/bin/sh
# The first losses of a PTB preset beside PyTorch's from the same weights and text (tests/golden/make_ptb.py).
#     bench/ptb_losses.sh TEXT [PRESET] [STEPS]        ptb-small 100; f64 runs on the reference kernels and takes its time
# SLUICE: the program (build/sluice); PYTHON: one with torch. Without PYTHON, PyTorch's losses are the committed ones
# (tests/data/golden/PRESET.losses, in double), which belong to War and Peace and to the weights of the presets' seed, 0.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
text=${1:?usage: bench/ptb_losses.sh TEXT [PRESET] [STEPS]}
preset=${2:-ptb-small}
steps=${3:-100}
dtype=${DTYPE:-f64}
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
[ "$(wc -l <"$work/ours")" -eq "$steps" ] || { cat "$work/out" >&2; exit 1; }

# ours, theirs, theirs from weights one rounding error away. Rounding grows by orders of magnitude in this training, in
# any program: ours may differ by as much as a hundred such errors have grown to, and no more.
paste "$work/ours" "$work/theirs" >"$here/bench/results/losses_${preset}_${dtype}_$(date +%Y-%m-%d).txt"
paste "$work/ours" "$work/theirs" | awk -v preset="$preset" -v dtype="$dtype" -v unit="$([ "$dtype" = f64 ] && echo 2e-15 || echo 5e-7)" '
    function relative(a, b) { return a > b ? (a - b) / b : (b - a) / b }
    NF < 3 { short = 1 }
    {
        d = relative($1, $2); e = relative($3, $2)
        if (d > worst) worst = d
        if (e > grown) grown = e
        if (worst > 100 * (grown + unit)) apart = 1
        if (NR == 12 || NR % 25 == 0)
            printf "%s %s: %d losses, now %.6f; largest relative difference %.1e; PyTorch from itself %.1e\n", preset, dtype, NR,
                $1, worst, grown
    }
    END { exit short || NR == 0 || apart }'
