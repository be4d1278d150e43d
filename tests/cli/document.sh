# What --print-model prints, fed to `train MODEL.json`, trains the same model to the bit.
. "$TESTS/lib.bash"
make_text 120 >text.txt
compare() {
    "$SLUICE" train lm "$@" --overwrite --out direct.model >/dev/null
    "$SLUICE" train lm "$@" --print-model >description.json
    "$SLUICE" train description.json text.txt --overwrite --out described.model >/dev/null
    same direct.model described.model
    same direct.model.last described.model.last
    "$SLUICE" train description.json --print-model text.txt | cmp - description.json
}
compare text.txt "${small[@]}"
compare text.txt "${small[@]}" --cell gru --layers 2 --dropout 0.2 --tie --level word --optimizer sgd --lr 0.5 \
    --schedule epoch-decay:1:0.5 --clip-value 3 --reduction sum-time --init-scale 0.1 --accumulate 2
compare text.txt "${small[@]}" --embed 0 --optimizer rmsprop --schedule cosine:5 --split blocks --valid-split 0.1
"$SLUICE" train lm text.txt "${small[@]}" --print-model | "$SLUICE" train - text.txt --out piped.model >/dev/null
"$SLUICE" train lm text.txt "${small[@]}" --overwrite --out direct.model >/dev/null
same direct.model piped.model
echo "an option overrides the description:"
"$SLUICE" train lm text.txt "${small[@]}" --print-model >description.json
"$SLUICE" train lm text.txt "${small[@]}" --seed 9 --overwrite --out direct.model >/dev/null
"$SLUICE" train description.json text.txt --seed 9 --overwrite --out described.model >/dev/null
same direct.model described.model
echo "the description:"
cat description.json
echo "members that nothing reads, and what --patience 0 turns off:"
sed 's/"optimizer": {"name": "adam"}/"optimizer": {"name": "adam", "rho": 0.9}/' description.json >rho.json
try train rho.json text.txt --out rho.model
sed 's/"schedule": {"name": "constant"}/"schedule": {"name": "constant", "every": 5}/' description.json >every.json
try train every.json text.txt --out every.model
"$SLUICE" train lm text.txt "${small[@]}" --patience 3 --min-delta 0.1 --print-model >patient.json
sed '/"patience"/d' patient.json >delta.json
try train delta.json text.txt --out delta.model
"$SLUICE" train patient.json text.txt --patience 0 --seed 9 --overwrite --out described.model >/dev/null
same direct.model described.model
echo "a text with other characters than the description's:"
printf 'XYZ, 1234567890\n' | cat text.txt - >more.txt
try train description.json more.txt --out more.model
tr 'a' 'o' <text.txt >fewer.txt
try train description.json fewer.txt --out fewer.model
sed 's/"dtype": "int32"/"dtype": "float32"/; s/\[null, null\]/[null, null, 3]/; /"class_name": "Embedding"/,/^      },/d' \
    description.json | sed '/^      {$/N;s/^      {\n      {/      {/' >floats.json
try train floats.json text.txt --out floats.model
echo "what is no description:"
try train direct.model text.txt --out other.model
try train text.txt text.txt --out other.model
echo "a frozen layer:"
sed 's/"name": "output",/&\n          "trainable": false,/' description.json >frozen.json
try train frozen.json text.txt --out frozen.model
