# Plans of problem strings, for this machine and for invented ones.
. "$TESTS/lib.bash"
# Layer, problem and kernel, refusals; the bytes have their own tests. An instruction set that this machine lacks is invented.
kernels() {
    grep -E '^(plan:|  rnn|exit|sluice:)|refused' |
        sed -E 's/ +[0-9.]+ .?FLOP +[0-9.]+ .?B( +[0-9.e+-]+ us)*$//; s/(cpu:[a-z0-9]+) \(invented\)/\1/'
}
# What this machine has, and does not have.
instructions() { sed -E 's/^(instruction set:) [a-z0-9]+ \((the|this|Linux) [^)]*\)+/\1 THE BEST/; s/but this CPU [^:]*/but LACKS/'; }
try plan lstm:l2_b20_t35_i650_h650_train --device cpu --threads 2 | kernels
try plan gru:b3_t5_i4_h8_bi_f64+reset=before --threads 2 --device cpu:base | kernels
try plan lstm:b3_t5_i4_h8 --device cpu:avx2 --threads 2 | kernels
try plan rnn:b1_t1_i8_h8 --batch 7 --steps 9 --train --device cpu --threads 1 | kernels
try plan lstm:l2_b3_t5_i4_h8_bf16_train --device cuda:sm_90 | grep -E '^(plan|device):|graph'
try plan lstm:b3_t5_i4_h8_f16_train --device cuda:sm_86 --no-graph | grep -E '^(plan|device):|graph|  the loss'
try plan lstm:b3_t5_i4_h8_f32x3_train --device cuda:sm_90 | grep -E '^plan:'
for device in cpu:amx cpu:avx2; do
    for rows in 7 8; do try plan "lstm:b${rows}_t5_i4_h8_f32x3" --device $device --threads 1 | kernels; done
    try plan dense:b7_t5_i4_h8_f32x3 --device $device --threads 1 | grep -oE 'products in f32x3 [^:]*|dense:[^ ]*'
done
for device in cpu:amx cpu:avx512bf16 cpu:avx512; do
    try plan lstm:b3_t5_i4_h8_bf16 --device $device --threads 1 | grep -o 'products in bf16 .*'
done
echo "instruction sets:"
for isa in '' base sse9 neon; do SLUICE_CPU_ISA=$isa try plan lstm:b3_t5_i4_h8 --device cpu | grep -E '^(instruction|exit|sluice)' | instructions; done
SLUICE_CPU_ISA=base try plan lstm:b3_t5_i4_h8 --device cpu:avx2 | grep '^instruction'
try plan lstm:b3_t5_i4_h8 --device cuda:sm_75
try plan lstm:b3_t5_i4_h8 --device tpu
try plan lstm:b3_t5_i4_h8 --require ref --threads 1 | kernels
try plan lstm:b3_t5_i4_h8_f64 --require fused --device cpu --threads 1
try plan lstm:b3_t5_i4_h8 --require cuda: --device cpu
try plan lstm:b3_t5_i4_h8 --require cpu: --device cuda:sm_90
try plan lstm:b3_t5_i4_h8 --require cpu:step --device cpu
try plan lstm:b3_t5_i4_h8 --require cuda:steps --device cuda:sm_90
try plan lstm:l2000000000_b1_t1_i1_h1
echo "a training in parts is planned as it runs:"
make_text 20 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --batch 8 --accumulate 4 --print-model >parts.json
"$SLUICE" plan parts.json --train --device cpu --threads 1 | grep -o 'batch [0-9]*, steps [0-9]*'
echo "a description through a pipe:"
"$SLUICE" plan <(cat parts.json) --train --device cpu --threads 1 | grep -o 'batch [0-9]*, steps [0-9]*'
exits plan lstm:b64_t512_i64_h64_train --device cpu --memory-limit 1M
grep -o 'memory limit' stderr.txt | head -n 1
echo "a limit with which activations are recomputed:"
"$SLUICE" plan lstm:b64_t512_i64_h64_train --device cpu --memory-limit 60M --threads 2 | grep -cE 'segments|recomputed'
try plan lstm:b3_t5_i4
try plan lstm:h8+peehole
try plan lstm:h8+
try plan lstn:h8
try plan gru:h8+peephole
try plan nothing.json
echo "keys of --json:"
"$SLUICE" plan lstm:b3_t5_i4_h8_train --device cpu --json | python3 -c 'import json,sys; print(" ".join(sorted(json.load(sys.stdin))))'
try plan lstm:b64_t16000000_i512_h1024_bf16_train --device cuda:sm_90 # 149 GB are not enough
echo "a limit of a byte:"
try plan lstm:b1_t1_i1_h1 --memory-limit 1 --device cpu:base --threads 2
echo "files that begin with a byte order mark, and whose lines end as on Windows:"
mark='\xef\xbb\xbf'
printf "$mark"'{"class_name": "Sequential", "config": {"layers": [\r\n%s,\r\n%s]}}\r\n' \
    '{"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 5, 4]}}' \
    '{"class_name": "GRU", "config": {"name": "rnn", "units": 8}}' >marked.json
try plan marked.json --device cpu:base --threads 2 | kernels
printf "$mark"'rnn:b1_t1_i1_h1\r\n\r\n# one more\r\nrnn:b1_t1_i1_h2\r\n' >marked.txt
try check marked.txt --device cpu --jsonl marked.jsonl
