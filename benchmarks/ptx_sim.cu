/* The kernels of ptx_sim.py. Their PTX is kept beside this file: nvcc -ptx -arch=compute_75
   ptx_sim.cu. */
#define ENTRY extern "C" __global__ void

ENTRY neg(unsigned n, const float *x, float *y)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = -x[i];
    }
}

/* Candle's form: a grid-stride loop in each thread. */
ENTRY neg_stride(size_t n, const float *x, float *y)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        y[i] = -x[i];
    }
}

ENTRY add(unsigned n, const float *x, const float *z, float *y)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i] + z[i];
    }
}

ENTRY add_stride(size_t n, const float *x, const float *z, float *y)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        y[i] = x[i] + z[i];
    }
}

ENTRY exponential(unsigned n, const float *x, float *y)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = expf(x[i]);
    }
}

ENTRY exponential_stride(size_t n, const float *x, float *y)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        y[i] = expf(x[i]);
    }
}

ENTRY nothing(float *y)
{
    y[threadIdx.x] = 1.0f;
}
