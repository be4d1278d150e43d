# The first Ctrl-C ends in order, a later one at once; so does a hang-up; a reader that goes away stops it; kill -9 leaves whole
# files.
. "$TESTS/lib.bash"
make_text 400 >text.txt
options=(text.txt --units 64 --layers 1 --batch 4 --steps 8 --epochs 1000 --seed 3)
wait_for_epoch() {
    for _ in $(seq 500); do
        grep -q '^epoch' out.txt && return
        sleep 0.02
    done
}
: >out.txt # it may be read before the shell of the command makes it; what the run before wrote is not this one's
"$SLUICE" train lm "${options[@]}" --out a.model >out.txt &
pid=$!
wait_for_epoch
kill -INT $pid
wait $pid
echo "once: exit $?"
grep -E '^(stopping|stopped)' out.txt | sed -E 's/stopped after .*/stopped/'
"$SLUICE" info a.model.last >/dev/null && echo "a.model.last is whole"
"$SLUICE" eval a.model text.txt --json >/dev/null && echo "a.model is complete"

for signal in TERM HUP; do
    : >out.txt
    "$SLUICE" train lm "${options[@]}" --out $signal.model >out.txt &
    pid=$!
    wait_for_epoch
    kill -$signal $pid
    wait $pid
    echo "$signal: exit $?"
    "$SLUICE" info $signal.model.last >/dev/null && echo "$signal.model.last is whole"
done
: >out.txt
nohup "$SLUICE" train lm "${options[@]}" --max-minutes 0.02 --out nohup.model >out.txt 2>/dev/null &
pid=$!
wait_for_epoch
kill -HUP $pid
wait $pid
echo "nohup: exit $?, $(grep -c '^stopping' out.txt) times told to stop"

# Nobody reads: an error of output, not a signal.
"$SLUICE" generate a.model --length 200000 2>stderr.txt | head -n 1 >/dev/null
echo "generate: exit ${PIPESTATUS[0]}, $(wc -c <stderr.txt) bytes on stderr"
"$SLUICE" train lm "${options[@]}" --epochs 100000 --out d.model 2>stderr.txt | head -n 1 >/dev/null
echo "train: exit ${PIPESTATUS[0]}, $(grep -c '^sluice: nobody reads' stderr.txt) sentence"
"$SLUICE" info d.model.last >/dev/null && echo "d.model.last is whole"

# Two at once, as a shell and a closed terminal send them, are one wish; a second one later is not. They wait while the process is stopped.
: >out.txt
"$SLUICE" train lm "${options[@]}" --out b.model >out.txt &
pid=$!
wait_for_epoch
kill -STOP $pid
kill -HUP $pid
kill -TERM $pid
kill -CONT $pid
wait $pid
echo "two at once: exit $?"
"$SLUICE" info b.model.last >/dev/null && echo "b.model.last is whole"
: >out.txt
make_text 20000 >valid.txt # takes some time
"$SLUICE" train lm "${options[@]}" --valid valid.txt --out e.model >out.txt &
pid=$!
for _ in $(seq 1000); do # until SIGINT is caught
    ((0x$(awk '/^SigCgt/ { print $2 }' /proc/$pid/status) & 2)) && break
    sleep 0.02
done
kill -INT $pid
sleep 0.03 # the handler has looked at the clock
kill -STOP $pid
sleep 1.1
kill -INT $pid
kill -CONT $pid
wait $pid
echo "twice: exit $?"

# At any moment.
for round in 1 2 3 4 5 6; do
    : >out.txt
    "$SLUICE" train lm "${options[@]}" --overwrite --out c.model >out.txt &
    pid=$!
    wait_for_epoch
    sleep 0.$((round * 13 % 10))
    kill -KILL $pid
    wait $pid 2>/dev/null
    for file in c.model c.model.last; do
        [ ! -e $file ] || "$SLUICE" info $file >/dev/null || echo "$file is damaged"
    done
done 2>/dev/null
for _ in 1 2 3; do # a checkpoint exists by now, unless the machine is very slow
    [ -e c.model.last ] && break
    timeout -s KILL 5 "$SLUICE" train lm "${options[@]}" --overwrite --out c.model >/dev/null
done 2>/dev/null
"$SLUICE" eval c.model text.txt --json >/dev/null && echo "after kill -9: complete"
"$SLUICE" train lm "${options[@]}" --epochs 1 --resume --out c.model | sed 's/do: .*/do/'
