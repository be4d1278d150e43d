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
head -n 1 a.jsonl | grep -c '"event": "start"'
