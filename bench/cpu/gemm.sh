#!/usr/bin/env bash
# Which library, or our own kernels, for the large products: bench/cpu/gemm with 1 and 2 threads.
#     bench/cpu/gemm.sh [FOLDER [SECONDS [min]]] >bench/results/gemm_cpu_DATE.txt       FOLDER: what bench/cpu/setup made
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../../build/cpu_peers} seconds=${2:-0.2} statistic=${3:-}
openblas=$(ldconfig -p | sed -n 's/.* => \(.*libopenblas\.so\.0\)$/\1/p' | head -n 1)
echo "$(date -u +%F), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
echo "OpenBLAS $(dpkg-query -W -f '${Version}' libopenblas0-pthread 2>/dev/null || echo of this system), BLIS $(basename \
    "$folder"/debian/packages/libblis4-pthread_*.deb), oneDNN of $(cd "$folder/venv/lib" && ls libdnnl.so.3.*)"
for threads in 1 2; do
    echo
    "$folder/gemm" "$openblas" "$folder/libblis.so" "$threads" "$seconds" ${statistic:+"$statistic"}
done
