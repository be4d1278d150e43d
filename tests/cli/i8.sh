# Weights of 8 bits: what they cost is said beside f32, on text and on arrays; training refuses them.
. "$TESTS/lib.bash"
make_text 120 >text.txt
make_text 140 | tail -n 20 >test.txt
"$SLUICE" train lm text.txt --units 32 --layers 1 --batch 4 --steps 8 --epochs 8 --seed 3 --out char.model >/dev/null
numbers() { sed -E 's/[-+]?[0-9]+\.[0-9]+(e[-+][0-9]+)?/NUMBER/g'; }
try eval char.model test.txt --dtype i8 | numbers
"$SLUICE" eval char.model test.txt --dtype i8 --json >i8.json
"$SLUICE" eval char.model test.txt --json >f32.json
"$SLUICE" eval char.model test.txt --dtype i8 --json --threads 1 | cmp - i8.json
python3 - <<'P'
import json, math
i8, f32 = json.load(open("i8.json")), json.load(open("f32.json"))
print(list(i8), list(i8["f32"]), list(i8["difference"]))
figures = ("loss", "perplexity", "bits_per_char")
print(all(i8["f32"][k] == f32[k] for k in figures), i8["tokens"] == f32["tokens"],
      all(math.isclose(i8["difference"][k], i8[k] - f32[k], abs_tol=1e-12) for k in figures))
# Rounded to 1/127 of the largest, a number that is spread evenly errs by 1/254 of its root mean square, one from a bell by up to
# 1/100. A product of two such errs by 2%, the logits' spread is about 3 nats: 0.05 nats a token, of either sign. Over 500 tokens
# that leaves 0.05 / sqrt(500) = 0.002; what is second order is smaller. Five times that is allowed.
difference = i8["difference"]["loss"]
print("small, and not nothing:", 0 < abs(difference) < 0.01)
if not abs(difference) < 0.01: print(difference)
P
"$SLUICE" plan char.model --dtype i8 | grep -oE 'cpu:(fused|i8)' | sort -u
"$SLUICE" generate char.model --dtype i8 --length 40 --temperature 0 --prime the >a.txt && wc -c <a.txt

# As C; tests/stream has the numbers.
try convert char.model char.c --dtype i8 --name net | sed -E 's/[0-9.]+ kB/SIZE/'
grep -cE 'static const signed char net_[0-9]+_(table|weights)' char.c
try convert char.model char.slm --dtype i8

cat >sequence.json <<'J'
{"class_name": "Sequential", "config": {"name": "classes", "layers": [
  {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, null, 3], "dtype": "float32"}},
  {"class_name": "GRU", "config": {"name": "gru", "units": 8}},
  {"class_name": "Dense", "config": {"name": "out", "units": 3}}]}}
J
npy x.npy f4 20x6x3
npy y.npy i4 20
"$SLUICE" train sequence.json --x x.npy --y y.npy --loss softmax --epochs 3 --batch 8 --seed 2 --out a.model >/dev/null
try eval a.model --x x.npy --y y.npy --dtype i8 | numbers
"$SLUICE" eval a.model --x x.npy --y y.npy --dtype i8 --json >i8.json
python3 -c 'import json
r = json.load(open("i8.json"))
print(list(r), list(r["difference"]), abs(r["difference"]["loss"]) < 0.01, abs(r["difference"]["accuracy"]) < 0.11)'
"$SLUICE" predict a.model --x x.npy --out p.npy --dtype i8 >/dev/null && try info p.npy

try train lm text.txt --dtype i8 --out no.model
exits eval char.model test.txt --dtype i8 --device cuda:sm_90
