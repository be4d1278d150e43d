# Interrupted and resumed training ends with the same bits as uninterrupted training.
. "$TESTS/lib.bash"
make_text 400 >text.txt
small=(text.txt --units 24 --layers 2 --dropout 0.2 --batch 4 --steps 8)

# Long enough to be stopped on the way, however fast the machine is: some 0.6 seconds.
for epochs in 3 6 12 24 48 96; do
    options=("${small[@]}" --epochs $epochs --seed 3)
    began=$(date +%s%N)
    "$SLUICE" train lm "${options[@]}" --overwrite --out whole.model >/dev/null
    [ $(($(date +%s%N) - began)) -gt 600000000 ] && break
done

# Sends the signal after a while; goes on until nothing is left. At least one run must have been stopped in the middle.
resume_until_done() { # SIGNAL MODEL
    local resume='' stops=0 round
    for round in $(seq 60); do
        : >out.txt # what the last round wrote is not to be taken for this one's
        "$SLUICE" train lm "${options[@]}" $resume --out "$2" --log "$2.jsonl" >out.txt 2>&1 &
        local pid=$!
        for _ in $(seq 200); do # until it trains
            grep -q '^epoch' out.txt && break
            sleep 0.02
        done
        sleep $((round < 6 ? 0 : 1)).05 # slow machines get ahead, too
        kill -"$1" $pid 2>/dev/null
        wait $pid || { echo "exit code $?"; cat out.txt; return; }
        grep -q '^done' out.txt && break
        grep -q 'go on with --resume' out.txt && stops=$((stops + 1))
        resume=--resume
    done
    grep -o '^done' out.txt
    [ $stops -gt 0 ] && echo "was stopped"
}
echo "Ctrl-C:"
resume_until_done INT a.model
same whole.model.last a.model.last
echo "SIGTERM:"
resume_until_done TERM b.model
same whole.model.last b.model.last
echo "--max-minutes:"
resume=
for _ in $(seq 100); do
    "$SLUICE" train lm "${options[@]}" $resume --max-minutes 0.004 --out c.model >out.txt || { cat out.txt; break; }
    resume=--resume
    grep -q '^done' out.txt && break
done
same whole.model.last c.model.last
options=("${small[@]}" --epochs 3 --seed 3)
"$SLUICE" train lm "${options[@]}" --overwrite --out whole.model >/dev/null
echo "it is not replaced without a word:"
cp whole.model.last kept.last
try train lm "${options[@]}" --out whole.model
try train lm "${options[@]}" --resume --overwrite --out whole.model
same whole.model.last kept.last
echo "longer than planned at first:"
"$SLUICE" train lm "${options[@]}" --epochs 2 --out d.model >/dev/null
"$SLUICE" train lm "${options[@]}" --epochs 3 --out d.model --resume >/dev/null
same whole.model.last d.model.last
same whole.model d.model
echo "without validation, where a training with it was before:"
"$SLUICE" train lm "${options[@]}" --valid-split 0 --epochs 2 --out e.model >/dev/null
"$SLUICE" train lm "${options[@]}" --valid-split 0 --epochs 1 --overwrite --out d.model >/dev/null
ls d.model*
"$SLUICE" train lm "${options[@]}" --valid-split 0 --epochs 2 --out d.model --resume >/dev/null
same e.model d.model
"$SLUICE" train lm "${options[@]}" --overwrite --out d.model >/dev/null
echo "with what does not fit:"
try train lm "${options[@]}" --out none.model --resume
try train lm "${options[@]}" --seed 4 --out d.model --resume
try train lm "${options[@]}" --units 25 --out d.model --resume
make_text 399 >text.txt
try train lm "${options[@]}" --out d.model --resume
same whole.model.last d.model.last
echo "a model of another training beside the resume point:"
"$SLUICE" train lm "${options[@]}" --epochs 1 --out g.model >/dev/null
cp g.model.last older.last
"$SLUICE" train lm "${options[@]}" --epochs 1 --units 25 --overwrite --out g.model >/dev/null
cp g.model newer
cp older.last g.model.last
try train lm "${options[@]}" --epochs 2 --resume --out g.model
same newer g.model
echo "a model of a training that began anew, which was better before:"
"$SLUICE" train lm "${options[@]}" --out better.model >/dev/null
cp better.model.last g.model.last
"$SLUICE" train lm "${options[@]}" --epochs 1 --out begun.model >/dev/null
cp begun.model g.model
try train lm "${options[@]}" --epochs 4 --resume --out g.model
same begun.model g.model
cp older.last g.model.last
rm g.model
"$SLUICE" train lm "${options[@]}" --epochs 2 --resume --out g.model >/dev/null && echo "without it the older one goes on"
echo "with other instructions:"
"$SLUICE" train lm "${options[@]}" --epochs 1 --out h.model >/dev/null
"$SLUICE" train lm "${options[@]}" --epochs 2 --resume --device cpu:base --out h.model | grep -o 'was trained with [a-z0-9]*, and goes on with base' | sed 's/with [a-z0-9]*,/with others,/'
echo "the model file is gone, and the stop finds nothing better:"
rm h.model
"$SLUICE" train lm "${options[@]}" --epochs 3 --resume --max-minutes 0.000001 --out h.model | sed -n '/^wrote/,$p'
echo "as many steps as can be numbered:"
"$SLUICE" train lm "${options[@]}" --epochs 1 --valid-split 0 --out i.model >/dev/null
python3 - <<'P'
import json, re, struct
data = open("i.model", "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:end])
state = head["__metadata__"]["training"]
blocks = int(re.search(r'"step": (\d+)', state)[1])
step = 2**32 - 8
state = re.sub(r'"step": \d+, "epoch": 1, "block": 0', f'"step": {step}, "epoch": {step // blocks}, "block": {step % blocks}', state)
head["__metadata__"]["training"] = re.sub(r'"optimizer_steps": \d+', f'"optimizer_steps": {step}', state)
text = json.dumps(head).encode()
open("i.model", "wb").write(struct.pack("<Q", len(text)) + text + data[end:])
P
for _ in 1 2; do
    try train lm text.txt --epochs 2147483647 --resume --max-minutes 0.01 --out i.model | grep -E '^(stopped|wrote|sluice|exit)' | sed 's/ of .*//'
done
echo "killed between the first resume point and the first model file:"
"$SLUICE" train lm "${options[@]}" --epochs 1 --out l.model >/dev/null
cp l.model l.kept
cp l.model.last last.kept
python3 - <<'P'
import json, struct
data = open("l.model.last", "rb").read()
end = 8 + struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:end])
head["__metadata__"]["training"] = head["__metadata__"]["training"].replace(', "device"', ', "best_is_here": true, "device"')
text = json.dumps(head).encode()
open("l.model.last", "wb").write(struct.pack("<Q", len(text)) + text + data[end:])
P
cp text.txt l.model # no model file: it stays
try train lm "${options[@]}" --epochs 1 --resume --out l.model
same text.txt l.model
rm l.model
try train lm "${options[@]}" --epochs 1 --resume --out l.model
same l.kept l.model
same last.kept l.model.last
echo "the resume point is gone:"
"$SLUICE" train lm "${options[@]}" --epochs 1 --out j.model >/dev/null
rm j.model.last
try train lm "${options[@]}" --epochs 2 --resume --out j.model
