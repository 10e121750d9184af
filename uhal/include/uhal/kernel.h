/* The language of single-source kernels: one file compiles for the host (g++, clang++), for CUDA
 * (nvcc), for AMD devices (clang -x hip) and for OpenCL devices (the same clang, to SPIR-V).
 *
 *     #include <uhal/kernel.h>
 *     KERNEL(saxpy, (u64 n, f32 a, const f32 *x, f32 *y)) {
 *         GRID_STRIDE(i, n) { y[i] = a * x[i] + y[i]; }
 *     }
 *
 * On a GPU every work-item runs the body. On the host one call of the body runs a whole block. Code
 * that differs between work-items stands inside THREADS(t) { … } regions, which are loops on the
 * host, and BARRIER() separates regions. `return` and `break` must not leave a region; `continue`
 * ends the region for one work-item. Everything outside a region must be the same for all
 * work-items of the block.
 *
 *   blockIdx, blockDim, gridDim           readable everywhere in a kernel body, as in CUDA
 *   THREADS(t)                            t = 0 … work-items of the block - 1, x fastest
 *   THREAD_X(t), THREAD_Y(t), THREAD_Z(t) the three coordinates of t
 *   BARRIER()                             between regions, never inside one
 *   SHARED(f32, tile, 16, 17)             static shared memory; one to three extents
 *   DYNAMIC_SHARED(f32, scratch)          the launch's shared bytes
 *   REGISTER(f32, acc, MAX_THREADS)       a value per work-item that lives across barriers: acc(t)
 *   GRID_STRIDE(i, n)                     every i below n once, for any shape of the launch;
 *                                         it is a region of its own
 *   KERNEL_BOUNDED(entry, 256, (…))       a kernel that takes blocks of at most 256
 *   DEVICE_FUNCTION f32 square(f32 x)     a helper; its data come as arguments
 *   DEVICE_GLOBAL(f32, table, 64)         a module variable, found by Module.get_global;
 *                                         nvcc needs -rdc=true to let it be found
 *
 * A helper with regions of its own takes the block as its first argument: declare it `BLOCK block`,
 * pass `THIS_BLOCK`, and write THREADS_OF(block, t), GRID_STRIDE_OF(block, i, n) and
 * REGISTER_OF(block, …) there. `DEVICE_METHOD` marks a member function of a helper struct.
 * KERNEL_ON_GPU is 1 or 0, for code that a CPU needs in another form. ROLLED before a loop keeps a
 * GPU's compiler from unrolling the loop.
 *
 * Types: i8 i16 i32 i64 u8 u16 u32 u64 f8e4m3 f16 bf16 f32 f64. f8e4m3, f16 and bf16 are for storage:
 * convert with f32(x) and f16(y).
 *
 * Other parts are separate headers: <uhal/atomics.h>, <uhal/warp.h> (shuffles, votes, reductions
 * and scans of warps and blocks), <uhal/vector.h>, <uhal/fast_math.h>, <uhal/messages.h> (PRINTF
 * and ASSERT), <uhal/table.h> (constant tables). docs/reference/kernels.md lists their contents.
 *
 * On every target the image records the name, type and constness of every parameter.
 */
#ifndef UHAL_KERNEL_H
#define UHAL_KERNEL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef int64_t i64;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef float f32;
typedef double f64;

#ifndef MAX_THREADS
#define MAX_THREADS 1024 /* the largest block of any target */
#endif

#define KERNEL(entry, parameters) KERNEL_BOUNDED(entry, MAX_THREADS, parameters)
#define KERNEL_BOUNDED(entry, max_threads, parameters)                                             \
    UHAL_TELL(entry, parameters) UHAL_KERNEL(entry, max_threads, parameters)
#define THREADS(t) THREADS_OF(THIS_BLOCK, t)
#define REGISTER(type, name, count) REGISTER_OF(THIS_BLOCK, type, name, count)
#define GRID_STRIDE(i, n) GRID_STRIDE_OF(THIS_BLOCK, i, n)
#define UHAL_EXTENTS(...) UHAL_EXTENTS_OF(__VA_ARGS__, 3, 2, 1)(__VA_ARGS__)
#define UHAL_EXTENTS_OF(a, b, c, count, ...) UHAL_EXTENTS_##count
#define UHAL_EXTENTS_1(a) [a]
#define UHAL_EXTENTS_2(a, b) [a][b]
#define UHAL_EXTENTS_3(a, b, c) [a][b][c]

#define KERNEL_ON_GPU 1
#if defined(__CUDACC__)
#include <uhal/kernel_cuda.h>
#elif defined(__SPIRV__)
#include <uhal/kernel_opencl.h>
#elif defined(__HIP__)
#include <uhal/kernel_hip.h>
#else
#undef KERNEL_ON_GPU
#define KERNEL_ON_GPU 0
#include <uhal/kernel_host.h>
#endif

#ifndef UHAL_SIGNATURES
#define UHAL_SIGNATURES KERNEL_ON_GPU /* the host's module describes its kernels itself */
#endif
#if UHAL_SIGNATURES
#include <uhal/signature.h>
#else
#define UHAL_TELL(entry, parameters)
#endif

#endif
