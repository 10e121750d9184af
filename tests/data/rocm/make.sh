#!/bin/sh
# Makes the images of sample.hip and named.cl with the compiler of the ziglang wheel, and the bundles with
# BUNDLER, clang's offload bundler (clang-tools-19), which knows zlib, zstd and header version 2.
set -eu
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python3}
BUNDLER=${BUNDLER:-clang-offload-bundler-19}

build() { # target, code object version, output
    PYTHONPATH=../../.. "$PYTHON" -m build_support.hip_compiler "$1" "$2" sample.hip "$3"
}

build gfx90a 4 gfx90a.hsaco
build gfx90a:sramecc+:xnack- 5 gfx90a_pinned.hsaco
build gfx1100 5 gfx1100.hsaco
build gfx11-generic 6 gfx11_generic.hsaco

"$PYTHON" -m ziglang clang --target=amdgcn-amd-amdhsa -mcpu=gfx1030 -mcode-object-version=5 \
    -nogpulib -cl-no-stdinc -cl-std=CL1.2 -O2 -c -x cl named.cl -o named.o
"$PYTHON" -m ziglang ld.lld -shared --strip-all named.o -o named.hsaco
rm named.o

id=hipv4-amdgcn-amd-amdhsa-
targets=host-x86_64-unknown-linux-gnu,$id-gfx90a:sramecc+:xnack-,$id-gfx1100,$id-gfx11-generic
bundle() { # output, options
    output=$1
    shift
    "$BUNDLER" --type=o --targets=$targets --input=/dev/null --input=gfx90a_pinned.hsaco \
        --input=gfx1100.hsaco --input=gfx11_generic.hsaco --output="$output" "$@"
}
bundle plain.hipfb
bundle zstd.hipfb --compress
