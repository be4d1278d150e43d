# The log: one JSON object a line, the promised keys, the same losses every time.
. "$TESTS/lib.bash"
make_text 120 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --threads 1 --out a.model --log a.jsonl >/dev/null
"$SLUICE" train lm text.txt "${small[@]}" --threads 2 --out b.model --log b.jsonl >/dev/null
python3 - <<'P'
import json
a, b = ([json.loads(line) for line in open(name)] for name in ("a.jsonl", "b.jsonl"))
print("first:", " ".join(a[0]))
print("machine:", " ".join(a[0]["machine"]))
steps = [line for line in a if "event" not in line]
print("step:", " ".join(steps[0]))
print("numbered from 1 on:", [line["step"] for line in steps] == list(range(1, len(steps) + 1)))
print("epochs:", sorted({line["epoch"] for line in steps}))
events = [line["event"] for line in a if "event" in line]
print("events:", " ".join(dict.fromkeys(events)))
for event in dict.fromkeys(events[1:]):
    print(event + ":", " ".join(next(line for line in a if line.get("event") == event)))
print("same losses:", [line["loss"] for line in steps] == [line["loss"] for line in b if "event" not in line])
P
lines=$(wc -l <a.jsonl)
"$SLUICE" train lm text.txt "${small[@]}" --epochs 3 --out a.model --log a.jsonl --resume >/dev/null
echo "resuming appends:" $(($(wc -l <a.jsonl) > lines))
python3 - <<'P'
import json
steps = [line["step"] for line in map(json.loads, open("a.jsonl")) if "event" not in line]
print("every step once:", steps == list(range(1, len(steps) + 1)))
P
echo "after a kill: a half line and steps that are done again"
mkdir copy
cp a.model a.model.last copy
cp a.model b.model
cp a.model.last b.model.last
cp a.jsonl b.jsonl
echo "the log of another model is not gone on with"
"$SLUICE" train lm text.txt --epochs 4 --threads 1 --out b.model --log b.jsonl --resume 2>&1 >/dev/null
echo "exit $?"
cmp a.jsonl b.jsonl && echo "and not cut"
last=$(tail -n 1 b.jsonl | sed -E 's/.*"step": ([0-9]+).*/\1/')
for step in 1 2 3; do echo "{\"step\": $((last + step)), \"loss\": 1}" >>b.jsonl; done
printf '{"step": 4' >>b.jsonl
"$SLUICE" train lm text.txt --epochs 4 --threads 1 --out copy/a.model --log b.jsonl --resume >/dev/null
python3 - <<'P'
import json
lines = [json.loads(line) for line in open("b.jsonl")]
steps = [line["step"] for line in lines if "event" not in line]
print("every step once:", steps == list(range(1, len(steps) + 1)))
print("starts:", sum(line.get("event") == "start" for line in lines))
P
head -n 1 a.jsonl | grep -c '"event": "start"'
echo "nothing else comes into it where standard output is closed"
"$SLUICE" train lm text.txt "${small[@]}" --out closed.model --log closed.jsonl >&- 2>/dev/null
echo "exit $?"
echo "$(grep -cv '^{' closed.jsonl) other lines"
echo "the command can be typed again, blanks and quotes in it too"
cp text.txt "it's a text.txt"
"$SLUICE" train lm "it's a text.txt" "${small[@]}" --out c.model --log c.jsonl >/dev/null
again=$(python3 -c 'import json; print(json.loads(open("c.jsonl").readline())["command"])')
mv c.jsonl c1.jsonl
rm c.model c.model.last # which would not be replaced
sluice() { "$SLUICE" "$@"; }
eval "$again" >/dev/null
cmp <(tail -n +2 c.jsonl | cut -d, -f1-4) <(tail -n +2 c1.jsonl | cut -d, -f1-4) && echo "$again" | cut -d ' ' -f 1-6
echo "the command is whole, however long"
long=$(printf 'x%.0s' $(seq 200))
cp text.txt "$long"
"$SLUICE" train lm "$long" "$long" "$long" "${small[@]}" --epochs 1 --out long.model --log long.jsonl >/dev/null
head -n 1 long.jsonl | grep -o -- '--out long.model --log long.jsonl"'
echo "where a line is damaged in the middle, resuming cuts before it"
for damage in 'printf "{\"step\": 1"' 'head -c 100 /dev/zero' 'echo'; do
    cp a.model.last copy/a.model.last
    { head -n 9 a.jsonl; eval "$damage"; tail -n +12 a.jsonl; } >b.jsonl
    "$SLUICE" train lm text.txt --epochs 4 --out copy/a.model --log b.jsonl --resume >/dev/null
    head -n 9 a.jsonl | cmp - <(head -n 9 b.jsonl) && sed -n 10p b.jsonl | cut -c 1-18
    python3 -c 'import json; print(sum(1 for line in map(json.loads, open("b.jsonl"))) > 9)'
done
echo "after a line that could not be written none follows, which would stand behind a half"
(
    ulimit -S -f 32
    exec "$SLUICE" train lm text.txt --units 2 --layers 1 --batch 4 --steps 8 --epochs 100000 --valid-split 0 --out full.model --log full.jsonl 2>full.txt >/dev/null
) &
pid=$!
for _ in $(seq 500); do # until it is full
    [ "$(stat -c %s full.jsonl 2>/dev/null || echo 0)" -ge 32768 ] && break
    sleep 0.02
done
prlimit --pid $pid --fsize=1000000000:
sleep 0.2
kill -TERM $pid
wait $pid
echo "exit $?"
sed 's/;.*//' full.txt
stat -c %s full.jsonl
