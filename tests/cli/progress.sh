# Progress: plain lines when not on a terminal, one rewritten line on a terminal.
. "$TESTS/lib.bash"
make_text 120 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --threads 1 --out a.model | sed -E -e 's/[0-9]+(\.[0-9]+)?k?/N/g' -e 's/; BLAS about .* more//'
script -qec true /dev/null </dev/null >/dev/null 2>&1 || { echo "script, or a pseudo-terminal for it, is not there"; exit 77; }
script -qec "$SLUICE train lm text.txt ${small[*]} --out b.model" /dev/null </dev/null >terminal.txt
echo "rewritten:" $(tr -cd '\r' <terminal.txt | wc -c | awk '{ print ($1 > 2) }')
same a.model b.model

# Never wider than the terminal: a wrapped line cannot be rewritten.
script -qec "stty cols 60; $SLUICE train lm text.txt ${small[*]} --out c.model" /dev/null </dev/null >narrow.txt
echo "longest step line fits:" $(tr '\r' '\n' <narrow.txt | grep '^epoch .* loss' | grep -v 'valid loss' | awk '
    length($0) > most { most = length($0) } END { print (most > 20 && most < 60) }')
