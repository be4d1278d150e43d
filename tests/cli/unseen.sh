# Words and characters that the training text does not hold: <unk> at word level, a sentence at character level.
. "$TESTS/lib.bash"
make_text 120 >text.txt
echo 'the cat sees a zebra and runs away.' >other.txt
"$SLUICE" train lm text.txt "${small[@]}" --level word --valid other.txt --out word.model | grep '^data'
try eval word.model other.txt | sed -E 's/[0-9]+\.[0-9]+/NUMBER/'
"$SLUICE" generate word.model --prime 'the zebra' --length 3 | head -n 1 | cut -d ' ' -f 1-2
"$SLUICE" train lm text.txt "${small[@]}" --level word --epochs 3 --resume --out word.model | grep -E '^(resume|data)'
"$SLUICE" train lm text.txt "${small[@]}" --out char.model >/dev/null
try eval char.model other.txt
