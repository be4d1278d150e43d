# A file that is written may be none that is read, by whatever name: exit code 2, and the file is as it was.
try() {
    "$SLUICE" "$@" 2>&1 >/dev/null
    echo "exit code $?"
}
seq 1 400 | sed 's/$/ lines of a text/' >text.txt
cp text.txt kept.txt
small=(--units 8 --layers 1 --batch 2 --steps 4 --epochs 1 --threads 1)
"$SLUICE" train lm text.txt "${small[@]}" --out m.st >/dev/null
cp m.st kept.st
ln -s text.txt link.txt
ln text.txt hard.txt
mkdir sub

echo '--- train'
try train lm text.txt "${small[@]}" --out text.txt
try train lm text.txt "${small[@]}" --out link.txt
try train lm text.txt "${small[@]}" --out sub/../hard.txt
try train lm kept.txt "${small[@]}" --valid text.txt --out text.txt
try train lm text.txt "${small[@]}" --out new.st --log text.txt
try train lm text.txt "${small[@]}" --out new.st --log new.st
try train lm text.txt "${small[@]}" --out new.st --log sub/../new.st.last
try train lm text.txt "${small[@]}" --out kept.txt # not read, but no model either
try train lm text.txt "${small[@]}" --overwrite --out m.st --log /dev/null # a model may be replaced
echo precious >note
cp note o.st.last
ln -s later.st dangling
try train lm - "${small[@]}" --out new.st --log text.txt <text.txt
try train lm text.txt "${small[@]}" --out m.st --init-from m.st
try train lm text.txt "${small[@]}" --out new.st --init-from m.st --log m.st
try train lm text.txt "${small[@]}" --out dangling --log sub/../later.st
try train lm text.txt "${small[@]}" --out o.st
try train lm text.txt "${small[@]}" --out new.st --log note
cp text.txt valid.txt
"$SLUICE" train lm text.txt "${small[@]}" --valid valid.txt --out v.st >/dev/null
try train lm text.txt --epochs 2 --resume --out v.st --log valid.txt # of which the resume point knows
python3 - <<'END'
import struct
head = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
open('foreign.st', 'wb').write(struct.pack('<Q', len(head)) + head + bytes(4))
END
try train lm text.txt "${small[@]}" --out foreign.st # a safetensors file, of somebody else
cmp text.txt kept.txt && cmp note o.st.last && cmp text.txt valid.txt && ls
"$SLUICE" train lm text.txt "${small[@]}" --out p.st --log /dev/stdout | grep -c '"event": "start"'

cp text.txt .b.st.tmp # what is written beside a model, for a while
try train lm .b.st.tmp "${small[@]}" --out b.st
try train lm text.txt "${small[@]}" --out b.st --log .b.st.lock
try train lm text.txt "${small[@]}" --out b.st --log .b.st.last.tmp
cp text.txt .b.log.tmp # of a log there is nothing beside it
"$SLUICE" train lm .b.log.tmp "${small[@]}" --out c.st --log b.log >/dev/null && rm .b.log.tmp b.log c.st c.st.last
cmp text.txt .b.st.tmp && rm .b.st.tmp

echo '--- predict, convert'
cp kept.st m.st
try predict m.st --x text.txt --out m.st
try predict m.st --x text.txt --out ./link.txt
cp m.st m.c
try convert m.c m.c
try convert m.c ./sub/../m.c
cmp m.st kept.st && cmp text.txt kept.txt && cmp m.c kept.st
cp note mine.c
cp note mine.slm
python3 "$TESTS/npy.py" x.npy i4 2x3
try predict m.st --x x.npy --out kept.st # not what is written there
try predict m.st --x x.npy --out note
cp x.npy .z.npy.tmp
try predict m.st --x .z.npy.tmp --out z.npy
cmp x.npy .z.npy.tmp && rm .z.npy.tmp
try predict m.st --x x.npy --out -
try convert m.st mine.c
try convert m.st mine.slm
cmp m.st kept.st && cmp note mine.c && cmp note mine.slm
for again in 1 2; do # what was written so may be written anew
    try predict m.st --x x.npy --out y.npy
    try convert m.st made.c
    try convert m.st made.slm
done

echo '--- results of check'
try check rnn:b1_t1_i1_h1 --jsonl text.txt
echo rnn:b1_t1_i1_h1 >list.txt
cp list.txt lines.jsonl.at.1
try check list.txt --jsonl ./list.txt
try check lines.jsonl.at.1 --jsonl lines.jsonl
try bench rnn:b1_t1_i1_h1 --jsonl text.txt
cmp list.txt lines.jsonl.at.1 && ls lines.jsonl* list.txt
"$SLUICE" check list.txt --jsonl /dev/stdout | grep -c '"case"'
mkfifo pipe
timeout 20 grep -c '"case"' <pipe >lines.txt &
timeout 20 "$SLUICE" check list.txt --jsonl pipe
wait
cat lines.txt
try check rnn:b1_t1_i1_h1 --jsonl /dev/full
try bench rnn:b1_t1_i1_h1 --seconds 0.001 --jsonl /dev/full
cmp text.txt kept.txt

echo '--- what has no end, and what is empty'
try train lm /dev/zero "${small[@]}" --out z.st
try train /dev/zero text.txt --out z.st
try eval m.st /dev/zero
try check /dev/zero
: >none.txt
try check none.txt
echo '# nothing' >comment.txt
try check comment.txt
try check - </dev/null
try check - </dev/zero
try train lm - "${small[@]}" --out z.st </dev/zero
try train lm - "${small[@]}" --valid - --out z.st <text.txt
try eval m.st - - <text.txt
cat text.txt | try train lm /dev/stdin "${small[@]}" --out z.st
cat list.txt | try check /dev/stdin
printf 'rnn:b1_t1_i1_h1\0\n' >zero.txt
try check zero.txt
printf '# three lines\n\nlstm:b1_t2_i3_h4_train+maskout=repeat\n' >bad.txt
try check bad.txt
try check bad.txt --jsonl bad.jsonl
try bench bad.txt --seconds 0.001 --jsonl bad.jsonl
try bench bad.txt
try check - <bad.txt
try check rnn:b1_t1_i1_h1_cat --jsonl bad.jsonl
ls bad.jsonl && wc -c <bad.jsonl
try plan rnn:b1_t1_i1_h1 --require ''
try plan rnn:b1_t1_i1_h1 --device=
try generate m.st --prime '' --length 3
