# Any description on arrays: train, evaluate, predict.
. "$TESTS/lib.bash"
cat >sequence.json <<'J'
{"class_name": "Sequential", "config": {"name": "classes", "layers": [
  {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, null, 3], "dtype": "float32"}},
  {"class_name": "GRU", "config": {"name": "gru", "units": 8}},
  {"class_name": "Dense", "config": {"name": "out", "units": 3}}]}}
J
npy x.npy f4 20x6x3
npy y.npy i4 20
npy lengths.npy i8 20 6 5 4 3 2 1 6 5 4 3 2 1 6 5 4 3 2 1 6 5
npy vx.npy f8 5x6x3
npy vy.npy i8 5
train=(train sequence.json --x x.npy --y y.npy --loss softmax --epochs 3 --batch 8 --seed 2)
try "${train[@]}" --threads 1 --out a.model | without_times
"$SLUICE" "${train[@]}" --threads 2 --out b.model >/dev/null
same a.model b.model
"$SLUICE" "${train[@]}" --no-shuffle --out c.model >/dev/null
same a.model c.model
"$SLUICE" "${train[@]}" --lengths lengths.npy --valid-x vx.npy --valid-y vy.npy --out d.model | without_times | sed 's/  best so far//'
"$SLUICE" "${train[@]}" --print-model >description.json
"$SLUICE" train description.json --x x.npy --y y.npy --out e.model >/dev/null
same a.model e.model

try eval a.model --x x.npy --y y.npy | sed -E 's/[0-9]+\.[0-9]+/NUMBER/'
"$SLUICE" eval a.model --x x.npy --y y.npy --json --batch 7 >batch7.json
"$SLUICE" eval a.model --x x.npy --y y.npy --json --batch 20 >batch20.json
python3 -c 'import json
a, b = (json.load(open(name)) for name in ("batch7.json", "batch20.json"))
print(list(a), abs(a["loss"] - b["loss"]) < 1e-5, a["accuracy"] == b["accuracy"], a["count"])'

try predict a.model --x x.npy --out p.npy
try predict a.model --x x.npy --out p7.npy --batch 7 --json
try info p.npy
try info p.npy --tensors
try predict a.model --x x.npy --lengths lengths.npy --out pl.npy
python3 - <<'P'
import struct
def read(name):
    data = open(name, "rb").read()
    at = 10 + struct.unpack("<H", data[8:10])[0]
    return struct.unpack("<%df" % ((len(data) - at) // 4), data[at:])
p, p7, pl = read("p.npy"), read("p7.npy"), read("pl.npy")
print("batches agree:", max(abs(a - b) for a, b in zip(p, p7)) < 1e-5)
print("full rows agree, cut ones do not:", max(abs(a - b) for a, b in zip(p[:3], pl[:3])) < 1e-5,
      max(abs(a - b) for a, b in zip(p[3:6], pl[3:6])) > 1e-4)
P

echo "NaN and 1e30 beyond lengths:"
python3 - <<'P'
import struct
data = bytearray(open("x.npy", "rb").read())
at = 10 + struct.unpack("<H", data[8:10])[0]
for row in range(20):
    for step in range(6 - row % 6, 6):
        for feature in range(3):
            struct.pack_into("<f", data, at + 4 * ((row * 6 + step) * 3 + feature), float("nan") if feature else 1e30)
open("padded.npy", "wb").write(data)
P
"$SLUICE" predict a.model --x padded.npy --lengths lengths.npy --out padded_p.npy >/dev/null
same pl.npy padded_p.npy
padded=(train sequence.json --x padded.npy --y y.npy --loss softmax --epochs 3 --batch 8 --seed 2)
"$SLUICE" "${train[@]}" --lengths lengths.npy --no-shuffle --out l.model >/dev/null
"$SLUICE" "${padded[@]}" --lengths lengths.npy --no-shuffle --out lp.model >/dev/null
for name in l lp; do "$SLUICE" predict $name.model --x x.npy --out $name.npy >/dev/null; done
same l.npy lp.npy # the models themselves name their data
"$SLUICE" eval a.model --x x.npy --y y.npy --lengths lengths.npy --json >l.json
"$SLUICE" eval a.model --x padded.npy --y y.npy --lengths lengths.npy --json >lp.json
same l.json lp.json
try predict a.model --x padded.npy --out no.npy

echo "regression over steps, two losses, tokens:"
cat >steps.json <<'J'
{"class_name": "Sequential", "config": {"name": "steps", "layers": [
  {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, null], "dtype": "int32"}},
  {"class_name": "Embedding", "config": {"name": "embedding", "input_dim": 3, "output_dim": 4}},
  {"class_name": "LSTM", "config": {"name": "lstm", "units": 5, "return_sequences": true}},
  {"class_name": "Dense", "config": {"name": "out", "units": 2}}]}}
J
npy tokens.npy i8 10x4
npy targets.npy f4 10x4x2
npy bits.npy f4 10x4x2 $(for i in $(seq 80); do echo $((i % 2)); done)
"$SLUICE" train steps.json --x tokens.npy --y targets.npy --loss mse --out m.model | grep -E '^(data|wrote)'
"$SLUICE" train steps.json --x tokens.npy --y bits.npy --loss binary --out bits.model | grep -E '^(data|wrote)'
try eval m.model --x tokens.npy --y targets.npy | sed -E 's/0\.[0-9]+/NUMBER/'
try predict bits.model --x tokens.npy --out steps.npy

echo "losses of any size:"
sed 's/"units": 3}/"units": 1}/' sequence.json >number.json
npy zero.npy f4 4x2x3 $(printf '0 %.0s' {1..24})
npy small.npy f4 4x1 1e-4 1e-4 1e-4 1e-4
npy large.npy f4 4x1 1e6 1e6 1e6 1e6
for y in small large; do
    "$SLUICE" train number.json --x zero.npy --y $y.npy --loss mse --epochs 1 --batch 4 --optimizer sgd --lr 1e-9 --out $y.model | grep -o '^epoch.* loss [^ ]*'
done
