/* Products of one warp's fragments in every shape and type of wmma; D = A B + C. */
#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;

template <int M, int N, int K, class Element, class Storage, class Sum, class LayoutA, class LayoutB>
__device__ void product(const Storage *a, const Storage *b, const Sum *c, Sum *d, int a_stride,
                        int b_stride, int c_stride, wmma::layout_t in, wmma::layout_t out)
{
    wmma::fragment<wmma::matrix_a, M, N, K, Element, LayoutA> left;
    wmma::fragment<wmma::matrix_b, M, N, K, Element, LayoutB> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::load_matrix_sync(left, a, a_stride);
    wmma::load_matrix_sync(right, b, b_stride);
    wmma::load_matrix_sync(sum, c, c_stride, in);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(d, sum, c_stride, out);
}

#define PRODUCT(name, M, N, K, Element, Storage, Sum, LayoutA, LayoutB, in, out)                   \
    extern "C" __global__ void name(const Storage *a, const Storage *b, const Sum *c, Sum *d,      \
                                    int a_stride, int b_stride, int c_stride)                      \
    {                                                                                              \
        product<M, N, K, Element, Storage, Sum, wmma::LayoutA, wmma::LayoutB>(                     \
            a, b, c, d, a_stride, b_stride, c_stride, wmma::in, wmma::out);                        \
    }
#define SHAPES(type, Element, Storage, Sum)                                                        \
    PRODUCT(type##_16_16_16_row_col_row, 16, 16, 16, Element, Storage, Sum, row_major, col_major,  \
            mem_row_major, mem_row_major)                                                          \
    PRODUCT(type##_16_16_16_col_row_col, 16, 16, 16, Element, Storage, Sum, col_major, row_major,  \
            mem_col_major, mem_col_major)                                                          \
    PRODUCT(type##_8_32_16_row_row_row, 8, 32, 16, Element, Storage, Sum, row_major, row_major,    \
            mem_row_major, mem_row_major)                                                          \
    PRODUCT(type##_32_8_16_col_col_col, 32, 8, 16, Element, Storage, Sum, col_major, col_major,    \
            mem_col_major, mem_col_major)

SHAPES(f16_f32, half, half, float)
SHAPES(f16_f16, half, half, half)
SHAPES(s8_s32, signed char, signed char, int)
SHAPES(u8_s32, unsigned char, unsigned char, int)

namespace narrow = wmma::experimental;
#define NARROW(type, K, Element, Storage)                                                          \
    PRODUCT(type##_s32_8_8_##K##_row_col_row, 8, 8, K, narrow::precision::Element, Storage, int,   \
            row_major, col_major, mem_row_major, mem_row_major)
NARROW(s4, 32, s4, int)
NARROW(u4, 32, u4, unsigned)

template <narrow::bmmaBitOp Operation>
__device__ void bits(const unsigned *a, const unsigned *b, const int *c, int *d, int a_stride,
                     int b_stride, int c_stride)
{
    wmma::fragment<wmma::matrix_a, 8, 8, 128, narrow::precision::b1, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 8, 8, 128, narrow::precision::b1, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 8, 8, 128, int> sum;
    wmma::load_matrix_sync(left, a, a_stride);
    wmma::load_matrix_sync(right, b, b_stride);
    wmma::load_matrix_sync(sum, c, c_stride, wmma::mem_col_major);
    wmma::bmma_sync(sum, left, right, sum, Operation);
    wmma::store_matrix_sync(d, sum, c_stride, wmma::mem_col_major);
}
extern "C" __global__ void b1_xor(const unsigned *a, const unsigned *b, const int *c, int *d,
                                  int a_stride, int b_stride, int c_stride)
{
    bits<narrow::bmmaBitOpXOR>(a, b, c, d, a_stride, b_stride, c_stride);
}

#if __CUDA_ARCH__ >= 800
extern "C" __global__ void b1_and(const unsigned *a, const unsigned *b, const int *c, int *d,
                                  int a_stride, int b_stride, int c_stride)
{
    bits<narrow::bmmaBitOpAND>(a, b, c, d, a_stride, b_stride, c_stride);
}
SHAPES(bf16_f32, __nv_bfloat16, __nv_bfloat16, float)
PRODUCT(tf32_f32_16_16_8_row_col_row, 16, 16, 8, wmma::precision::tf32, float, float, row_major,
        col_major, mem_row_major, mem_row_major)
PRODUCT(tf32_f32_16_16_8_col_row_col, 16, 16, 8, wmma::precision::tf32, float, float, col_major,
        row_major, mem_col_major, mem_col_major)
PRODUCT(f64_f64_8_8_4_row_col_row, 8, 8, 4, double, double, double, row_major, col_major,
        mem_row_major, mem_row_major)
PRODUCT(f64_f64_8_8_4_col_row_col, 8, 8, 4, double, double, double, col_major, row_major,
        mem_col_major, mem_col_major)
#endif

/* c = alpha a b + beta c for whole tiles: 4 warps a block, each a tile of 16 by 16 of a tile of 32
 * by 32, through shared memory. */
extern "C" __global__ void gemm(const half *a, const half *b, float *c, int n, int k, float alpha,
                                float beta)
{
    __shared__ half left[32][24];
    __shared__ half right[16][40];
    const int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 16;
    a += blockIdx.y * 32 * k;
    b += blockIdx.x * 32;
    c += (blockIdx.y * 32 + row) * n + blockIdx.x * 32 + column;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum, old;
    wmma::fill_fragment(sum, 0.0f);
    for (int at = 0; at < k; at += 16) {
        for (int i = threadIdx.x; i < 512; i += blockDim.x) {
            left[i / 16][i % 16] = a[i / 16 * k + at + i % 16];
            right[i / 32][i % 32] = b[(at + i / 32) * n + i % 32];
        }
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> one;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> other;
        wmma::load_matrix_sync(one, &left[row][0], 24);
        wmma::load_matrix_sync(other, &right[0][column], 40);
        wmma::mma_sync(sum, one, other, sum);
        __syncthreads();
    }
    wmma::load_matrix_sync(old, c, n, wmma::mem_row_major);
    for (int i = 0; i < sum.num_elements; ++i) {
        sum.x[i] = alpha * sum.x[i] + beta * old.x[i];
    }
    wmma::store_matrix_sync(c, sum, n, wmma::mem_row_major);
}
