# Which device a plan is made for where there is a GPU (a plug-in whose GPU is host memory, tests/cuda), and what it says.
. "$TESTS/lib.bash"
fakes=$(dirname "$SLUICE")/tests/cuda
unset CUDA_VISIBLE_DEVICES
export LD_LIBRARY_PATH=$fakes/driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} SLUICE_PLUGIN_PATH=$PWD/plugins
mkdir plugins
cp "$fakes/plugin/libsluice_cuda.so" plugins/
cp "$fakes/driver/libcuda.so.1" plugins/libsluice_cudnn.so # not one: this build's own may be there, and wants a real GPU
heads() { grep -E '^(plan|device):|graph|which the GPU has free|^exit|^sluice:' | sed 's/, own matrix products.*//'; }
problem=lstm:b3_t5_i4_h8
echo "the first GPU:"
try plan $problem | heads
try plan $problem --device cuda --no-graph | heads
SLUICE_STUB_DRIVER=devices=2 SLUICE_FAKE_LOST=0 try plan $problem | heads
echo "the CPU:"
try plan ${problem}_f64 --threads 1 | heads
try plan $problem --threads 1 --require ref | heads
try plan $problem --threads 1 --require cpu: | heads
SLUICE_FAKE_SM=75 try plan $problem --threads 1 | heads
echo "without a compiler:"
try plan $problem --device cuda --require cuda:cluster | grep -o 'rnn1 .* cuda:cluster' | tr -s ' '
try plan lstm:b3_t5_i4_h600 --device cuda --require cuda:cluster | heads
echo "what a row needs cannot be had:"
rows() { grep -E '^  rnn1|refused cuda:cluster|^exit|^sluice:' | sed -E 's/ +[0-9.]+ kFLOP.*//; s/cudnn:.*(cuda:cluster: its)/\1/; s/; cuda:grid.*//' | tr -s ' '; }
SLUICE_FAKE_UNREADY=1 try plan $problem --device cuda | rows
SLUICE_FAKE_UNREADY=1 try plan $problem --device cuda --require cuda:cluster | rows
SLUICE_FAKE_UNREADY=1 try plan $problem --device cuda:sm_90 | rows
SLUICE_FAKE_UNREADY=-1 try plan $problem --device cuda | rows
echo "free memory is the limit:"
# What the kernels of a build need is not this test's matter.
needs() { heads | sed -E 's/(needs|limit of) [0-9.]+ .B( \([0-9]+ bytes\))?/\1 SOME/g; s/(about|in) [0-9]+/\1 SOME/g'; }
try plan lstm:b4096_t4096_i1024_h1024_train | needs
try plan lstm:b512_t64_i64_h64_train --memory-limit 16M | needs
