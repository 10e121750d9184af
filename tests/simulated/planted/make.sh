#!/bin/sh
# Compiles bugs.cu again; the result is kept so that tests need no nvcc. Made with CUDA 13.0.
set -e
cd "$(dirname "$0")"
nvcc -ptx -arch=compute_75 -o bugs.ptx bugs.cu
sed -i '/^\/\//d' bugs.ptx
