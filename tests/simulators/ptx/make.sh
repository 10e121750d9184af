#!/bin/sh
# Makes kernels.ptx and counted.ptx; they are kept so that the tests need no CUDA. Made with nvcc 13.0.
set -eu
cd "$(dirname "$0")"
for name in kernels counted; do
    nvcc -ptx -arch=compute_80 -o "$name.ptx" "$name.cu"
done
