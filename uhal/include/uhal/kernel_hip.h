/* The kernel language on AMD devices: <uhal/kernel.h> includes this under clang -x hip. Nothing
 * else should. It needs no ROCm: compiler builtins give a work-item's index in the grid.
 */
#ifndef UHAL_KERNEL_HIP_H
#define UHAL_KERNEL_HIP_H

#define UHAL_DEVICE static inline __attribute__((device, always_inline))
#define UHAL_FLOAT8 __attribute__((device, always_inline)) inline
#include <uhal/float8.h>

#define UHAL_KERNEL(entry, max_threads, parameters)                                                \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, max_threads))) void entry     \
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
#define THREAD_X(t) ((void)(t), __builtin_amdgcn_workitem_id_x())
#define THREAD_Y(t) ((void)(t), __builtin_amdgcn_workitem_id_y())
#define THREAD_Z(t) ((void)(t), __builtin_amdgcn_workitem_id_z())
#define BARRIER() uhal_barrier()
#define SHARED(type, name, ...) __attribute__((shared)) type name UHAL_EXTENTS(__VA_ARGS__)
#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __attribute__((shared, aligned(16))) unsigned char uhal_dynamic_shared[];               \
    type *const name = reinterpret_cast<type *>(uhal_dynamic_shared)
#define REGISTER_OF(block, type, name, count) uhal_register<type> name
#define GRID_STRIDE_OF(block, i, n)                                                                \
    for (u64 i = ((void)(block), uhal_first()), i##_step = uhal_step(), i##_end = (n);             \
         i < i##_end; i += i##_step)

/* An empty block argument: work-items read built-in indices instead. */
struct uhal_here {};

struct uhal_extent {
    u32 x;
    u32 y;
    u32 z;
};

UHAL_DEVICE uhal_extent uhal_block_index() {
    return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
            __builtin_amdgcn_workgroup_id_z()};
}

UHAL_DEVICE uhal_extent uhal_block_extent() {
    return {__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
            __builtin_amdgcn_workgroup_size_z()};
}

/* The device has the grid's size in work-items; a launch consists of whole blocks. */
UHAL_DEVICE uhal_extent uhal_grid_extent() {
    const uhal_extent block = uhal_block_extent();
    return {__builtin_amdgcn_grid_size_x() / block.x, __builtin_amdgcn_grid_size_y() / block.y,
            __builtin_amdgcn_grid_size_z() / block.z};
}

#define blockIdx uhal_block_index()
#define blockDim uhal_block_extent()
#define gridDim uhal_grid_extent()

UHAL_DEVICE u32 uhal_thread() {
    const u32 row = __builtin_amdgcn_workitem_id_y() + blockDim.y * __builtin_amdgcn_workitem_id_z();
    return __builtin_amdgcn_workitem_id_x() + blockDim.x * row;
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

/* After a barrier the whole block sees its earlier writes to shared and device memory. */
UHAL_DEVICE void uhal_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

template <class Type> struct uhal_register {
    Type value;
    __attribute__((device, always_inline)) Type &operator()(u32) { return value; }
    __attribute__((device, always_inline)) const Type &operator()(u32) const { return value; }
};

typedef _Float16 f16;

/* Storage only, as on the host: not every device has instructions for this type. */
struct bf16 {
    u16 bits;
    bf16() = default;
    __attribute__((device, always_inline)) bf16(f32 value) : bits(rounded(value)) {}
    __attribute__((device, always_inline)) operator f32() const {
        return __builtin_bit_cast(f32, static_cast<u32>(bits) << 16);
    }

  private:
    /* Rounds to nearest even; a NaN stays a NaN. */
    static __attribute__((device, always_inline)) u16 rounded(f32 value) {
        const u32 all = __builtin_bit_cast(u32, value);
        if ((all & 0x7FFFFFFFU) > 0x7F800000U)
            return static_cast<u16>(all >> 16 | 0x40U);
        return static_cast<u16>((all + 0x7FFFU + (all >> 16 & 1U)) >> 16);
    }
};

static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2, "16-bit storage");

#endif
