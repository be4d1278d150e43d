# Evaluation of language models.
. "$TESTS/lib.bash"
make_text 120 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --out char.model >/dev/null
"$SLUICE" train lm text.txt "${small[@]}" --level word --out word.model >/dev/null
head -n 20 text.txt >test.txt
for model in char word; do
    "$SLUICE" eval $model.model test.txt --json >$model.json
    "$SLUICE" eval $model.model - --json <test.txt | cmp - $model.json
    "$SLUICE" eval $model.model test.txt --json --threads 1 | cmp - $model.json
    "$SLUICE" eval $model.model test.txt | sed -E 's/[0-9]+\.[0-9]+/NUMBER/'
done
wc -cw <test.txt
python3 - <<'P'
import json, math
char, word = json.load(open("char.json")), json.load(open("word.json"))
size = len(open("test.txt").read())
print(list(char), char["tokens"] == size - 1)
print(math.isclose(char["perplexity"], math.exp(char["loss"]), rel_tol=1e-9),
      math.isclose(char["bits_per_char"], char["loss"] / math.log(2), rel_tol=1e-9))
print(word["tokens"], math.isclose(word["bits_per_char"], word["loss"] * word["tokens"] / math.log(2) / size, rel_tol=1e-9))
P
printf 'the xylophone' >new.txt
try eval char.model new.txt
printf 'the\r\n' >new.txt
try eval char.model new.txt
printf '\xef\xbb\xbfthe' >new.txt # which is no part of the text
"$SLUICE" eval char.model new.txt | sed -E 's/[0-9]+\.[0-9]+/NUMBER/'
printf 'a' >one.txt
try eval char.model one.txt
try eval text.txt test.txt
