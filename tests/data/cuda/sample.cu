// Kernels whose parameters exercise the readers. make.sh compiles this file to the images beside it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Pair {
    int first[3];
    double second;
};

struct Bytes {
    unsigned char bytes[3];
};

extern "C" __global__ void __launch_bounds__(1024)
    saxpy(unsigned long long n, float a, const float *x, float *y)
{
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x)
        y[i] = a * x[i] + y[i];
}

extern "C" __global__ void __launch_bounds__(256)
    mixed(long long scale, const long *shape, Pair pair, Bytes bytes, bool flag, __half h,
          __nv_bfloat16 g, double d, unsigned short s, void **table)
{
    __shared__ float tile[32][33];
    tile[threadIdx.x % 32][0] = (float)h + (float)g;
    __syncthreads();
    ((double *)table[flag])[0] =
        shape[0] * d * scale + pair.first[1] + pair.second + bytes.bytes[2] + s + tile[0][0];
}

extern "C" __global__ void nothing() {}

extern "C" __global__ void indexed(const char *x, unsigned long long offset, char *y, int *counter)
{
    atomicAdd(counter, 1);
    y[offset] = x[offset];
}

extern "C" __global__ void unused(float *never, long long n, int *out)
{
    out[0] = n > 5;
}
