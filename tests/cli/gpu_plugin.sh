# What libsluice does with a GPU, by a plug-in whose GPU is host memory and whose kernels compute nothing (tests/cuda).
. "$TESTS/lib.bash"
fakes=$(dirname "$SLUICE")/tests/cuda
unset CUDA_VISIBLE_DEVICES
export LD_LIBRARY_PATH=$fakes/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SLUICE_PLUGIN_PATH=$PWD/plugins
mkdir plugins
cp "$fakes/plugin/libsluice_cuda.so" plugins/
cp "$fakes/driver/libcuda.so.1" plugins/libsluice_cudnn.so # not one: this build's own may be there, and wants a real GPU
own() { sed -e "s|$fakes|FAKES|g" -e "s|$PWD/||g"; }
devices() { "$SLUICE" devices | awk '/^cuda/' | own; }
echo "devices:"
SLUICE_STUB_DRIVER=devices=3 devices
SLUICE_FAKE_SM=75 devices
SLUICE_PLUGIN_PATH=$fakes/other_version devices
mkdir broken empty
echo "no library" >broken/libsluice_cuda.so
SLUICE_PLUGIN_PATH=broken devices | sed 's/open: .*/open: .../'
cp "$fakes/driver/libcuda.so.1" broken/libsluice_cuda.so
SLUICE_PLUGIN_PATH=empty:broken devices
echo "names:"
for name in cuda:7 cuda:x cuda:-1 cuda:sm_75 cuda:sm_91; do try plan lstm:b1_t1_i1_h8 --device $name; done
SLUICE_FAKE_SM=75 try plan lstm:b1_t1_i1_h8 --device cuda

echo "training:"
make_text 120 >text.txt
gpu=(text.txt "${small[@]}" --device cuda:0 --require cuda:step) # which memory it takes is known
sluice train lm "${gpu[@]}" --out m.model | grep -E '^(exit|plan|sluice)'
"$SLUICE" info m.model.last >/dev/null && echo "m.model.last is whole"
cp m.model a.model
cp m.model.last a.model.last
echo "memory runs out:"
SLUICE_FAKE_MEMORY=20000 sluice train lm "${gpu[@]}" --epochs 4 --resume --out m.model | grep -E '^(exit|sluice)'
same m.model a.model
same m.model.last a.model.last
echo "the GPU falls off, earlier and later:"
for works in 0 3 20 120; do
    SLUICE_FAKE_WORKS=$works sluice train lm "${gpu[@]}" --epochs 400 --resume --out m.model | grep -E '^(exit|sluice)'
    "$SLUICE" info m.model >/dev/null && "$SLUICE" info m.model.last >/dev/null && echo "both files are whole"
done
echo "goes on, on the CPU:"
epoch=$("$SLUICE" info m.model.last --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["training"]["epoch"])')
sluice train lm text.txt "${small[@]}" --epochs $((epoch + 1)) --resume --out m.model --device cpu |
    grep -cE "^(exit|epoch $((epoch + 1))/.* valid loss)"
"$SLUICE" eval m.model text.txt --device cpu >/dev/null && echo "m.model is complete"
echo "in another precision:"
for dtype in bf16 f16; do
    "$SLUICE" train lm "${gpu[@]}" --dtype $dtype --epochs 1 --overwrite --out d.model >/dev/null
    sluice train lm text.txt --epochs 2 --resume --out d.model --device cpu |
        grep -E '^(exit|note|done|sluice)' | without_times | cut -c 1-96
    sluice train lm text.txt --epochs 2 --resume --out d.model --device cpu --dtype f64
    sluice train lm text.txt --epochs 2 --resume --out d.model --device cpu --dtype f32 | grep -cE '^(exit|epoch 2/.* valid loss)'
    sluice train lm text.txt --epochs 3 --resume --out d.model --device cuda:0 --dtype $dtype | grep -cE '^(exit|epoch 3/.* valid loss)'
done
ls
