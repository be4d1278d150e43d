# tools/gpu_check without a GPU: what is skipped, and on the CPU how lists of problems go on and survive a crash.
. "$TESTS/lib.bash"
check=$TESTS/../../tools/gpu_check
export SLUICE_TESTS=/bin/true
summary() { grep -vE '^source ' | sed -E 's/: cuda:99 is not there.*//; s/ +[0-9]+ s  / N s  /'; }
"$check" --device cuda:99 --only devices,suite,sanitizer --out none | summary
echo "exit ${PIPESTATUS[0]}"
printf 'lstm:b1_t3_i2_h3_train\ngru:b1_t3_i2_h3_f64\nrnn:b2_t2_i2_h2\n' >list.txt
for round in 1 2; do
    "$check" --device cpu --only problems --dtypes f32 --problems list.txt --jobs 2 --out lines | summary
    wc -l <lines/problems.jsonl
done
# The first process dies in the middle of a problem, the next one goes on.
cat >dies <<END
#!/bin/bash
if [ "\$1" = check ] && [ ! -e died ]; then
    touch died
    while [ "\$1" != --source ]; do shift; done
    echo "rnn:b2_t2_i2_h2|f32|cpu|\$2" >crash/problems.jsonl.at.1
    kill -SEGV \$\$
fi
exec "$SLUICE" "\$@"
END
chmod +x dies
SLUICE=./dies "$check" --device cpu --only problems --dtypes f32 --problems list.txt --jobs 1 --out crash 2>&1 | summary
echo "exit ${PIPESTATUS[0]}"
