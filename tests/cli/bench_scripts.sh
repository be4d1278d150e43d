# bench/compare.py, bench/floors.py and bench/readme.py without a GPU and without PyTorch: the order of cells, resuming, tables, floors.
. "$TESTS/lib.bash"
bench=$TESTS/../../bench
export PYTHONDONTWRITEBYTECODE=1
cat >shapes.txt <<END
lstm:b2_t5_i8_h16_train       # one_16
lstm:b2_t6_i8_h16_train       # one_17
gru:b2_t5_i8_h16              # one_16
lstm:b2_t5_i8_h16             # two_16
END
compare() {
    python3 "$bench/compare.py" --sluice "$SLUICE" --shapes shapes.txt --device cpu --no-torch --seconds 0.001 "$@"
}
compare --dtypes f32,f32x3 --dry-run
compare --dtypes f32 --out lines.jsonl --source one --filter two_16,one_17 | sed -E 's/own [0-9.e-]+/own N/; s/(cpu:fused|ref) *$/cpu:ROW /' | grep -v '^|'
compare --dtypes f32 --out lines.jsonl --source one --filter two_16,one_17 | tail -n 1
compare --dtypes f32 --out lines.jsonl --source two --limit-seconds 0 | tail -n 1
# A precision without kernels, and the command's answer to the next problem.
compare --dtypes bf16,f32 --out other.jsonl --filter two_16 --table other.md | sed -E 's/own [0-9.e-]+/own N/; s/(cpu:fused|ref) *$/cpu:ROW /' | head -n 2 | cut -c 1-130

