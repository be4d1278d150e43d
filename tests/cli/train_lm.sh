# A language model from text to samples; the same bits twice and with any number of threads.
. "$TESTS/lib.bash"
make_text 120 >text.txt
try train lm text.txt "${small[@]}" --threads 1 --out a.model | without_times
"$SLUICE" train lm text.txt "${small[@]}" --threads 1 --out b.model >/dev/null
"$SLUICE" train lm text.txt "${small[@]}" --threads 2 --out c.model >/dev/null
"$SLUICE" train lm - "${small[@]}" --threads 2 --out d.model <text.txt >/dev/null
head -n 60 text.txt >one.txt
tail -n +61 text.txt >two.txt
"$SLUICE" train lm one.txt two.txt "${small[@]}" --out e.model >/dev/null
for other in b c d e; do
    same a.model $other.model
    same a.model.last $other.model.last
done
"$SLUICE" train lm text.txt "${small[@]}" --seed 4 --out f.model >/dev/null
same a.model f.model
echo "validation losses fall:"
"$SLUICE" train lm text.txt "${small[@]}" --epochs 4 --out g.model --log g.jsonl >/dev/null
python3 - <<'P'
import json
lines = [json.loads(line) for line in open("g.jsonl")]
losses = [line["valid_loss"] for line in lines if line.get("event") == "evaluation"]
print(len(losses), losses == sorted(losses, reverse=True), losses[-1] < 2.8)
P
for cell in gru rnn; do
    "$SLUICE" train lm text.txt "${small[@]}" --cell $cell --layers 2 --dropout 0.1 --tie --valid one.txt --valid-split 0 \
        --out $cell.model | grep '^data'
done
"$SLUICE" train lm text.txt "${small[@]}" --level word --vocab-size 12 --embed 0 --valid-split 0 --out word.model |
    grep -E '^(data|wrote)'
"$SLUICE" train lm text.txt "${small[@]}" --level byte --patience 1 --out byte.model | grep -E '^data'
ls
