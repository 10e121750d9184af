/* The kernel language on CUDA: <uhal/kernel.h> includes this under nvcc. Nothing else should. */
#ifndef UHAL_KERNEL_CUDA_H
#define UHAL_KERNEL_CUDA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define UHAL_FLOAT8 __device__ __forceinline__
#include <uhal/float8.h>

typedef __half f16;
typedef __nv_bfloat16 bf16;

#define UHAL_KERNEL(entry, max_threads, parameters)                                                \
    extern "C" __global__ void __launch_bounds__(max_threads) entry parameters

/* Not static: shared memory of a static function is named after the path of the source. */
#define DEVICE_FUNCTION __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__
#define BLOCK const uhal_here &
#define ROLLED _Pragma("unroll 1")
#define THIS_BLOCK (uhal_here{})
#define DEVICE_GLOBAL(type, name, count)                                                           \
    extern "C" {                                                                                   \
    __device__ type name[count];                                                                   \
    }                                                                                              \
    static_assert(true, "")

/* One pass of a loop, so that `continue` means the same on every target. */
#define THREADS_OF(block, t)                                                                       \
    for (u32 t = ((void)(block), uhal_thread()), t##_once = 1; t##_once != 0; t##_once = 0)
#define THREAD_X(t) ((void)(t), threadIdx.x)
#define THREAD_Y(t) ((void)(t), threadIdx.y)
#define THREAD_Z(t) ((void)(t), threadIdx.z)
#define BARRIER() __syncthreads()
#define SHARED(type, name, ...) __shared__ type name UHAL_EXTENTS(__VA_ARGS__)
#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __shared__ __align__(16) unsigned char uhal_dynamic_shared[];                           \
    type *const name = reinterpret_cast<type *>(uhal_dynamic_shared)
#define REGISTER_OF(block, type, name, count) uhal_register<type> name
#define GRID_STRIDE_OF(block, i, n)                                                                \
    for (u64 i = ((void)(block), uhal_first()), i##_step = uhal_step(), i##_end = (n);             \
         i < i##_end; i += i##_step)

/* An empty block argument: work-items read built-in indices instead. */
struct uhal_here {};

DEVICE_FUNCTION u32 uhal_thread() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

DEVICE_FUNCTION u64 uhal_first() {
    const u64 rows_before = static_cast<u64>(gridDim.y) * blockIdx.z + blockIdx.y;
    const u64 block = gridDim.x * rows_before + blockIdx.x;
    return block * (blockDim.x * blockDim.y * blockDim.z) + uhal_thread();
}

DEVICE_FUNCTION u64 uhal_step() {
    const u64 blocks = static_cast<u64>(gridDim.x) * gridDim.y * gridDim.z;
    return blocks * (blockDim.x * blockDim.y * blockDim.z);
}

template <class Type> struct uhal_register {
    Type value;
    __device__ __forceinline__ Type &operator()(u32) { return value; }
    __device__ __forceinline__ const Type &operator()(u32) const { return value; }
};

#endif
