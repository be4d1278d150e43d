# A resume point remembers the options of its training: --resume needs none of them again, and takes no others.
. "$TESTS/lib.bash"
make_text 120 >text.txt
make_text 160 | tail -n 40 >valid.txt
options=(--units 24 --embed 12 --layers 3 --cell gru --dropout 0.2 --batch 4 --steps 8 --seed 3 --optimizer sgd --momentum 0.5
    --lr 0.3 --schedule step:20:0.7 --clip-value 2 --reduction sum-time --init-scale 0.2 --accumulate 2 --valid-split 0.1
    --split blocks)
"$SLUICE" train lm text.txt "${options[@]}" --epochs 3 --out whole.model >/dev/null
"$SLUICE" train lm text.txt "${options[@]}" --epochs 2 --out a.model >/dev/null
cp a.model.last two.model.last
echo "with no option again:"
try train lm text.txt --epochs 3 --resume --out a.model | without_times
same whole.model.last a.model.last
echo "with all of them:"
cp two.model.last b.model.last
"$SLUICE" train lm text.txt "${options[@]}" --epochs 3 --resume --out b.model >/dev/null
same whole.model.last b.model.last
echo "nothing left:"
try train lm text.txt --resume --out a.model
try train lm text.txt --epochs 2 --resume --out a.model
same whole.model.last a.model.last
echo "others:"
for other in '--units 25' '--embed 24' '--layers 2' '--cell lstm' '--dropout 0.1' '--tie' '--batch 8' '--steps 9' '--seed 4' \
    '--optimizer adam' '--momentum 0.4' '--nesterov' '--lr 0.1' '--schedule constant' '--clip-norm 2' '--reduction mean' \
    '--init-scale 0.1' '--accumulate 4' '--valid-split 0.2' '--split tail' '--level word' '--vocab-size 5' \
    '--weight-decay 0.1' '--dtype f64' '--preset char-rnn' '--valid valid.txt'; do
    sluice train lm text.txt $other --epochs 3 --resume --out two.model
done
echo "these may change:"
"$SLUICE" train lm text.txt --epochs 3 --patience 9 --min-delta 0.001 --max-minutes 9 --threads 1 --device cpu \
    --memory-limit 1G --require ref --dtype f32 --log log.jsonl --resume --out two.model >/dev/null
echo "exit $?"
echo "early stop:"
"$SLUICE" train lm text.txt "${small[@]}" --epochs 30 --lr 0.5 --patience 1 --out e.model | grep '^stopped early'
try train lm text.txt --resume --out e.model | without_times | sed 's/after step [0-9]*/after step N/'
echo "words, a validation file:"
words=(--level word --vocab-size 12 --valid valid.txt "${small[@]}")
"$SLUICE" train lm text.txt "${words[@]}" --epochs 2 --out w2.model >/dev/null
"$SLUICE" train lm text.txt "${words[@]}" --epochs 1 --out w1.model >/dev/null
"$SLUICE" train lm text.txt --epochs 2 --resume --out w1.model >/dev/null
same w2.model.last w1.model.last
try train lm text.txt --valid-split 0.1 --epochs 3 --resume --out w1.model
echo "no validation, one file:"
"$SLUICE" train lm text.txt "${small[@]}" --valid-split 0 --epochs 2 --out n2.model >/dev/null
"$SLUICE" train lm text.txt "${small[@]}" --valid-split 0 --epochs 1 --out n1.model >/dev/null
"$SLUICE" train lm text.txt --epochs 2 --resume --out n1.model | without_times
same n2.model n1.model
echo "a preset, with and without its name:"
preset=(train lm --preset char-rnn text.txt --batch 2 --steps 8 --threads 1)
"$SLUICE" "${preset[@]}" --max-minutes 0.0001 --out p.model | grep -o '^stopped'
for again in '--preset char-rnn' ''; do
    "$SLUICE" train lm $again text.txt --max-minutes 0.0001 --resume --out p.model | grep -o '^stopped'
done
echo "a description that has changed, beside an option that it had otherwise from the beginning:"
"$SLUICE" train lm text.txt "${small[@]}" --epochs 2 --print-model --out d.model >d.json
"$SLUICE" train d.json text.txt --threads 1 --lr 0.004 --out d.model >/dev/null
sed 's/"epochs": 2/"epochs": 4/; s/"seed": [0-9]*/"seed": 77/' d.json >changed.json
try train changed.json text.txt --resume --out d.model
"$SLUICE" train changed.json text.txt --epochs 3 --resume --out d.model | grep -E '^(note|done)' | without_times
echo "parameters of one row: an RNN of one unit, one character:"
printf 'a%.0s' $(seq 300) >one.txt
"$SLUICE" train lm text.txt "${small[@]}" --cell rnn --units 1 --embed 3 --out one.model >/dev/null
"$SLUICE" train lm text.txt "${small[@]}" --cell rnn --units 1 --embed 3 --epochs 3 --resume --out one.model | grep -o '^done'
try train lm text.txt --cell gru --epochs 4 --resume --out one.model
"$SLUICE" train lm one.txt "${small[@]}" --embed 3 --out a1.model >/dev/null
"$SLUICE" train lm one.txt "${small[@]}" --embed 3 --epochs 3 --resume --out a1.model | grep -o '^done'
echo "a description, arrays:"
echo '{"class_name": "Sequential", "config": {"name": "classes", "layers": [
  {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, null, 3], "dtype": "float32"}},
  {"class_name": "GRU", "config": {"name": "gru", "units": 8}},
  {"class_name": "Dense", "config": {"name": "out", "units": 3}}]}}' >model.json
npy x.npy f4 20x6x3
npy y.npy i4 20
arrays=(train model.json --x x.npy --y y.npy)
fit=(--loss softmax --batch 64 --no-shuffle --lr 0.01 --optimizer adamw --seed 4)
valid=(--valid-x x.npy --valid-y y.npy)
"$SLUICE" "${arrays[@]}" "${fit[@]}" "${valid[@]}" --epochs 3 --out x3.model >/dev/null
"$SLUICE" "${arrays[@]}" "${fit[@]}" "${valid[@]}" --epochs 2 --out x2.model >/dev/null
try "${arrays[@]}" --epochs 3 --resume --out x2.model
try "${arrays[@]}" "${valid[@]}" --epochs 3 --lr 0.02 --resume --out x2.model
"$SLUICE" "${arrays[@]}" "${valid[@]}" --batch 64 --epochs 3 --resume --out x2.model >/dev/null
same x3.model.last x2.model.last
echo "the other kind:"
try train lm text.txt --resume --out x2.model
try "${arrays[@]}" --resume --out w1.model
