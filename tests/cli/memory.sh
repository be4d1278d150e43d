# Out of memory, and memory limits: exit code 5 and a sentence with the number.
. "$TESTS/lib.bash"
make_text 120 >text.txt
exits train lm text.txt "${small[@]}" --memory-limit 10k --out m.model
grep -oE 'memory limit' stderr.txt | head -n 1
exits plan lstm:b64_t512_i64_h64_train --memory-limit 1M
exits plan lstm:b1000_t100000_i1000_h1000_train
echo "a limit that needs recomputation changes no bit:"
make_text 1200 >long.txt
options=(long.txt --units 16 --layers 2 --batch 8 --steps 1024 --epochs 2)
"$SLUICE" train lm "${options[@]}" --out a.model >plain.txt
limit=$("$SLUICE" plan a.model --train --json | python3 -c 'import json, sys
memory = json.load(sys.stdin)["memory"]
print(int((memory["params_block"] + memory["run_block"]) * 0.7))')
"$SLUICE" train lm "${options[@]}" --out b.model --memory-limit $limit >limited.txt
grep -c recomputed limited.txt
same a.model b.model
same a.model.last b.model.last
ls *.model*
not_with_sanitizers
echo "address space:"
(
    ulimit -v 600000
    exits train lm text.txt --units 4096 --layers 4 --out big.model
    grep -ci 'memory' stderr.txt
)
ls *.model*
