# --tune: kernels by timing, remembered in a small file, and kept by a training that goes on.
. "$TESTS/lib.bash"
export XDG_CACHE_HOME=$PWD/cache
file=cache/sluice/tuned.txt
timed() { grep -E '^timed|by timing|not remembered|^nothing|^exit|^sluice:' | sed -E -e 's/[0-9.]+(e[-+0-9]+)? us/N us/g' -e 's/cpu:[a-z]*  *by/KERNEL by/; s/ref  *by/KERNEL by/'; }
echo "timed, and remembered:"
try plan lstm:b2_t5_i3_h4_train --device cpu --tune | timed
[ -s $file ] && stat -c '%a' cache/sluice $file
try plan lstm:b2_t5_i3_h4_train --device cpu --tune | timed
try plan lstm:b2_t5_i3_h4_train --device cpu --tune=again | timed
try plan lstm:b2_t5_i3_h4_train --device cpu | timed
try plan lstm:b2_t5_i3_h4_train --device cuda:sm_90 --tune | timed
echo "what the file says is believed, what it should not say is skipped:"
awk -F '\t' -v OFS='\t' '$3 == "ref" { $4 = 0.001 } { print } END { print "rubbish"; print "\t\t\t\t" }' $file >edited && cp edited $file
"$SLUICE" plan lstm:b2_t5_i3_h4_train --device cpu --tune --json | python3 -c 'import json, sys
layer = json.load(sys.stdin)["layers"][0]
print(layer["kernel"], layer["chosen"], layer["timed_seconds"])'
echo "no place to remember:"
XDG_CACHE_HOME=/proc/nowhere try plan lstm:b2_t5_i3_h4_train --device cpu --tune | timed
echo "training keeps its kernels:"
make_text 100 >text.txt
options=(text.txt --device cpu "${small[@]}")
"$SLUICE" train lm "${options[@]}" --tune --out a.model >/dev/null
awk -F '\t' -v OFS='\t' '/^#/ { print; next } { $4 = $3 == "ref" ? 0.001 : 1000; print }' $file >edited && cp edited $file
"$SLUICE" train lm "${options[@]}" --tune --out ref.model | grep -o 'kernel ref'
"$SLUICE" train lm "${options[@]}" --out fused.model | grep -o 'kernel cpu:fused'
"$SLUICE" train lm "${options[@]}" --epochs 3 --tune --out whole.model | grep -o 'kernel ref'
"$SLUICE" train lm "${options[@]}" --epochs 3 --resume --out ref.model | grep -oE '^note.*|kernel ref'
same whole.model.last ref.model.last
"$SLUICE" train lm "${options[@]}" --epochs 3 --resume --require cpu:fused --out ref.model --log log.jsonl | grep -oE '^note.*|kernel cpu:fused|^nothing.*'
"$SLUICE" train lm "${options[@]}" --epochs 4 --resume --require cpu:fused --out ref.model --log log.jsonl | grep -oE '^note.*|kernel cpu:fused|^nothing.*'
head -n 1 log.jsonl | python3 -c 'import json, sys; print(json.load(sys.stdin)["note"])'
echo "where the time goes:"
"$SLUICE" train lm "${options[@]}" --profile --out profile.model >out.txt
grep -cE '^(profile| +)[a-z ]+ +[0-9.]+ %' out.txt
grep -E '^layer' out.txt | sed -E 's/ [0-9]+\.[0-9]+/ N/g'
echo "other commands:"
"$SLUICE" eval fused.model text.txt --tune=again >/dev/null && echo "eval: fine"
"$SLUICE" bench lstm:b2_t5_i3_h4_train --device cpu --seconds 0.01 --tune | grep -o 'plans take lstm:b2_t5_i3_h4_train'
"$SLUICE" bench lstm:b2_t5_i3_h4_train+recompute --device cpu --seconds 0.01 --tune | grep -o 'plans take [^ ]*'
try check lstm:b2_t5_i3_h4 --tune
try plan lstm:b2_t5_i3_h4 --tune=never
