# Samples: same seed, same text; the prime comes first; sampling options matter.
. "$TESTS/lib.bash"
make_text 120 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --out char.model >/dev/null
"$SLUICE" train lm text.txt "${small[@]}" --level word --out word.model >/dev/null
"$SLUICE" generate char.model --length 60 --seed 5 >a.txt
"$SLUICE" generate char.model --length 60 --seed 5 --threads 1 >b.txt
same a.txt b.txt
"$SLUICE" generate char.model --length 60 --seed 6 >c.txt
same a.txt c.txt
"$SLUICE" generate char.model --length 60 --seed 06 >d.txt # no octal numbers
"$SLUICE" generate char.model --length 60 --seed 010 | cmp - <("$SLUICE" generate char.model --length 60 --seed 0xA)
same c.txt d.txt
echo "names that a shell would take apart, in what may be done next:"
for name in 'my model' "it's" -m; do
    "$SLUICE" train lm "${small[@]}" --epochs 1 --out "$name" -- text.txt | sed -n 's/^next: sluice //p' >next.txt
    cat next.txt
    eval "\"\$SLUICE\" $(cat next.txt)" | wc -c
done
wc -c <a.txt
"$SLUICE" generate char.model --prime 'the cat' --length 10 | head -c 7
echo
"$SLUICE" generate char.model --prime 'the cat' --length 0
"$SLUICE" generate char.model --temperature 0 --length 30 --seed 1 >greedy1.txt
"$SLUICE" generate char.model --temperature 0 --length 30 --seed 2 >greedy2.txt
"$SLUICE" generate char.model --top-k 1 --length 30 --seed 3 >greedy3.txt
"$SLUICE" generate char.model --top-p 0.000001 --length 30 --seed 4 >greedy4.txt
for i in 2 3 4; do same greedy1.txt greedy$i.txt; done
"$SLUICE" generate word.model --prime 'the old cat' --length 0
"$SLUICE" generate word.model --length 50 >words.txt
echo "words that are not in the text:" $(tr ' ' '\n' <words.txt | sort -u | grep -vxF "$(tr ' ' '\n' <text.txt | sort -u)" | grep -c .)
try generate char.model --prime 'Zürich'
npy x.npy f4 2x2
try generate x.npy
try generate missing.model
