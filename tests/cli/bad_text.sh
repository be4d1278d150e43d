# Texts that cannot be read or trained on: one sentence, the exit code by kind, nothing written.
. "$TESTS/lib.bash"
train() { try train lm "${small[@]}" "$@" --out m.model; }
: >empty.txt
printf 'good \303\050 bad' >invalid.txt
printf 'abc' >short.txt
make_text 120 >text.txt
mkdir folder
train missing.txt
train folder
train empty.txt
train short.txt
train invalid.txt
train invalid.txt --level word
train text.txt missing.txt
train text.txt invalid.txt text.txt
train text.txt --valid missing.txt
train text.txt --valid empty.txt
train text.txt --valid invalid.txt
train text.txt --valid-split 0.9 --batch 400
train text.txt --batch 4000
train text.txt --vocab-size 2
train text.txt --init-from missing.model
train text.txt --device cuda:0 | sed "s/be used: .*/be used: .../" # what is missing depends on the machine
train text.txt --device nowhere
train text.txt --device cpu --require cuda:grid
train text.txt --dtype f16
if [ "$(id -u)" -ne 0 ]; then
    chmod 000 short.txt
    train short.txt | grep -c 'exit 3'
else
    echo 1 # root reads everything
fi
echo "invalid UTF-8 does at byte level:"
for i in $(seq 200); do cat invalid.txt; done >long.txt
"$SLUICE" train lm long.txt --level byte "${small[@]}" --out byte.model | grep ^data
echo "numbers that explode:"
explode() {
    try train lm "$@" --epochs 1 --clip-norm 0 --out nan.model | sed -E -e '/^(data|plan|memory|epoch)/d' \
        -e 's/^sluice: step [0-9]+: the ((validation )?loss|gradient).*learning rate.*/sluice: step N: the \1, where, the learning rate/'
}
explode text.txt "${small[@]}" --optimizer sgd --lr 1e30 --weight-decay 1
echo "before the first update, and behind it:"
explode text.txt "${small[@]}" --init-scale 1e30 | sed 's/loss is [^ ]*/loss is NUMBER/'
explode text.txt "${small[@]}" --batch 400 --lr 1e30 --optimizer sgd | tail -n 2 # its only step
# Finite all the way, and worth nothing.
awk 'BEGIN { s = 7; for (i = 0; i < 1000; i++) { s = (s * 1103 + 12345) % 65536; printf "%c", 33 + int(s / 64) % 90 } }' >noise.txt
explode noise.txt "${small[@]}" --level byte --lr 1e30
explode noise.txt "${small[@]}" --level byte --lr 1e30 --valid-split 0
explode noise.txt "${small[@]}" --level byte --lr 1e30 --accumulate 2
explode noise.txt "${small[@]}" --level byte --lr 1000 --optimizer sgd
ls
