# Proofs and timings of problems.
. "$TESTS/lib.bash"
for problem in lstm:b2_t5_i3_h4_train gru:b2_t4_i3_h5_bi_train+reset=before rnn:b3_t6_i2_h3_train+lengths; do
    "$SLUICE" check $problem >out.txt
    echo "$problem: exit $?, findings: $(($(wc -l <out.txt) > 0))"
done
printf '# a comment\n\nlstm:b1_t3_i2_h3   # another\ngru:b1_t3_i2_h3_train\n' >problems.txt
"$SLUICE" check problems.txt --seed 5 --json | python3 -c 'import json, sys
for line in sys.stdin:
    answer = json.loads(line)
    found = [f for f in answer["findings"] if "note" not in f]
    fine = all(list(f) == ["kernel", "what", "error", "tolerance", "ok"] and f["ok"] and f["error"] <= f["tolerance"] for f in found)
    print(" ".join(answer), answer["problem"], answer["passed"], answer["seed"], {"ref"} <= {f["kernel"] for f in found}, fine)'
"$SLUICE" check rnn:b1_t1_i1_h1 --seed 18446744073709551615 --json | grep -o '"seed": [0-9-]*'
try check lstm:h8+peehole
try check missing.txt
"$SLUICE" bench lstm:b2_t5_i3_h4_train --seconds 0.01 | sed -E 's/ +[0-9]+(\.[0-9]+)?/ N/g' | awk '{ $1 = $1; print }'
"$SLUICE" bench problems.txt --seconds 0.01 --json | python3 -c 'import json, sys
for line in sys.stdin:
    answer = json.loads(line)
    print(answer["problem"])
    for row in answer["kernels"]:
        print(" ", " ".join(row) if row["kernel"] in ("ref", "cpu:fused") else "another kernel")'
try bench lstm
exits bench lstm:b1_t1_i1_h8 --device cuda:99
# Many problems: one line a kernel, what is known is skipped, shards share the list.
printf 'lstm:b1_t3_i2_h3_train\ngru:b1_t3_i2_h3_train\nrnn:b1_t3_i2_h3_f64_train\nrnn:b2_t2_i2_h2\n' >list.txt
try check list.txt --device cpu --jsonl lines.jsonl --source one --shard 2/2
try check list.txt --device cpu --jsonl lines.jsonl --source one
try check list.txt --device cpu --jsonl lines.jsonl --source one --shard 1/2
try check list.txt --device cpu --jsonl lines.jsonl --source two --limit-seconds 0.000001
python3 -c 'import json
for line in open("lines.jsonl"):
    line = json.loads(line)
    print(line["case"], line["kernel"], line.get("ok", "refused"))' | grep ' ref '
ls lines.jsonl*
echo lstm:h3 >>list.txt
try check list.txt --device cpu --jsonl lines.jsonl --source one --dtype f32
try check list.txt --device cpu --jsonl lines.jsonl --shard 3/2
try check list.txt --device cpu --jsonl missing/lines.jsonl
for option in --shard=1/2 --source=one --limit-seconds=9 '--jsonl=lines.jsonl --json' '--jsonl=lines.jsonl --source=a"b'; do
    try check list.txt $option
done
try bench list.txt --device cpu --seconds 0.001 --jsonl times.jsonl --source one | grep -E '^(FAIL|bench|exit)'
echo "other options are other cases, and what failed before has failed:"
echo lstm:b2_t3_i4_h5 >one.txt
for how in '--memory-limit 1k' '--memory-limit 1k' '' '' '--seed 2'; do
    # shellcheck disable=SC2086 # two words
    sluice check one.txt --jsonl cases.jsonl $how | grep -v '^FAIL'
done
sluice bench one.txt --jsonl cases.jsonl --seconds 0.01 | grep '^bench:'
for _ in 1 2; do
    sluice bench one.txt --jsonl cases.jsonl --memory-limit 1k | grep -v '^FAIL'
done
echo "a half line, of a full disk, is done again:"
grep -v limit= cases.jsonl | head -c -20 >half.jsonl
sluice bench one.txt --jsonl half.jsonl --seconds 0.01 | grep '^bench:'
sluice bench one.txt --jsonl half.jsonl --seconds 0.01 | grep '^bench:'
