#!/bin/sh
# Makes kernels.ptx; it is kept so that the tests need no CUDA. Made with nvcc 13.0.
set -eu
cd "$(dirname "$0")"
nvcc -ptx -arch=compute_80 -o kernels.ptx kernels.cu
