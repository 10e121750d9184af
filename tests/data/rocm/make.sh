#!/bin/sh
# Makes the images of sample.hip and named.cl with the compiler of the ziglang wheel.
# CLANG and its linker (Debian's clang-19 and lld-19) make the images in clang19/.
# BUNDLER, clang's offload bundler (clang-tools-19), makes the bundles; it knows zlib, zstd and header version 2.
set -eu
cd "$(dirname "$0")"
PYTHON=${PYTHON:-python3}
CLANG=${CLANG:-clang-19}
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
"$PYTHON" -m ziglang ld.lld -shared named.o -o named.hsaco
chmod 644 named.hsaco
rm named.o

mkdir -p clang19
for target in gfx90a gfx942 gfx1030 gfx1100 gfx1201; do
    for version in 4 5; do
        output=clang19/${target}_v$version.hsaco
        "$CLANG" -x hip --offload-arch=$target -mcode-object-version=$version --cuda-device-only \
            --no-gpu-bundle-output -nogpuinc -nogpulib -O2 sample.hip -o "$output"
        chmod 644 "$output"
    done
done

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
