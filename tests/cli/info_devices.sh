# What is in files, and what there is to compute on.
. "$TESTS/lib.bash"
make_text 120 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --out m.model >/dev/null
"$SLUICE" info m.model | sed -E -e '/^training/,$d'
"$SLUICE" info m.model.last --tensors | grep -E '^  (optim|state)'
"$SLUICE" info m.model.last --json | python3 -c 'import json, sys
info = json.load(sys.stdin)
print(" ".join(info))
print(info["training"]["epoch"], info["model"]["class_name"], info["parameters"], len(info["tensors"]))'
echo "metadata of others, which is JSON or a string:"
python3 -c 'import json, struct
metadata = {"commit": "007", "mask": "0x1F", "escape": "\"\\q\"", "point": "1.", "number": "-12.5e-3", "list": "[1, 2]", "empty": ""}
header = json.dumps({"__metadata__": metadata, "t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
open("others.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + bytes(4))'
"$SLUICE" info others.safetensors --json | tee others.json
python3 -m json.tool others.json >/dev/null && echo "is JSON"
npy x.npy i4 3x2
try info x.npy
try info x.npy --json
try info missing.npy
echo "a layer called state:"
cat >state.json <<'J'
{"class_name": "Sequential", "config": {"name": "m", "layers": [
  {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, null, 5], "dtype": "float32"}},
  {"class_name": "GRU", "config": {"name": "state", "units": 3, "stateful": true}},
  {"class_name": "Dense", "config": {"name": "optim", "units": 3}}]}}
J
npy three.npy f4 3x2x5
npy y.npy i4 3
"$SLUICE" train state.json --x three.npy --y y.npy --loss softmax --epochs 1 --out state.model >/dev/null
"$SLUICE" info state.model | sed -e '/^model/,$d'
echo "devices:"
"$SLUICE" devices | awk '{ print $1, ($2 == "ready") }'
"$SLUICE" devices --json | python3 -c 'import json, sys
found = json.load(sys.stdin)
for device in found["devices"]: print(" ".join(device))
print(*found["planning"])' | tee names.txt
for name in $(tail -n 1 names.txt); do "$SLUICE" plan lstm:b1_t1_i1_h8 --device "$name" >/dev/null || echo "$name: exit $?"; done
echo "the path of a validation text is a word, whatever it looks like:"
make_text 40 >7
"$SLUICE" train lm 7 "${small[@]}" --valid 7 --out seven.model >/dev/null
"$SLUICE" info seven.model --json | grep -o '"valid": [^,]*'
mv 7 '[7]'
"$SLUICE" train lm '[7]' "${small[@]}" --valid '[7]' --out seven.model --overwrite >/dev/null
"$SLUICE" info seven.model | grep ^valid
