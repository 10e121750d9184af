// Kernels as a CUDA programmer writes them: blocks, warps, atomics, divergence, calls, memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <stdio.h>

#define ENTRY extern "C" __global__ void
#define FULL 0xffffffffu

// Sums of 256 values each through shared memory and shuffles.
ENTRY block_sum(const float *x, float *sums, int n)
{
    __shared__ float partial[8];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = i < n ? x[i] : 0.0f;
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_down_sync(FULL, value, offset);
    if (threadIdx.x % 32 == 0)
        partial[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x < 8) {
        value = partial[threadIdx.x];
        for (int offset = 4; offset > 0; offset /= 2)
            value += __shfl_xor_sync(0xff, value, offset);
        if (threadIdx.x == 0)
            sums[blockIdx.x] = value;
    }
}

// An inclusive scan over a block in dynamic shared memory, double-buffered.
ENTRY scan(const int *x, int *y)
{
    extern __shared__ int buffer[];
    const int n = blockDim.x, t = threadIdx.x;
    int from = 0;
    buffer[t] = x[t];
    __syncthreads();
    for (int step = 1; step < n; step *= 2) {
        const int to = 1 - from;
        buffer[to * n + t] = buffer[from * n + t] + (t >= step ? buffer[from * n + t - step] : 0);
        from = to;
        __syncthreads();
    }
    y[t] = buffer[from * n + t];
}

ENTRY histogram(const uint8_t *x, unsigned *bins, int n)
{
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[x[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        atomicAdd(&bins[i], local[i]);
}

// Every atomic operation, each on one word.
ENTRY atomics(int *w, unsigned *u, unsigned long long *l, float *f, double *d, __half2 *h)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&w[0], t);
    atomicSub(&w[1], t);
    atomicMin(&w[2], 50 - t);
    atomicMax(&w[3], t - 50);
    atomicAnd(&w[4], ~(1 << (t & 31)));
    atomicOr(&w[5], 1 << (t & 15));
    atomicXor(&w[6], t);
    atomicInc(&u[0], 6);
    atomicDec(&u[1], 6);
    atomicMax(&u[2], (unsigned)t * 3000000000u);
    atomicAdd(&l[0], (unsigned long long)t << 32);
    atomicMin(&l[1], (unsigned long long)(1000 - t));
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    atomicAdd(h, __floats2half2_rn(1.0f, 2.0f));
    unsigned seen = u[3], next;
    do {
        next = seen;
        seen = atomicCAS(&u[3], next, next * 2 + 1 > 1000000 ? next : next + t);
    } while (seen != next);
}

// A lock that one thread of a block holds at a time; threads of one warp compete for it.
ENTRY lock(int *mutex, volatile int *count)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(mutex, 0, 1) == 0) {
            *count = *count + 1;
            __threadfence();
            atomicExch(mutex, 0);
            done = true;
        }
    }
}

// One thread waits for a word that another thread of its warp writes: both must get their turns.
ENTRY handshake(volatile int *flag, int *out)
{
    if (threadIdx.x == 0) {
        while (*flag == 0) {
        }
        out[0] = *flag;
    } else if (threadIdx.x == 1) {
        *flag = 42;
    }
    __syncthreads();
    out[1 + threadIdx.x] = *flag;
}

// Threads leave a loop at different times and meet again.
ENTRY collatz(const unsigned *x, unsigned *steps)
{
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long value = x[t];
    unsigned count = 0;
    while (value != 1) {
        value = value % 2 ? 3 * value + 1 : value / 2;
        ++count;
    }
    steps[t] = __reduce_max_sync(FULL, count);
}

ENTRY warps(const unsigned *x, unsigned *out)
{
    const int t = threadIdx.x;
    unsigned *mine = out + 12 * t;
    mine[0] = __ballot_sync(FULL, x[t] & 1);
    mine[1] = __any_sync(FULL, x[t] == 7) + 2 * __all_sync(FULL, x[t] < 100);
    mine[2] = __match_any_sync(FULL, x[t]);
    int same;
    mine[3] = __match_all_sync(FULL, x[t], &same);
    mine[4] = same;
    mine[5] = __reduce_add_sync(FULL, x[t]);
    mine[6] = __reduce_min_sync(FULL, (int)x[t] - 50);
    mine[7] = __shfl_sync(FULL, x[t], x[t], 8);
    mine[8] = __shfl_up_sync(FULL, x[t], 3, 16);
    if (x[t] & 1) {
        mine[9] = __activemask();
        mine[10] = __popc(__ballot_sync(__activemask(), x[t] > 20));
    }
    __syncwarp();
    mine[11] = __syncthreads_count(x[t] & 1) * 4 + __syncthreads_or(x[t] == 7) * 2 + __syncthreads_and(x[t] < 100);
}

__device__ __noinline__ double power(double base, int exponent)
{
    return exponent == 0 ? 1.0 : base * power(base, exponent - 1);
}

__device__ __noinline__ float block_broadcast(float value)
{
    __shared__ float held;
    if (threadIdx.x == 3)
        held = value;
    __syncthreads();
    const float result = held;
    __syncthreads();
    return result;
}

