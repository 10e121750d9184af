/* Kernels that NVRTC and clang translate to PTX for the tests (make.py). They include no header, so
 * that neither compiler needs CUDA. */
#ifdef __clang__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define THREAD_X __nvvm_read_ptx_sreg_tid_x()
#define THREAD_Y __nvvm_read_ptx_sreg_tid_y()
#define BLOCK_X __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_Y __nvvm_read_ptx_sreg_ctaid_y()
#define THREADS_X __nvvm_read_ptx_sreg_ntid_x()
#define BLOCKS_X __nvvm_read_ptx_sreg_nctaid_x()
#define SHUFFLE_XOR(value, lanes) __nvvm_shfl_sync_bfly_f32(0xFFFFFFFF, value, lanes, 31)
#define SHUFFLE_DOWN(value, lanes) __nvvm_shfl_sync_down_f32(0xFFFFFFFF, value, lanes, 31)
#define ATOMIC_ADD(where, value) __nvvm_atom_add_gen_f(where, value)
#define EXP2(value) __nvvm_ex2_approx_f(value)
#define MAXIMUM(a, b) __nvvm_fmax_f(a, b)
#define RECIPROCAL_ROOT(value) __nvvm_rsqrt_approx_f(value)
#else
#define THREAD_X threadIdx.x
#define THREAD_Y threadIdx.y
#define BLOCK_X blockIdx.x
#define BLOCK_Y blockIdx.y
#define THREADS_X blockDim.x
#define BLOCKS_X gridDim.x
#define SHUFFLE_XOR(value, lanes) __shfl_xor_sync(0xFFFFFFFF, value, lanes)
#define SHUFFLE_DOWN(value, lanes) __shfl_down_sync(0xFFFFFFFF, value, lanes)
#define ATOMIC_ADD(where, value) atomicAdd(where, value)
#define EXP2(value) exp2f(value)
#define MAXIMUM(a, b) fmaxf(a, b)
#define RECIPROCAL_ROOT(value) rsqrtf(value)
#endif
#define ENTRY extern "C" __global__ void

/* y[row] = the sum of a row; a tree in shared memory, 256 threads. */
ENTRY row_sum(const float *x, float *y, int columns)
{
    __shared__ float part[256];
    float sum = 0;
    for (int column = THREAD_X; column < columns; column += THREADS_X) {
        sum += x[(long long)BLOCK_X * columns + column];
    }
    part[THREAD_X] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (THREAD_X < half) {
            part[THREAD_X] += part[THREAD_X + half];
        }
        __syncthreads();
    }
    if (THREAD_X == 0) {
        y[BLOCK_X] = part[0];
    }
}

template <typename Combine> __device__ static float over_block(float value, Combine combine)
{
    __shared__ float of_warps[8];
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        value = combine(value, SHUFFLE_XOR(value, lanes));
    }
    if (THREAD_X % 32 == 0) {
        of_warps[THREAD_X / 32] = value;
    }
    __syncthreads();
    value = of_warps[0];
    for (int warp = 1; warp < 8; ++warp) {
        value = combine(value, of_warps[warp]);
    }
    __syncthreads();
    return value;
}

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};
struct Maximum {
    __device__ float operator()(float a, float b) const { return MAXIMUM(a, b); }
};

/* Softmax of rows: warps by shuffling, the block through shared memory, 256 threads. */
ENTRY softmax(const float *x, float *y, int columns)
{
    const float *row = x + (long long)BLOCK_X * columns;
    float largest = -3e38f;
    for (int column = THREAD_X; column < columns; column += THREADS_X) {
        largest = MAXIMUM(largest, row[column]);
    }
    largest = over_block(largest, Maximum());
    float sum = 0;
    for (int column = THREAD_X; column < columns; column += THREADS_X) {
        sum += EXP2((row[column] - largest) * 1.44269504f);
    }
    sum = over_block(sum, Sum());
    for (int column = THREAD_X; column < columns; column += THREADS_X) {
        y[(long long)BLOCK_X * columns + column] = EXP2((row[column] - largest) * 1.44269504f) / sum;
    }
}

/* y = x transposed, through a tile without bank conflicts; blocks of 16 by 16. */
ENTRY transpose(const double *x, double *y, int rows, int columns)
{
    __shared__ double tile[16][17];
    int row = BLOCK_Y * 16 + THREAD_Y;
    int column = BLOCK_X * 16 + THREAD_X;
    if (row < rows && column < columns) {
        tile[THREAD_Y][THREAD_X] = x[row * columns + column];
    }
    __syncthreads();
    row = BLOCK_X * 16 + THREAD_Y;
    column = BLOCK_Y * 16 + THREAD_X;
    if (row < columns && column < rows) {
        y[row * rows + column] = tile[THREAD_X][THREAD_Y];
    }
}

struct __attribute__((aligned(16))) four {
    float a, b, c, d;
};

/* *y += x · z, four elements at once. */
ENTRY dot(const four *x, const four *z, float *y, unsigned n)
{
    float sum = 0;
    for (unsigned i = BLOCK_X * THREADS_X + THREAD_X; i < n; i += THREADS_X * BLOCKS_X) {
        const four p = x[i];
        const four q = z[i];
        sum += p.a * q.a + p.b * q.b + p.c * q.c + p.d * q.d;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        sum += SHUFFLE_DOWN(sum, lanes);
    }
    if (THREAD_X % 32 == 0) {
        ATOMIC_ADD(y, sum);
    }
}

/* y[i] = how often each of the digits of x[i] appears, as a base 32 number; local memory. */
ENTRY digits(const unsigned long long *x, unsigned long long *y, int n)
{
    const int i = BLOCK_X * THREADS_X + THREAD_X;
    if (i >= n) {
        return;
    }
    unsigned char counts[10] = {0};
    for (unsigned long long rest = x[i]; rest != 0; rest /= 10) {
        ++counts[rest % 10];
    }
    unsigned long long packed = 0;
    for (int digit = 0; digit < 10; ++digit) {
        packed = packed << 5 | counts[digit];
    }
    y[i] = packed;
}

/* Normalizes rows to mean 0 and variance 1, 256 threads; also has a switch and 64-bit floats. */
ENTRY normalize(const float *x, float *y, int columns, int kind)
{
    double sum = 0;
    for (int column = THREAD_X; column < columns; column += THREADS_X) {
        sum += x[(long long)BLOCK_X * columns + column];
    }
    const float mean = over_block((float)sum, Sum()) / columns;
    float squares = 0;
    for (int column = THREAD_X; column < columns; column += THREADS_X) {
        const float away = x[(long long)BLOCK_X * columns + column] - mean;
        squares += away * away;
    }
    const float scale = RECIPROCAL_ROOT(over_block(squares, Sum()) / columns + 1e-5f);
    for (int column = THREAD_X; column < columns; column += THREADS_X) {
        float value = (x[(long long)BLOCK_X * columns + column] - mean) * scale;
        switch (kind) {
        case 0:
            break;
        case 1:
            value = value > 0 ? value : 0;
            break;
        case 2:
            value = value * value;
            break;
        case 3:
            value = -value;
            break;
        case 4:
            value = (float)(int)value;
            break;
        default:
            value = 0;
        }
        y[(long long)BLOCK_X * columns + column] = value;
    }
}
