# The published configurations.
. "$TESTS/lib.bash"
make_text 400 >text.txt
for preset in char-rnn ptb-small ptb-medium ptb-large; do
    try train lm --preset $preset text.txt --print-model
done
try train lm --preset ptb-huge text.txt --out m
"$SLUICE" train lm --preset char-rnn text.txt --epochs 1 --batch 10 --steps 10 --out char.model | grep -E '^(data|wrote)'
"$SLUICE" train lm --preset ptb-small text.txt --epochs 1 --valid text.txt --out word.model | grep -E '^(data|wrote)'
"$SLUICE" train lm --preset ptb-small --level byte text.txt --max-minutes 0.0001 --out byte.model | grep ^data # bytes have no limit
"$SLUICE" train lm --level byte text.txt --max-minutes 0.0001 --resume --out byte.model | grep ^data
