# Damaged model files: one sentence, exit code 3 (8 for numbers), nothing written.
. "$TESTS/lib.bash"
make_text 120 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --out good.model >/dev/null
size=$(stat -c %s good.model)
echo "cut off:"
for at in 0 1 7 8 9 100 1000 $((size / 2)) $((size - 1)); do
    head -c $at good.model >bad.model
    exits generate bad.model
    exits eval bad.model text.txt
    exits info bad.model
done
echo "one byte too many:"
{ cat good.model; printf x; } >bad.model
exits info bad.model
echo "a header's length that lies:"
for bytes in '\377\377\377\377\377\377\377\377' '\0\0\0\0\0\0\0\0' '\377\377\377\377\0\0\0\0'; do
    { printf "$bytes"; tail -c +9 good.model; } >bad.model
    exits info bad.model
done
echo "a letter changed in the header:"
for word in '"model"' '"dtype"' 'data_offsets' 'LSTM' 'rnn1.kernel' '"F32"' 'sluice' '\[64,16\]' 'output_dim'; do
    python3 - "$word" <<'P'
import re, sys
data = open("good.model", "rb").read()
at = re.search(sys.argv[1].encode().replace(b",", b", ?"), data)
at = at.start() + 1 if at else 60
open("bad.model", "wb").write(data[:at] + b"X" + data[at + 1:])
P
    exits eval bad.model text.txt
done
echo "a parameter that is no number:"
python3 - <<'P'
import struct
data = bytearray(open("good.model", "rb").read())
for at in range(8 + struct.unpack("<Q", data[:8])[0], len(data) - 3, 4):
    data[at:at + 4] = struct.pack("<f", float("nan"))
open("bad.model", "wb").write(data)
P
exits generate bad.model --length 5
exits eval bad.model text.txt
echo "a vocabulary of fewer or more tokens than the model has:"
for tokens in '["a"]' '["a", "b", "\n"]' more; do
    python3 - "$tokens" <<'P'
import json, struct, sys
data = open("good.model", "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:end])
words = json.loads(head["__metadata__"]["vocabulary"])
words["tokens"] = words["tokens"] + ["@"] if sys.argv[1] == "more" else json.loads(sys.argv[1])
head["__metadata__"]["vocabulary"] = json.dumps(words)
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open("bad.model", "wb").write(struct.pack("<Q", len(text)) + text + data[end:])
P
    try generate bad.model --length 5
    try eval bad.model text.txt
    try convert bad.model bad.c
    try plan bad.model
    exits info bad.model
done
try plan text.txt
try plan - <text.txt
try plan /dev/zero
echo "a resume point:"
cp good.model.last whole.last
head -c 3000 whole.last >good.model.last
exits train lm text.txt "${small[@]}" --epochs 3 --resume --out good.model
cp whole.last good.model.last
"$SLUICE" train lm text.txt "${small[@]}" --epochs 3 --resume --out good.model | grep -o ^done
echo "what is no model file:"
printf '{"class_name": 3}' >text.json
: >empty
mkdir folder
for file in text.json empty folder missing text.txt /dev/null; do
    try generate $file
    try info $file
done
try generate good.model --prime "$(printf '\377')"
try train lm text.txt "${small[@]}" --init-from text.txt --out new.model
try train lm text.txt "${small[@]}" --init-from good.model --units 17 --out new.model
ls
echo "a letter changed in what a resume point and a model remember of the training:"
for word in '"clip' '"adam' '"options' '"level'; do
    python3 - "$word" <<'P'
import sys
for kind in "", ".last":
    data = open("good.model" + kind, "rb").read()
    word = sys.argv[1].replace('"', r'\"').encode()
    at = data.index(word) + len(word) - 1
    open("bad.model" + kind, "wb").write(data[:at] + b"X" + data[at + 1:])
P
    try train lm text.txt --epochs 3 --resume --out bad.model
done
