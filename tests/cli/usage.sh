# Wrong use: exit code 2, one sentence, where to read more.
. "$TESTS/lib.bash"
try
try trian
try frobnicate
try train lm text.txt --bacth 3 --out m
try train lm text.txt --xyzzy --out m
try train lm text.txt -b 3
try train lm text.txt --batch
try train lm text.txt --batch 0 --out m
try train lm text.txt --batch 2.5 --out m
try train lm text.txt --batch many --out m
try train lm text.txt --dropout 1.5 --out m
try train lm text.txt --units 2000000 --out m
try train lm text.txt --batch 3000000000 --out m
try train lm text.txt --lr inf --out m
try train lm text.txt --init-scale 0 --out m
try train lm text.txt --max-minutes 0 --out m
try train lm text.txt --level chars --out m
try train lm text.txt --seed -1 --out m
try train lm text.txt --seed ' -1' --out m
try train lm text.txt --memory-limit 3X --out m
try train lm text.txt --tie=yes --out m
try train lm text.txt
try train lm --out m
try train
try train lm text.txt --x x.npy --out m
try train model.json text.txt --units 3 --out m
try train lm text.txt --resume --init-from other --out m
make_text 50 >text.txt
try train lm text.txt --tie --embed 8 --units 16 --out m
try train lm text.txt --schedule linear --out m
try train lm text.txt --schedule step:10:0.5:3 --out m
try train lm text.txt --schedule step:ten --out m
try train lm text.txt --schedule step:10:0 --out m
try train lm text.txt --schedule step:2.5:0.5 --out m
try train lm text.txt --schedule epoch-decay:1e30:0.5 --out m
try train lm text.txt --schedule exponential:inf:0.5 --out m
try train lm text.txt --schedule cosine:0:0:1e300 --out m
try train lm text.txt --schedule cosine:5:3 --out m
try train lm text.txt --schedule cosine:5:300:0.1 --out m
try train lm text.txt --schedule plateau:1 --out m
try train lm text.txt --clip-norm 1 --clip-value 1 --out m
try train lm --preset char-rnn --units 3 text.txt --out m
try train lm text.txt --no-shuffle --out m
try train lm text.txt --valid text.txt --valid-split 0.1 --out m
try train lm text.txt --init-from other --level word --out m
try train lm text.txt --init-from other --init-scale 0.1 --out m
try train lm text.txt --momentum 0.9 --out m
try train lm text.txt --optimizer adamw --weight-decay 0 --out m
try train lm text.txt --optimizer rmsprop --nesterov --out m
try train lm text.txt --optimizer sgd --nesterov --out m
try train lm text.txt --min-delta 0.1 --out m
try train lm text.txt --patience 1 --min-delta 1e300 --out m
try train lm text.txt --batch 4 --accumulate 3 --out m
try train lm text.txt --accumulate 5 --out m
try train lm text.txt --optimizer sgd --momentum 1 --out m
try train lm text.txt --weight-decay 1e30 --out m
try train lm text.txt --resume --print-model
echo '{"class_name": "Sequential", "config": {"layers": []}}' >model.json
try train model.json --x x.npy --y y.npy --loss mse --steps 3 --out m
try train model.json --x x.npy --y y.npy --loss mse --valid-lengths l.npy --out m
try plan
try plan lstm:h8 gru:h8
try plan lstm:h8 --memory-limit lots
try plan lstm:h8 --memory-limit 0
try plan lstm:h8 --memory-limit 0.9
try eval model
try eval model text.txt --x x.npy --y y.npy
try eval model --x x.npy
try eval model text.txt --lengths l.npy
try eval model text.txt --loss mse
try eval model text.txt --batch 3
try predict model --x x.npy
try generate
try generate model --top-p 1.5
try generate model --temperature nan
try info
try check
try bench
try devices here
ls
