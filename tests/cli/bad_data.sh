# Descriptions and arrays that do not fit: one sentence, the exit code by kind, nothing written.
. "$TESTS/lib.bash"
layers() { printf '{"class_name": "Sequential", "config": {"name": "m", "layers": [%s]}}' "$1"; }
input='{"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, null, 3], "dtype": "float32"}}'
dense='{"class_name": "Dense", "config": {"name": "out", "units": 3}}'
layers "$input, {\"class_name\": \"LSTM\", \"config\": {\"name\": \"rnn\", \"units\": 4}}, $dense" >good.json
npy x.npy f4 6x5x3
npy y.npy i4 6
train() { try train "$1" --x "${2:-x.npy}" --y "${3:-y.npy}" --loss softmax --epochs 1 --out m.model "${@:4}"; }
echo "descriptions:"
for text in '' '{' '[]' '{"class_name": "Functional"}' "$(layers '')" "$(layers "$input")" \
    "$(layers "$input, {\"class_name\": \"LSTN\", \"config\": {\"units\": 4}}")" \
    "$(layers "$input, {\"class_name\": \"LSTM\", \"config\": {\"unitz\": 4}}")" \
    "$(layers "$input, {\"class_name\": \"LSTM\", \"config\": {\"units\": -4}}")" \
    "$(layers "$input, {\"class_name\": \"LSTM\", \"config\": {\"units\": \"four\"}}")" \
    "$(layers "$input, {\"class_name\": \"LSTM\", \"config\": {\"units\": 4, \"activation\": \"tahn\"}}")" \
    "$(layers "$input, {\"class_name\": \"LSTM\", \"config\": {\"units\": 4, \"inputs\": [\"nothing\"]}}")" \
    "$(layers "$input, {\"class_name\": \"LSTM\", \"config\": {\"units\": 4, \"sluice\": {\"peehole\": true}}}")" \
    "$(layers "$input, $dense" | sed 's/}$/, "sluice": {"training": {"bacth": 4}}}/')" \
    "$(layers "$input, $dense" | sed 's/}$/, "sluice": {"task": "lm"}}/')"; do
    printf '%s' "$text" >bad.json
    exits train bad.json --x x.npy --y y.npy --loss softmax --out m.model
done
echo "arrays:"
npy five.npy f4 6x5x4
npy flat.npy f4 30
npy rows.npy i4 7
npy class.npy i4 6 0 1 2 3 0 1
npy numbers.npy f4 6
npy nan.npy f4 6x5x3 nan $(seq 89)
npy inf.npy f4 6x5x3 $(seq 89) inf
npy none.npy f4 0x5x3
npy lengths.npy i4 6 5 5 9 5 5 5
npy few.npy i4 5
train missing.json
train good.json missing.npy
train good.json five.npy
train good.json flat.npy
train good.json none.npy
train good.json x.npy rows.npy
train good.json x.npy class.npy
train good.json x.npy numbers.npy
train good.json x.npy y.npy --lengths lengths.npy
train good.json x.npy y.npy --lengths few.npy
train good.json good.json
try train good.json --x x.npy --out m.model
try train good.json --x x.npy --y y.npy --out m.model
try train good.json --x x.npy --y y.npy --loss softmax --valid-x x.npy --out m.model
train good.json x.npy y.npy --valid-x five.npy --valid-y y.npy
train good.json x.npy y.npy --valid-x x.npy --valid-y class.npy
"$SLUICE" train good.json --x x.npy --y y.npy --loss softmax --epochs 1 --out good.model >/dev/null
sed 's/}$/, "sluice": {"training": {"valid_fraction": 0.5}}}/' good.json >share.json
train share.json x.npy y.npy --valid-x x.npy --valid-y y.npy
for of_text in '"training": {"split": "blocks"}' '"training": {"drop_partial": true}' '"training": {"keep_state": true}' \
    '"text": {"level": "word"}'; do
    sed "s/}\$/, \"sluice\": {$of_text}}/" good.json >text.json
    train text.json
done
npy ignored.npy i4 6 -1 -1 -1 -1 -1 -1
train good.json x.npy ignored.npy
train good.json x.npy y.npy --valid-x x.npy --valid-y ignored.npy
try eval good.model --x x.npy --y ignored.npy
echo "binary targets:"
npy bits.npy f4 6x3 $(seq 0 17)
try train good.json --x x.npy --y bits.npy --loss binary --out m.model
try eval good.model --x x.npy --y bits.npy --loss binary
echo "beyond f32:"
npy wide.npy f8 6x5x3 $(seq 89) 1e300
train good.json wide.npy
try predict good.model --x wide.npy --out p.npy
try eval good.model --x wide.npy --y y.npy
exits predict good.model --x wide.npy --out f64.npy --dtype f64
try generate good.model
echo "not a number:"
for file in nan inf; do
    train good.json $file.npy | grep exit
    try predict good.model --x $file.npy --out p.npy
    try eval good.model --x $file.npy --y y.npy | grep exit
done
echo "predict and eval:"
try predict good.model --x five.npy --out p.npy
try predict good.model --x flat.npy --out p.npy
try predict good.model --x x.npy --lengths lengths.npy --out p.npy
try predict good.model --x x.npy --lengths few.npy --out p.npy
try predict good.model --x good.json --out p.npy
try predict good.model --x x.npy --out nowhere/p.npy
try eval good.model --x five.npy --y y.npy
try eval good.model text.txt
try generate good.model
layers '{"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 3]}}'", $dense" >flat.json
npy flat_x.npy f4 6x3
"$SLUICE" train flat.json --x flat_x.npy --y y.npy --loss softmax --epochs 1 --out flat.model >/dev/null
try predict flat.model --x flat_x.npy --lengths lengths.npy --out p.npy
echo "damaged .npy:"
size=$(stat -c %s x.npy)
for at in 0 5 9 30 127 $((size - 1)); do
    head -c $at x.npy >bad.npy
    exits predict good.model --x bad.npy --out p.npy
done
sed 's/<f4/<c8/' x.npy >bad.npy
exits predict good.model --x bad.npy --out p.npy
sed 's/False/True /' x.npy >bad.npy
exits predict good.model --x bad.npy --out p.npy
sed 's/(6, /(9, /' x.npy >bad.npy
exits predict good.model --x bad.npy --out p.npy
ls
