/* Mistakes whose lines in this file are known from PTX made with -lineinfo. */
#include "lines.h"

extern "C" __global__ void past_the_end(float *y, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float value = 2.0f * i;
    y[i + n] = value; // line 8
}

extern "C" __global__ void in_a_helper(const int *x, int *y, int n)
{
    y[threadIdx.x] = shifted(x, threadIdx.x, n);
}

extern "C" __global__ void trapped(int *y)
{
    if (threadIdx.x == 7) {
        __trap(); // line 19
    }
    y[threadIdx.x] = 1;
}
