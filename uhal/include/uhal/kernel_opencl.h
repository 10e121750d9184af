/* The kernel language on OpenCL devices: <uhal/kernel.h> includes this where clang's HIP front end
 * compiles for SPIR-V (`clang -cc1 -triple spirv64v1.2-unknown-unknown -x hip -fcuda-is-device`).
 * That front end needs no OpenCL C. A plain pointer points into the generic address space, and an
 * entry's pointer into global memory. Built-in functions are called by the mangled names of OpenCL
 * C, which the compiler turns into instructions.
 *
 * OpenCL lacks two things, which the module's loader adds (opencl_backend/slices.py): module
 * variables and `uhal_dynamic_shared` become arguments of the entries that use them.
 */
#ifndef UHAL_KERNEL_OPENCL_H
#define UHAL_KERNEL_OPENCL_H

#define UHAL_DEVICE static inline __attribute__((device, always_inline))
#define UHAL_FLOAT8 __attribute__((device, always_inline)) inline
#include <uhal/float8.h>

/* OpenCL has only a hint for a kernel's block size; in a module of clang's HIP front end the hint
 * is the largest size. */
#define UHAL_KERNEL(entry, max_threads, parameters)                                                \
    extern "C" __attribute__((global, work_group_size_hint(max_threads, 1, 1))) void entry         \
        parameters

#define DEVICE_FUNCTION UHAL_DEVICE
#define DEVICE_METHOD __attribute__((device, always_inline)) inline
#define BLOCK const uhal_here &
#define ROLLED _Pragma("unroll 1")
#define THIS_BLOCK (uhal_here{})

#define DEVICE_GLOBAL(type, name, count)                                                           \
    extern "C" {                                                                                   \
    __attribute__((device)) type name[count];                                                      \
    }                                                                                              \
    static_assert(true, "")

/* One pass of a loop, so that `continue` means the same on every target. */
#define THREADS_OF(block, t)                                                                       \
    for (u32 t = ((void)(block), uhal_thread()), t##_once = 1; t##_once != 0; t##_once = 0)
#define THREAD_X(t) ((void)(t), static_cast<u32>(uhal_cl_local_id(0)))
#define THREAD_Y(t) ((void)(t), static_cast<u32>(uhal_cl_local_id(1)))
#define THREAD_Z(t) ((void)(t), static_cast<u32>(uhal_cl_local_id(2)))
#define BARRIER() uhal_barrier()
#define SHARED(type, name, ...) __attribute__((shared)) type name UHAL_EXTENTS(__VA_ARGS__)
#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __attribute__((shared)) uhal_shared_unit uhal_dynamic_shared[];                         \
    type *const name = reinterpret_cast<type *>(uhal_dynamic_shared)
#define REGISTER_OF(block, type, name, count) uhal_register<type> name
#define GRID_STRIDE_OF(block, i, n)                                                                \
    for (u64 i = ((void)(block), uhal_first()), i##_step = uhal_step(), i##_end = (n);             \
         i < i##_end; i += i##_step)

extern "C" {
#define UHAL_CL_PLACE(name, symbol)                                                                \
    __attribute__((device, const)) u64 uhal_cl_##name(u32 dim) __asm(symbol);
UHAL_CL_PLACE(local_id, "_Z12get_local_idj")
UHAL_CL_PLACE(group_id, "_Z12get_group_idj")
UHAL_CL_PLACE(local_size, "_Z14get_local_sizej")
UHAL_CL_PLACE(num_groups, "_Z14get_num_groupsj")
#undef UHAL_CL_PLACE
__attribute__((device, convergent)) void uhal_cl_control_barrier(u32 execution, u32 memory,
                                                                 u32 semantics)
    __asm("_Z22__spirv_ControlBarrierjjj");
}

/* A pointer known to point into global memory: Intel's runtime for CPUs has no compare-and-exchange
 * on other pointers. */
typedef __attribute__((address_space(1))) u32 uhal_global_u32;
#define UHAL_GLOBAL(pointer) ((uhal_global_u32 *)(pointer))

/* Alignment of dynamic shared memory. */
typedef u64 uhal_shared_unit __attribute__((ext_vector_type(2)));

/* An empty block argument: work-items read built-in indices instead. */
struct uhal_here {};

struct uhal_extent {
    u32 x;
    u32 y;
    u32 z;
};

#define UHAL_EXTENT(name, of)                                                                      \
    UHAL_DEVICE uhal_extent name()                                                                 \
    {                                                                                              \
        return {static_cast<u32>(of(0)), static_cast<u32>(of(1)), static_cast<u32>(of(2))};        \
    }
UHAL_EXTENT(uhal_block_index, uhal_cl_group_id)
UHAL_EXTENT(uhal_block_extent, uhal_cl_local_size)
UHAL_EXTENT(uhal_grid_extent, uhal_cl_num_groups)
#undef UHAL_EXTENT

#define blockIdx uhal_block_index()
#define blockDim uhal_block_extent()
#define gridDim uhal_grid_extent()

UHAL_DEVICE u32 uhal_thread() {
    const u32 row = static_cast<u32>(uhal_cl_local_id(1)) +
                    blockDim.y * static_cast<u32>(uhal_cl_local_id(2));
    return static_cast<u32>(uhal_cl_local_id(0)) + blockDim.x * row;
}

UHAL_DEVICE u64 uhal_first() {
    const u64 rows_before = static_cast<u64>(gridDim.y) * blockIdx.z + blockIdx.y;
    const u64 block = gridDim.x * rows_before + blockIdx.x;
    return block * (blockDim.x * blockDim.y * blockDim.z) + uhal_thread();
}

UHAL_DEVICE u64 uhal_step() {
    const u64 blocks = static_cast<u64>(gridDim.x) * gridDim.y * gridDim.z;
    return blocks * (blockDim.x * blockDim.y * blockDim.z);
}

/* The workgroup's barrier, sequentially consistent, for local and global memory. */
UHAL_DEVICE void uhal_barrier() { uhal_cl_control_barrier(2, 2, 0x10 | 0x100 | 0x200); }

template <class Type> struct uhal_register {
    Type value;
    DEVICE_METHOD Type &operator()(u32) { return value; }
    DEVICE_METHOD const Type &operator()(u32) const { return value; }
};

typedef _Float16 f16;

/* Storage only: no device instructions are used. */
struct bf16 {
    u16 bits;
    bf16() = default;
    DEVICE_METHOD bf16(f32 value) : bits(rounded(value)) {}
    DEVICE_METHOD operator f32() const {
        return __builtin_bit_cast(f32, static_cast<u32>(bits) << 16);
    }

  private:
    /* Rounds to nearest even; a NaN stays a NaN. */
    static DEVICE_METHOD u16 rounded(f32 value) {
        const u32 all = __builtin_bit_cast(u32, value);
        const u32 nearest = (all + 0x7FFFU + (all >> 16 & 1U)) >> 16;
        return static_cast<u16>((all << 1) > 0xFF000000U ? (all >> 16 | 0x40U) : nearest);
    }
};

static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2, "16-bit storage");

#endif
