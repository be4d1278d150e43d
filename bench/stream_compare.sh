#!/usr/bin/env bash
# Time of one step, one row: libsluice beside a templated C++ kernel of the kind real-time audio libraries have, and beside the C file
# of `sluice convert`, all of one compiler with the same flags, in one run, rounds alternating.
#     bench/stream_compare.sh [BUILD [OUT]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
build=${1:-$root/build} out=${2:-/dev/null}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Those of the stream kernels (cmake/SluiceTargets.cmake); FLAGS replaces the instruction set.
isa=(-mavx2 -mfma)
if grep -qw avx512vl /proc/cpuinfo; then isa=(-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma); fi
if [ "$(uname -m)" != x86_64 ]; then isa=(); fi
read -r -a isa <<<"${FLAGS:-${isa[*]}}"
flags=(-O3 "${isa[@]}" -fno-math-errno -fno-trapping-math -ffp-contract=fast)
jansson=-ljansson
for file in /usr/lib/*/libjansson.a; do if [ -e "$file" ]; then jansson=$file; fi; done
cc=(cc -std=gnu11 "${flags[@]}" -I "$root/include" -I "$here" -I "$work")
libraries=("$build/libsluice.a" "$jansson" -lm -ldl -lpthread)
"${cc[@]}" -c "$here/stream_compare.c" -o "$work/plain.o"
c++ -std=c++17 "${flags[@]}" -c "$here/stream_peer.cpp" -o "$work/peer.o"
c++ "$work/plain.o" "$work/peer.o" "${libraries[@]}" -o "$work/plain"
(cd "$work" && ./plain --write .)
for file in "$work"/lstm*.c "$work"/gru*.c; do "${cc[@]}" -c "$file" -o "${file%.c}.o"; done
"${cc[@]}" -DGENERATED -c "$here/stream_compare.c" -o "$work/compare.o"
c++ "$work/compare.o" "$work/peer.o" "$work"/lstm*.o "$work"/gru*.o "${libraries[@]}" -o "$work/compare"
{
    echo "$(date -u +%F), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(cc --version | head -n 1)"
    echo "all of ours and theirs: ${flags[*]}"
    (cd "$work" && ./compare)
} | tee "$out"
