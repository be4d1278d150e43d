#!/usr/bin/env bash
# The char-rnn preset trained whole on a GPU: validation loss epoch by epoch beside the CPU's, time, characters per second.
#     bench/char_rnn_gpu.sh TEXT [--device cuda:0] [--dtypes "f32 tf32 bf16"] [--epochs N] [--out FILE] [--logs FOLDER]
# TEXT is tinyshakespeare, of which bench/results/char_rnn_curve_DATE.txt is the CPU's run. Writes FILE (default
# bench/results/char_rnn_GPU_DATE.txt); exit code 1 if a run ends more than 0.5% above the CPU's best of as many epochs.
# SLUICE: the program. One training after the other: leave the machine alone meanwhile.
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")/.." && pwd)
usage() {
    sed -n '3s/^# *//p' "$0" >&2
    exit 2
}
[ $# -ge 1 ] || usage
[ -r "$1" ] || usage
text=$1 device=cuda:0 dtypes='f32 tf32 bf16' epochs='' out='' logs=''
shift
while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || usage
    case $1 in
    --device) device=$2 ;;
    --dtypes) dtypes=$2 ;;
    --epochs) epochs=$2 ;;
    --out) out=$2 ;;
    --logs) logs=$2 ;;
    *) usage ;;
    esac
    shift 2
done
sluice=${SLUICE:-$here/sluice}
[ -x "$sluice" ] || sluice=$here/build/sluice
out=${out:-$here/bench/results/char_rnn_${device%%:*}_$(date +%Y-%m-%d).txt}
cpu=$(find "$here/bench/results" -name 'char_rnn_curve_*.txt' 2>/dev/null | sort | tail -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$(dirname "$out")"

field() { # NAME: of the JSON lines on stdin, where they have it
    sed -nE "s/.*\"$1\": \"?([^\",}]*).*/\1/p"
}

# LOG: "epoch training-loss validation-loss" for every epoch
curve() {
    awk '
        function number(name) { match($0, "\"" name "\": [-+0-9.eE]+"); return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) }
        /"event": "epoch"/ { loss = number("loss") }
        /"event": "evaluation"/ { printf "%d %.4f %.4f\n", number("epoch"), loss, number("valid_loss") }' "$1"
}

# LOG: seconds of all, seconds of the training steps alone, characters per second of those (2500 a step)
speed() {
    awk '
        function number(name) { match($0, "\"" name "\": [-+0-9.eE]+"); return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) }
        /"event": "start"/ { next }
        /"event": "epoch"/ { training += number("seconds") - from; steps = number("step") }
        { last = number("seconds") }
        /"event": / { from = last }
        END { printf "%.1f %.1f %.0f\n", last, training, (training > 0 ? steps * 2500 / training : 0) }' "$1"
}

best() { # CURVE EPOCHS: the lowest validation loss of the first so many
    awk -v epochs="$2" '!/^#/ && $1 <= epochs && (!n++ || $3 < least) { least = $3; at = $1 } END { if (n) print least, at }' "$1"
}

failed=0
[ -z "$cpu" ] || grep -v '^#' "$cpu" >"$work/cpu.curve"
: >"$work/head"
for dtype in $dtypes; do
    log=$work/$dtype.jsonl
    if ! "$sluice" train lm --preset char-rnn "$text" --device "$device" --dtype "$dtype" ${epochs:+--epochs "$epochs"} \
        --log "$log" --out "$work/$dtype.model" >"$work/$dtype.out" 2>&1; then
        echo "$dtype: $(tail -n 1 "$work/$dtype.out")" >&2
        failed=1
        continue
    fi
    [ -z "$logs" ] || { mkdir -p "$logs" && cp "$log" "$logs/char_rnn.$dtype.jsonl"; }
    curve "$log" >"$work/$dtype.curve"
    read -r seconds training rate < <(speed "$log")
    done_epochs=$(tail -n 1 "$work/$dtype.curve" | cut -d ' ' -f 1)
    read -r least at < <(best "$work/$dtype.curve" "$done_epochs")
    line="$dtype: best validation loss $least at epoch $at of $done_epochs; $seconds s, of which $training s training: $rate characters/s"
    if [ -s "$work/cpu.curve" ]; then
        read -r theirs when < <(best "$work/cpu.curve" "$done_epochs")
        verdict=reached
        awk -v a="$least" -v b="$theirs" 'BEGIN { exit !(a <= 1.005 * b) }' || { verdict='NOT reached' failed=1; }
        line="$line; the CPU's $theirs (epoch $when) is $verdict"
    fi
    echo "$line" | tee -a "$work/head"
done

if [ ! -s "$work/head" ]; then exit 1; fi
{
    echo "# sluice train lm --preset char-rnn $(basename "$text") --device $device --dtype ${dtypes// /|}"
    first=$(cat "$work"/*.jsonl 2>/dev/null | grep -m 1 '"event": "start"' || true)
    echo "# sluice $(field version <<<"$first"), $(sed -nE 's/.*"detail": "([^"]*)".*/\1/p' <<<"$first"), kernel $(field kernel <<<"${first%%\"plan\"*}"), $(field parameters <<<"${first%%\"plan\"*}") parameters"
    sed 's/^/# /' "$work/head"
    columns=() titles=''
    for name in cpu $dtypes; do
        [ -s "$work/$name.curve" ] || continue
        columns+=("$work/$name.curve")
        titles="$titles, $name"
    done
    echo "# epoch, then training loss (mean of the epoch) and validation loss of each of${titles#,}; nats per character"
    awk '{ if (!($1 in row)) { order[++n] = $1 } row[$1] = row[$1] " " $2 " " $3; files[$1]++ }
        END { for (i = 1; i <= n; i++) if (files[order[i]] == ARGC - 1) printf "%3d%s\n", order[i], row[order[i]] }' "${columns[@]}"
} >"$out"
echo "wrote $out"
exit $failed
