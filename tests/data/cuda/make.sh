#!/bin/sh
# Makes the images of sample.cu with nvcc 13.0. old_*.cubin need PTXAS, a ptxas of CUDA 12.4.
set -eu
cd "$(dirname "$0")"

targets="-gencode arch=compute_75,code=[sm_75,compute_75] -gencode arch=compute_100f,code=sm_100f"
for mode in default size speed balance none; do
    # shellcheck disable=SC2086 # each target is a word
    nvcc --fatbin --compress-mode=$mode $targets sample.cu -o "mode_$mode.fatbin"
done
nvcc --ptx -arch=compute_75 sample.cu -o sm_75.ptx
nvcc --ptx -arch=compute_100f sample.cu -o sm_100f.ptx
for target in 80 90a 100f; do
    nvcc --cubin -arch=sm_$target sample.cu -o sm_$target.cubin
done
nvcc --cubin -rdc=true -arch=sm_80 sample.cu -o relocatable.cubin

if [ -n "${PTXAS:-}" ]; then
    sed 's/^\.version.*/.version 8.4/' sm_75.ptx >old.ptx
    for target in 80 90a; do
        "$PTXAS" -arch=sm_$target old.ptx -o old_sm_$target.cubin
    done
    rm old.ptx
fi
