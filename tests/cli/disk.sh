# Full disks and places that cannot be written: exit code 6, one sentence, the previous files stay whole.
. "$TESTS/lib.bash"
make_text 120 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --out m.model >/dev/null
full() {
    "$SLUICE" "$@" >/dev/full
    echo "exit $?"
}
full generate m.model --length 100000
full generate m.model --length 5
full eval m.model text.txt --json
full info m.model
full plan lstm:b1_t1_i1_h8
yes lstm:b1_t1_i1_h2 | head -n 1000 >problems.txt # does not begin the second
SECONDS=0
full check problems.txt
full bench problems.txt --seconds 0.01
[ $SECONDS -lt 20 ] || echo "took $SECONDS seconds"
full --help
full train --help
echo "places:"
try train lm text.txt "${small[@]}" --out nowhere/m.model | grep -vE '^(data|plan|memory)'
try train lm text.txt "${small[@]}" --out /dev/full/m.model | grep -vE '^(data|plan|memory)'
try train lm text.txt "${small[@]}" --out n.model --log nowhere/log.jsonl
"$SLUICE" train lm text.txt "${small[@]}" --out n.model --log /dev/full 2>&1 >/dev/null
echo "exit $?"
echo "a file that may not grow to its size:"
"$SLUICE" eval m.model text.txt --json >before.json
(
    ulimit -f 4
    "$SLUICE" train lm text.txt "${small[@]}" --epochs 3 --resume --out m.model 2>stderr.txt >/dev/null
    echo "exit $?"
)
wc -l <stderr.txt
grep -c '^sluice: .*m.model' stderr.txt
"$SLUICE" eval m.model text.txt --json | cmp - before.json && echo "m.model is as before"
"$SLUICE" info m.model.last >/dev/null && echo "m.model.last is whole"
ls
