# tools/gpu_check without a GPU: what is skipped, and on the CPU how lists of problems go on and survive a crash.
. "$TESTS/lib.bash"
check=$TESTS/../../tools/gpu_check
export SLUICE_TESTS=/bin/true SLUICE_SOURCE=0123456789abcdef
summary() { grep -vE '^source ' | sed -E 's/: cuda:99 is not there.*//; s/ +[0-9]+ s  / N s  /'; }
"$check" --device cuda:99 --only devices,suite,sanitizer --out none | summary
echo "exit ${PIPESTATUS[0]}"
printf 'lstm:b1_t3_i2_h3_train\ngru:b1_t3_i2_h3_f64\nrnn:b2_t2_i2_h2\n' >list.txt
for round in 1 2; do
    "$check" --device cpu --only problems --dtypes f32 --problems list.txt --jobs 2 --out lines | summary
    wc -l <lines/problems.jsonl
done
# Another source is other work.
SLUICE_SOURCE=another "$check" --device cpu --only problems --dtypes f32 --problems list.txt --jobs 2 --out lines | tail -n 1
wc -l <lines/problems.jsonl
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

# Tests: one of a batch fails, what the limit cut short is left, and a later call does only that.
cat >unit_tests <<'END'
#!/bin/bash
case $1 in
--list) printf 'one\ntwo\nthree\nlong (slow)\nthe_same_call_again (slow)\n' ;;
--device)
    shift 3
    echo "$@" >>ran
    if [[ $1 = long && ! -e again ]]; then sleep 30; fi
    if [[ " $* " = *' two '* ]]; then
        echo "tests.c:1: two: wrong"
        echo "$(($# - 1)) passed, 1 failed, 0 skipped"
        exit 1
    fi
    echo "$# passed, 0 failed, 0 skipped"
    ;;
esac
END
chmod +x unit_tests
for limit in 6 100; do
    SLUICE_TESTS=./unit_tests "$check" --device cpu --only repeat,suite --jobs 2 --out tests --limit-seconds $limit | summary
    sort ran && rm ran
    touch again
done

# The persistent kernels' stages, with the CPU's rows in their place: coverage by row and precision, delays, a soak.
"$check" --device cpu --only persist,builtin,drawn,stress,soak --dtypes f32 --rows "cpu:fused ref" --problems list.txt --jobs 2 --out rows \
    --soak-seconds 1 --seeds "1 2" | summary | sed -E 's/ +[0-9]+ checks: [0-9]+ passed/ N checks: N passed/; s/[0-9]+ runs of/N runs of/; /^soak|^[0-9]+ passed/s/[0-9]+ passed/N passed/'
wc -l <rows/stress.jsonl
# Kernels whose bits change under delays.
sed -n '/-2", .*"ref"/s/digest": "./digest": "?/p' rows/stress.jsonl >other.txt
mkdir delays && { grep -v -- '-2", .*"ref"' rows/stress.jsonl; cat other.txt; } >delays/stress.jsonl
"$check" --device cpu --only stress --dtypes f32 --rows "cpu:fused ref" --problems list.txt --jobs 1 --out delays --seeds "1 2" | summary |
    grep -E 'FAIL|^stress'
# A problem that hangs is ended, named, and the rest goes on.
cat >hangs <<END
#!/bin/bash
if [ "\$1" = check ] && [ ! -e hung ]; then
    touch hung
    while [ "\$1" != --source ]; do shift; done
    echo "rnn:b2_t2_i2_h2|f32|cpu|\$2" >hang/problems.jsonl.at.1
    exec sleep 30
fi
exec "$SLUICE" "\$@"
END
chmod +x hangs
SLUICE=./hangs "$check" --device cpu --only persist --dtypes f32 --rows ref --problems list.txt --jobs 1 --out hang --patience 1 | summary
tar xzf hang/logs.tar.gz && sed -n 's/^hangs: [^ ]*/hangs:/p' logs/persist.log
# One that the limit finds at work is left, and done by the next call.
rm hung
for grace in 1 100; do
    sed 's|hang/|cut/|' hangs >cuts && chmod +x cuts
    SLUICE=./cuts "$check" --device cpu --only persist --dtypes f32 --rows ref --problems list.txt --jobs 1 --out cut --limit-seconds $((grace + 1)) \
        --grace $grace | summary
    wc -l <cut/problems.jsonl
done
# Every problem of the lists is one.
for list in "$TESTS"/../gpu/*.txt; do
    sed -e 's/ *#.*//' -e '/^$/d' "$list" | while read -r problem; do "$SLUICE" check "$problem" --device cuda:99 2>&1; done |
        grep -v '^sluice: device cuda:99 cannot be used'
done
exit 0
