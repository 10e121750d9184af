// Kernels with one bug each, for the simulated driver to catch; make.sh compiles them to bugs.ptx.
#include <cassert>
#include <cstdio>

extern "C" {

// Each thread reads its mirror thread's element without a barrier after the write.
__global__ void missing_barrier(const float *x, float *y)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[255 - threadIdx.x];
}

// The same kernel with the barrier.
__global__ void with_barrier(const float *x, float *y)
{
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[255 - threadIdx.x];
}

// Writes elements 1 to n of n.
__global__ void store_past_end(float *y)
{
    y[blockIdx.x * blockDim.x + threadIdx.x + 1] = 1.0f;
}

// Four floats at a time, from an element that need not be a multiple of four.
__global__ void vector_load(const float *x, float4 *y, int first)
{
    y[threadIdx.x] = *(const float4 *)(x + first + 4 * threadIdx.x);
}

// Every thread adds to the same word of shared memory, without an atomic operation.
__global__ void shared_race(unsigned *y)
{
    __shared__ unsigned count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    count += threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0)
        *y = count;
}

// Reads a tile whose second half was never written.
__global__ void uninitialized(float *y)
{
    __shared__ float tile[64];
    if (threadIdx.x < 32)
        tile[threadIdx.x] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}

__global__ void endless_loop(const unsigned *flag, unsigned *y)
{
    while (*(const volatile unsigned *)flag == 0) {
    }
    *y = 1;
}

// The two halves of a warp wait at different barrier instructions.
__global__ void divergent_barrier(unsigned *y)
{
    if (threadIdx.x % 32 < 16) {
        asm volatile("bar.sync 0;" ::: "memory");
        y[threadIdx.x] = 1;
    } else {
        asm volatile("bar.sync 0;" ::: "memory");
        y[threadIdx.x] = 2;
    }
}

// Waits for 64 threads in a block of 32.
__global__ void deadlock(unsigned *y)
{
    asm volatile("bar.sync 1, 64;" ::: "memory");
    y[threadIdx.x] = 1;
}

__global__ void copy(const float *x, float *y)
{
    y[threadIdx.x] = x[threadIdx.x];
}

__global__ void stops(unsigned *y)
{
    if (threadIdx.x == 5)
        __trap();
    y[threadIdx.x] = 1;
}

__global__ void asserts(const unsigned *x, unsigned *y)
{
    assert(x[threadIdx.x] < 7);
    y[threadIdx.x] = 1;
}

__global__ void prints(unsigned count)
{
    for (unsigned i = 0; i < count; ++i)
        printf("thread %u of block %d: %s %.2f %c %%\n", threadIdx.x, (int)blockIdx.x, "text",
               1.5 * i, 'c');
}

__constant__ float factors[4] = {1.0f, 2.0f, 3.0f, 4.0f};

// A constant is memory that kernels must not write.
__global__ void writes_constant(float *y)
{
    asm volatile("st.f32 [%0], 0f00000000;" ::"l"(factors + threadIdx.x) : "memory");
    y[threadIdx.x] = factors[threadIdx.x];
}
}
