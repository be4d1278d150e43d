#!/bin/sh
# Growth of the peak resident set beside the plan's bytes, for presets, each in a fresh process.
#     bench/rss.sh [BUILD_FOLDER]          writes bench/results/rss_DATE.txt
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$here/build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
${CC:-cc} -O1 -I"$here/include" "$here/bench/rss.c" -o "$work/rss" "$build/libsluice.a" -ljansson -lpthread -ldl -lm
out=$here/bench/results/rss_$(date +%Y-%m-%d).txt
status=0
: >"$out"
for one in "char-rnn 65" "ptb-small 10000" "ptb-medium 10000"; do
    # shellcheck disable=SC2086
    "$work/rss" $one >"$work/line" || status=1
    tee -a "$out" <"$work/line"
done
exit $status
