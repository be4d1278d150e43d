# Out of memory, and memory limits: exit code 5 and a sentence with the number.
. "$TESTS/lib.bash"
make_text 120 >text.txt
exits train lm text.txt "${small[@]}" --memory-limit 10k --out m.model
grep -oE 'memory limit' stderr.txt | head -n 1
exits plan lstm:b64_t512_i64_h64_train --memory-limit 1M
exits plan lstm:b1000_t100000_i1000_h1000_train
echo "a limit that needs recomputation changes no bit:"
"$SLUICE" train lm text.txt --units 16 --layers 2 --batch 4 --steps 128 --epochs 2 --out a.model >plain.txt
"$SLUICE" plan a.model --train --json >plan.json
"$SLUICE" train lm text.txt --units 16 --layers 2 --batch 4 --steps 128 --epochs 2 --out b.model \
    --memory-limit $(python3 -c 'import json
m = json.load(open("plan.json"))["memory"]
print(int((m["params_block"] + m["run_block"]) * 0.9))') >limited.txt
grep -c recomputed limited.txt
same a.model b.model
ls *.model*
not_with_sanitizers
echo "address space:"
(
    ulimit -v 600000
    exits train lm text.txt --units 4096 --layers 4 --out big.model
    grep -ci 'memory' stderr.txt
)
ls *.model*
