# make           build: build/sluice, build/libsluice.a, build/libsluice.so, and with nvcc the GPU plug-ins
# make demo      set up, build, train a language model on this project's own text (or TEXT=file), print what it writes
# make check     set up, build, run every test; ends with "N passed, N failed, N skipped"
# make quick     the tests that take less than a minute
# make gpu-pack  what a machine with an NVIDIA GPU needs to check this build, in build/gpu
# make gpu-check every kernel on this machine's NVIDIA GPU against the reference
# make install   [PREFIX=/usr/local] [DESTDIR=...]
# make format    clang-format over the C sources
# make clean
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TEXT ?=
GENERATOR := $(if $(shell command -v ninja 2>/dev/null),Ninja,Unix Makefiles)

.PHONY: all demo check quick gpu-pack gpu-check install format clean
# make's own job server and flags are not for the ninja or make below.
unexport MAKEFLAGS MFLAGS

all:
	@test -e "$(BUILD)/build.ninja" || test -e "$(BUILD)/Makefile" || \
	    cmake --preset release -B "$(BUILD)" -G "$(GENERATOR)"
	@cmake --build "$(BUILD)" --parallel $(JOBS)

demo:
	@tools/setup build
	@BUILD="$(BUILD)" JOBS="$(JOBS)" TEXT="$(TEXT)" tools/demo

check:
	@BUILD="$(BUILD)" tools/setup check
	@BUILD="$(BUILD)" JOBS="$(JOBS)" tools/check

quick:
	@BUILD="$(BUILD)" tools/setup check
	@$(MAKE) --no-print-directory BUILD="$(BUILD)" JOBS="$(JOBS)" all
	@BUILD="$(BUILD)" JOBS="$(JOBS)" tools/check --quick

gpu-pack: all
	@BUILD="$(BUILD)" tools/gpu_pack

gpu-check: all
	@SLUICE="$(BUILD)/sluice" SLUICE_TESTS="$(BUILD)/tests/sluice_tests" tools/gpu_check --out "$(BUILD)/gpu_check"

install: all
	@cmake --install "$(BUILD)" --prefix "$(PREFIX)"

format:
	@tools/format --write

clean:
	@cmake -E rm -rf "$(BUILD)"
