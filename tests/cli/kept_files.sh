# What a training may not replace, remove or spoil, and what pipes and devices are good for.
. "$TESTS/lib.bash"
make_text 120 >text.txt
lm=(train lm text.txt "${small[@]}")
"$SLUICE" "${lm[@]}" --out m.st >/dev/null
"$SLUICE" "${lm[@]}" --valid-split 0 --out n.st >/dev/null
cp m.st.last kept.last
echo "a training, with its resume point, without one, and one file alone:"
try "${lm[@]}" --seed 9 --out m.st
try "${lm[@]}" --seed 9 --out n.st
"$SLUICE" "${lm[@]}" --epochs 1 --out half.st >/dev/null
rm half.st.last
try "${lm[@]}" --out half.st
try "${lm[@]}" --resume --out half.st
same m.st.last kept.last
"$SLUICE" "${lm[@]}" --seed 9 --overwrite --out m.st >/dev/null
cmp -s m.st.last kept.last || echo "with --overwrite it is another one"
echo "no model, beside a resume point:"
cp m.st model.kept
cp text.txt m.st
try "${lm[@]}" --seed 9 --epochs 9 --resume --out m.st
same m.st text.txt
mv model.kept m.st
echo "two at once:"
"$SLUICE" "${lm[@]}" --epochs 100000 --out two.st --log two.jsonl >first.txt 2>&1 &
first=$!
for _ in $(seq 1000); do # until it trains, and minds signals
    grep -q '^epoch' first.txt && break
    sleep 0.02
done
try "${lm[@]}" --overwrite --out two.st
try "${lm[@]}" --overwrite --out two.st.last
try "${lm[@]}" --out three.st --log two.jsonl
kill $first
wait $first
ls .two.st*.lock 2>/dev/null && echo "a lock is left"
grep -c '"start"' two.jsonl
touch .two.st.lock # of one that was killed
"$SLUICE" "${lm[@]}" --overwrite --out two.st >/dev/null && ls -A | grep two
echo "another model of the name of a resume point:"
"$SLUICE" "${lm[@]}" --valid-split 0 --out other.st.last >/dev/null
try "${lm[@]}" --valid-split 0 --seed 9 --out other.st
"$SLUICE" "${lm[@]}" --valid-split 0 --seed 9 --overwrite --out other.st >/dev/null
ls other.st*
echo "lines of another kind:"
"$SLUICE" "${lm[@]}" --print-model >model.json
cp model.json kept.json
try "${lm[@]}" --out new.st --log model.json
try check rnn:b1_t1_i1_h1 --jsonl model.json
same model.json kept.json
printf '{"ev' >killed.jsonl
"$SLUICE" "${lm[@]}" --epochs 1 --out k.st --log killed.jsonl >/dev/null && head -c 16 killed.jsonl && echo
echo "pipes and devices:"
mkfifo pipe
try "${lm[@]}" --valid-split 0 --out pipe
timeout -k 1 20 cat m.st >pipe &
timeout -k 1 20 "$SLUICE" info pipe | head -n 1
wait
try "${lm[@]}" --init-from pipe --out new.st
try "${lm[@]}" --out /dev/null | grep -vE '^(data|plan|memory)'
echo "parameters that are not finite any more:"
echo '{"class_name": "Sequential", "config": {"layers": [{"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3]}}, {"class_name": "Dense", "config": {"name": "o", "units": 2}}]}}' >dense.json
npy x.npy f4 32x3 $(for i in $(seq 96); do echo $((i * 37 % 101 - 50))000; done)
npy y.npy f4 32x2 $(for i in $(seq 64); do echo $((i * 53 % 101 - 50))000; done)
dense=(train dense.json --x x.npy --y y.npy --loss mse --optimizer sgd --batch 32 --out inf.st)
"$SLUICE" "${dense[@]}" --lr 1e24 --epochs 1 >/dev/null && cp inf.st good.st
try "${dense[@]}" --resume --epochs 9 | grep -vE '^(data|plan|memory|epoch|resume)'
same inf.st good.st
try "${dense[@]}" --overwrite --lr 1e30 --epochs 1 | grep -vE '^(data|plan|memory|epoch)'
same inf.st good.st
echo "beyond a length numbers may be larger than f32 holds:"
echo '{"class_name": "Sequential", "config": {"layers": [{"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 2, 1]}}, {"class_name": "LSTM", "config": {"name": "l", "units": 2}}]}}' >lstm.json
npy wide.npy f8 2x2x1 0.1 0.2 0.3 1e300
npy lengths.npy i4 2 2 1
npy target.npy f4 2x2 0.1 0.2 0.3 0.4
exits train lstm.json --x wide.npy --y target.npy --lengths lengths.npy --loss mse --epochs 1 --out l.st
exits eval l.st --x wide.npy --y target.npy --lengths lengths.npy
exits predict l.st --x wide.npy --lengths lengths.npy --out p.npy
if [ "$(id -u)" != 0 ]; then
    chmod 444 n.st
    "$SLUICE" "${lm[@]}" --valid-split 0 --overwrite --out n.st >/dev/null 2>&1
    echo "a file that may not be written: exit $?"
    chmod 000 n.st
    "$SLUICE" "${lm[@]}" --overwrite --out n.st 2>&1 | grep -o 'n.st is there and may not be read.*another name'
elif command -v setpriv >/dev/null; then # root may write everything
    mkdir protected && cp n.st text.txt protected/ && chmod 444 protected/n.st && chown -R 65534:65534 protected
    (cd protected && setpriv --reuid 65534 --regid 65534 --clear-groups "$SLUICE" "${lm[@]}" --valid-split 0 --overwrite --out n.st >/dev/null 2>&1
        echo "a file that may not be written: exit $?")
    chmod 000 protected/n.st && chown 0:0 protected/n.st
    (cd protected && setpriv --reuid 65534 --regid 65534 --clear-groups "$SLUICE" "${lm[@]}" --overwrite --out n.st 2>&1 |
        grep -o 'n.st is there and may not be read.*another name')
fi