__device__ int counters[4] = {1, 2, 3, 4};
__constant__ float weights[3] = {0.5f, -2.0f, 8.0f};
__device__ const char *const words[2] = {"one", "three"};

ENTRY calls(const double *x, double *y)
{
    const int t = threadIdx.x;
    int local[16];
    for (int i = 0; i < 16; ++i)
        local[(i * 7 + t) % 16] = i;
    y[t] = power(x[t], t % 6) + block_broadcast((float)x[t]) + block_broadcast(weights[t % 3]) +
           local[(t * 3) % 16];
    counters[t % 4] += t < 4 ? t : 0;
    const char *word = words[t % 2];
    int length = 0;
    while (word[length])
        ++length;
    y[blockDim.x + t] = length;
}

ENTRY vectors(const float4 *x, double2 *y, const uchar4 *b, ushort2 *s)
{
    const int t = threadIdx.x;
    const float4 v = x[t];
    y[t] = make_double2(v.x + v.y, v.z * v.w);
    s[t] = make_ushort2(b[t].x + b[t].y, b[t].z * b[t].w);
}

ENTRY halves(const __half *a, const __nv_bfloat16 *b, __half *c, __nv_bfloat16 *d, float *e)
{
    const int t = threadIdx.x;
    c[t] = __hfma(a[t], a[t], __float2half(0.5f)) + hexp(a[t]);
    d[t] = __hadd(b[t], __float2bfloat16(1.5f)) * b[t];
    e[t] = __half2float(a[t]) * __bfloat162float(b[t]);
}

ENTRY mathematics(const float *x, float *y, const double *p, double *q)
{
    const int t = threadIdx.x;
    y[8 * t] = expf(x[t]);
    y[8 * t + 1] = logf(fabsf(x[t]));
    y[8 * t + 2] = sinf(x[t]);
    y[8 * t + 3] = tanhf(x[t]);
    y[8 * t + 4] = erff(x[t]);
    y[8 * t + 5] = powf(fabsf(x[t]), 1.7f);
    y[8 * t + 6] = rsqrtf(fabsf(x[t]));
    y[8 * t + 7] = fmodf(x[t], 0.7f);
    q[4 * t] = exp(p[t]);
    q[4 * t + 1] = log(fabs(p[t]));
    q[4 * t + 2] = cos(p[t]);
    q[4 * t + 3] = p[t] / (1.0 + p[t] * p[t]);
}

// 16 x 8 = 16 x 16 times 16 x 8, by one warp's tensor instruction.
ENTRY tensor(const __half *a, const __half *b, float *c)
{
    __shared__ __align__(16) __half tile[16 * 16];
    const int lane = threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
    for (int i = lane; i < 256; i += 32)
        tile[i] = a[i];
    __syncwarp();
    unsigned fa[4], fb[2];
    const unsigned row = (unsigned)__cvta_generic_to_shared(tile + lane % 16 * 16 + lane / 16 * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3]) : "r"(row));
    for (int half = 0; half < 2; ++half) {
        const __half2 v = __halves2half2(b[(pair + 8 * half) * 8 + group],
                                         b[(pair + 1 + 8 * half) * 8 + group]);
        fb[half] = *(const unsigned *)&v;
    }
    float d[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
    for (int i = 0; i < 4; ++i)
        c[(group + i / 2 * 8) * 8 + pair + i % 2] = d[i];
}

ENTRY say(const float *x)
{
    printf("%d %5.2f %s %llu %c%%\n", (int)threadIdx.x, x[threadIdx.x], "word", 1ull << 40, 'z');
}

ENTRY choose(const int *x, int *y)
{
    const int t = threadIdx.x;
    switch (x[t]) {
    case 0: y[t] = 10; break;
    case 1: y[t] = x[t + 1] * 3; break;
    case 2: y[t] = x[t] - x[t + 2]; break;
    case 3: y[t] = 77; break;
    case 4: y[t] = x[t + 1] ^ 5; break;
    case 5: y[t] = -x[t + 1]; break;
    case 6: y[t] = x[t + 3] << 2; break;
    default: y[t] = -1;
    }
}

// -- what a device punishes -----------------------------------------------------------------------

ENTRY missing_barrier(const int *x, int *y)
{
    __shared__ int piece[256];
    piece[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = piece[255 - threadIdx.x];
}

ENTRY endless(volatile int *x)
{
    while (*x == 0) {
    }
}

ENTRY endless_quietly(int *x)
{
    for (unsigned i = 1; i != 0; i += 2)
        asm volatile("");
    x[0] = 1;
}

ENTRY divergent_barrier(int *x)
{
    if (threadIdx.x % 2)
        __syncthreads();
    else
        x[threadIdx.x] = __shfl_sync(0x55555555, x[threadIdx.x], 0);
    asm volatile("bar.sync 1;");
}

ENTRY lonely_shuffle(int *x)
{
    if (threadIdx.x < 16)
        x[threadIdx.x] = __shfl_sync(FULL, x[threadIdx.x], 0);
    else
        __syncthreads();
}

ENTRY wild_store(int *x)
{
    x[1ull << 45] = 1;
}

ENTRY stopped(int *x)
{
    if (x[threadIdx.x] == 3)
        __trap();
}
