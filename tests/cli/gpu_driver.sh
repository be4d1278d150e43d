# Drivers that cannot be used, by a stub libcuda.so.1 (tests/cuda): one sentence, exit code 7.
. "$TESTS/lib.bash"
fakes=$(dirname "$SLUICE")/tests/cuda
unset CUDA_VISIBLE_DEVICES SLUICE_PLUGIN_PATH
export LD_LIBRARY_PATH=$fakes/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
make_text 120 >text.txt
driver() {
    echo "driver $1:"
    SLUICE_STUB_DRIVER=$1 "$SLUICE" devices | awk '/^cuda/'
}
driver version=12020
driver version=13000,init=100
driver init=34
driver init=46
driver init=802
driver init=803
driver init=804
driver init=999
driver devices=0
driver count=999
CUDA_VISIBLE_DEVICES=7 driver init=100
echo "training:"
"$SLUICE" train lm text.txt "${small[@]}" --device cpu --out m.model >/dev/null
cp m.model a.model
cp m.model.last a.model.last
for stub in version=12020 init=999; do
    SLUICE_STUB_DRIVER=$stub sluice train lm text.txt "${small[@]}" --epochs 3 --resume --out m.model --device cuda:0 |
        grep -vE '^(data|plan|memory)'
done
SLUICE_STUB_DRIVER=init=999 sluice eval m.model text.txt --device cuda:0
same m.model a.model
same m.model.last a.model.last
echo "auto takes the CPU:"
SLUICE_STUB_DRIVER=init=999 "$SLUICE" plan lstm:b1_t1_i1_h8 --json |
    python3 -c 'import json, sys; plan = json.load(sys.stdin); print(plan["device"], plan["notes"])'
SLUICE_STUB_DRIVER=init=999 "$SLUICE" train lm text.txt "${small[@]}" --out auto.model | grep '^note'
echo "hidden by the user:"
CUDA_VISIBLE_DEVICES= SLUICE_STUB_DRIVER=init=100 "$SLUICE" plan lstm:b1_t1_i1_h8 --json |
    python3 -c 'import json, sys; plan = json.load(sys.stdin); print(plan["device"], plan["notes"])'