echo '--- tables'
line() { # SHAPE DTYPE EAGER GRAPH CUDNN OWN [OWN WITH 16 BITS IN MEMORY]
    local narrow=
    if [ $# -gt 6 ]; then narrow=", \"narrow\": {\"cuda:cluster\": {\"median\": $7, \"predicted_us_per_step\": 1}}"; fi
    echo "{\"case\": \"$1 $2|three\", \"shape\": \"$1\", \"cell\": \"lstm\", \"mode\": \"train\", \"dtype\": \"$2\", \"t\": 5, \"b\": 2, \"i\": 8, \"h\": 16, \"l\": 1, \"torch_eager\": {\"median\": $3}, \"torch_graph\": {\"median\": $4}, \"sluice\": {\"cudnn:standard\": {\"median\": $5, \"predicted_us_per_step\": 2}, \"cuda:step\": {\"median\": 99, \"predicted_us_per_step\": 9}, \"cuda:cluster\": {\"median\": $6, \"predicted_us_per_step\": 1}, \"cuda:grid\": {\"refusal\": \"too small\"}}$narrow}"
}
{
    line one_16 bf16 20 8 9 2
    line one_17 bf16 10 8 4 4 3.5
    line frnn_768 bf16 40 20 30 10
    line one_16 f32 3 2.5 2 1
} >tables.jsonl
: >none.txt
compare --shapes none.txt --out tables.jsonl --source three --table tables.md
sed -n '/^###/,$p' tables.md

echo '--- options'
option() { # PROBLEM MS
    echo "{\"case\": \"$1|bf16|0|five\", \"problem\": \"$1\", \"dtype\": \"bf16\", \"source\": \"five\", \"ms\": $2, \"row\": \"cuda:grid\"}"
}
{
    option lstm:b32_t100_i256_h256_train 0.2
    option lstm:b32_t100_i256_h256_train+peephole 0.25
    option lstm:b32_t50_i768_h768 0.1
    option lstm:b32_t50_i1000_h1000 0.2
    option lstm:b32_t50_i1024_h1024 0.2
} >options.jsonl
python3 "$bench/options.py" --list --dtypes bf16 | sed -n '1,2p;$p'
python3 "$bench/options.py" --dtypes bf16 --limit-seconds 0 --out options.jsonl --source five | grep -E '^0 done|0\.2|1000|[0-9] of [0-9]'

echo '--- published'
python3 - "$bench" <<'END'
import os
import sys
sys.path.insert(0, sys.argv[1])
from compare import read_shapes
from tables import read_published
shapes = {(s["cell"], s["name"], s["mode"]) for s in read_shapes(os.path.join(sys.argv[1], "shapes.txt"))}
published = read_published(os.path.join(sys.argv[1], "published.txt"))
print(len(shapes), "shapes;", [key for key in published if key[:3] not in shapes], "published without one")
END

echo '--- language models'
echo '{"case": "ptb-small|bf16|four", "preset": "ptb-small", "dtype": "bf16", "sluice": {"words_per_s": 2e6, "profile": {"recurrence": 0.6, "optimizer": 0.4}}, "planned": {"error": "none"}, "torch": {"eager": {"words_per_s": 1e5}, "graph": {"words_per_s": 5e5}}}' >lm.jsonl
python3 "$bench/lm.py" --presets ptb-small --dtypes bf16 --out lm.jsonl --source four

echo '--- tables of documents'
mkdir -p root/bench/results root/docs
{
    cat tables.jsonl
    line one_16 f32 3 2.5 2 1.25 # the latest
    line one_16 f32 3 2.5 2 9 | sed 's/"cuda:[a-z]*": {"median"/"cuda:none": {"refused"/g' # has no time of ours
} >root/bench/results/layers_one.jsonl
cp lm.jsonl root/bench/results/lm_one.jsonl
readme() { python3 "$bench/readme.py" --root root "$@"; echo "exit code $?"; }
printf '%s\n' '# oldest first' layers_one >root/bench/results/LATEST
readme
echo 'lm_one' >>root/bench/results/LATEST
printf '%s\n' one '<!-- gpu-layer-table -->' '<!-- /gpu-layer-table -->' two '<!-- gpu-lm-table -->' old '<!-- /gpu-lm-table -->' >root/README.md
printf '%s\n' '<!-- gpu-layer-goals -->' '<!-- /gpu-layer-goals -->' >root/docs/MEASURED.md
readme --write # MEASURED.md has no place for the other table: nothing is written
cat root/README.md
echo '<!-- gpu-lm-goals --><!-- /gpu-lm-goals -->' | sed 's/></>\n</' >>root/docs/MEASURED.md
readme
readme --write
readme
cat root/README.md root/docs/MEASURED.md
cell='"series": "page", "cell": "lstm", "t": 3, "b": 2, "i": 4, "h": 4, "l": 1, "option": "none", "dtype": "f32", "threads": 1'
echo "{\"case\": \"a\", $cell, \"mode\": \"infer\", \"sides\": {\"sluice\": {\"median\": 2}, \"torch\": {\"median\": 3}, \"onednn3\": {\"median\": 2.8}}}
{\"case\": \"b\", $cell, \"mode\": \"train\", \"sides\": {\"sluice\": {\"median\": 2}, \"torch\": {\"median\": 1.9}}}" >root/bench/results/cpu_layers_one.jsonl
echo 'cpu: one machine | one | cpu_layers_one cpu_layers_two' >>root/bench/results/LATEST
readme # of one of its files
sed -i 's/ cpu_layers_two//' root/bench/results/LATEST
printf '%s\n' '<!-- cpu-layer-table -->' '<!-- /cpu-layer-table -->' >>root/README.md
printf '%s\n' '<!-- cpu-layer-goals -->' '<!-- /cpu-layer-goals -->' >>root/docs/MEASURED.md
readme --write
tail -n 5 root/README.md
tail -n 13 root/docs/MEASURED.md
line one_16 f32 3 2.5 2 4 >root/bench/results/layers_other.jsonl
cp root/bench/results/lm_one.jsonl root/bench/results/lm_other.jsonl
echo 'gpu: other | layers_other lm_other' >>root/bench/results/LATEST
readme --write # rows in README.md; no goal is judged by one shape of many, nor by another GPU's words per second
sed -n '/gpu-layer-table/,/.gpu-layer-table/p' root/README.md
grep '^| other, ptb' root/README.md
grep -c other root/docs/MEASURED.md
rm -r root

echo '--- floors'
python3 "$bench/floors.py" --dry-run --units 128,2048 --batches 1,64
floors() {
    python3 "$bench/floors.py" --sluice "$SLUICE" --device cpu --require cpu: --units 8 --batches 1,2 --dtypes f32 --seconds 0.001 --out floors.jsonl
}
floors | sed -E 's/[0-9.-]+ /N /g' | tail -n 1
floors | tail -n 1

echo '--- others at work'
python3 - "$bench" <<'END'
import os
import subprocess
import sys
import time
sys.path.insert(0, os.path.join(sys.argv[1], "cpu"))
from disturbance import Disturbance, process_seconds
ours, all_of_it = [], Disturbance(lambda: [])
measured = Disturbance(lambda: ours)
worker = subprocess.Popen([sys.executable, "-c", "while True: pass"])
ours.append(worker.pid)
start = time.monotonic()
while process_seconds(worker.pid) < 0.5 and time.monotonic() < start + 60:  # a busy machine gives it little
    time.sleep(0.1)
worked = process_seconds(worker.pid) / (time.monotonic() - start) / len(os.sched_getaffinity(0))
share, seen = measured.share(), all_of_it.share()
worker.kill()
print("a process that is not among ours is seen:", seen - share > worked / 2 > 0)
END
ls -A
