# A model file as a stream model and as a C file; what cannot be converted is told.
. "$TESTS/lib.bash"
make_text 120 >text.txt
"$SLUICE" train lm text.txt "${small[@]}" --out char.model >/dev/null
try convert char.model char.slm
try convert char.model char.c | sed 's/[0-9.]* kB/SIZE/'
head -c 8 char.slm
echo
grep -E '^void|^ +@?[a-z]*_state|^enum' char.c
try convert char.model other.c --name net_2 | sed 's/[0-9.]* kB/SIZE/' # weights differ in their last digits
grep -E '^void' other.c
grep -F '#include "' other.c # its own name it does not know
if command -v cc >/dev/null; then
    cat >main.c <<'END'
#define net_2_DECLARATIONS
#include "other.c"
#include <stdio.h>
int main(void) {
    static net_2_state state;
    float y[net_2_OUTPUTS], sum = 0;
    net_2_reset(&state);
    for (int t = 0; t < 20; t++) net_2_step(&state, t % net_2_VOCABULARY, y);
    for (int k = 0; k < net_2_OUTPUTS; k++) sum += y[k] * y[k];
    puts(sum > 0 && sum < 1e6f ? "runs" : "WRONG");
    return 0;
}
END
    cc -std=c99 -pedantic -Wall -Wextra -Werror -O1 -c other.c && cc -std=c99 -pedantic -Wall -Wextra -Werror main.c other.o -o main && ./main
    nm -u other.o | grep -vE 'mem(cpy|set)$'
else
    echo runs
fi
try convert char.model
try convert char.model char.txt
try convert char.model char.slm --name x
try convert char.model 'x.c' --name 2x
try convert missing.model x.slm
try convert text.txt x.slm
cat >both.json <<'END'
{"class_name": "Sequential", "config": {"layers": [
  {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, null, 3]}},
  {"class_name": "Bidirectional", "config": {"name": "both", "layer": {"class_name": "GRU", "config": {"name": "gru", "units": 4}}}},
  {"class_name": "Dense", "config": {"name": "y", "units": 3}}]}}
END
npy x.npy f4 8x5x3
npy y.npy i4 8
"$SLUICE" train both.json --x x.npy --y y.npy --loss softmax --batch 4 --epochs 1 --out both.model >/dev/null 2>&1 || echo "not trained"
try convert both.model both.c
ls x.slm both.c 2>&1 || true
