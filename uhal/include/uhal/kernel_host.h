/* The kernel language on the host: <uhal/kernel.h> includes this under a plain C++ compiler.
 *
 * Each KERNEL becomes a struct and a descriptor. The struct derives from the block, so that
 * blockIdx and similar names are plain names in the body. `uhal_host_module` leads to the
 * descriptor. All other symbols are local to the library, so two modules with the same entries can
 * be loaded side by side.
 */
#ifndef UHAL_KERNEL_HOST_H
#define UHAL_KERNEL_HOST_H

/* The user's compiler must not warn about the expansions of the macros below. */
#pragma GCC system_header

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "<uhal/kernel.h> needs C++17: c++ $(python -m uhal cflags) -x c++ kernel.cu -o kernel.so"
#endif

#include <string.h>

#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <uhal/float8.h>
#include <uhal/half.h>
#include <uhal/host_module.h>
#include <uhal/vector_math.h>

#define UHAL_KERNEL(entry, max_threads, parameters)                                                \
    namespace {                                                                                    \
    struct uhal_kernel_##entry : ::uhal::Block {                                                   \
        static void signature parameters;                                                          \
        inline void body parameters const UHAL_RESTRICT;                                           \
    };                                                                                             \
    }                                                                                              \
    static const ::uhal_host_kernel uhal_describe_##entry =                                        \
        ::uhal::describe<uhal_kernel_##entry, max_threads>(                                        \
            #entry, #parameters, __COUNTER__,                                                      \
            static_cast<decltype(&uhal_kernel_##entry::signature)>(nullptr));                      \
    UHAL_LIST(uhal_kernels, ::uhal_host_kernel, uhal_list_##entry, &uhal_describe_##entry)         \
    inline void uhal_kernel_##entry::body parameters const UHAL_RESTRICT

/* A kernel never writes through `this`, so its fields stay in registers. In clang such a body may
   call only member functions declared with __restrict__, too. */
#define UHAL_RESTRICT __restrict__

/* Code that runs a kernel is not checked as part of the kernel. */
#if defined(UHAL_CHECKED)
#define UHAL_UNCHECKED __attribute__((no_sanitize("thread")))
#else
#define UHAL_UNCHECKED
#endif

#define DEVICE_FUNCTION static inline __attribute__((always_inline))
#define DEVICE_METHOD inline __attribute__((always_inline))
#define BLOCK const ::uhal::Block &
#define ROLLED
#define THIS_BLOCK (*this)
#define DEVICE_GLOBAL(type, name, count)                                                           \
    alignas(64) static type name[count];                                                           \
    static const ::uhal_host_global uhal_describe_##name = {#name, name, sizeof name};             \
    UHAL_LIST(uhal_globals, ::uhal_host_global, uhal_list_##name, &uhal_describe_##name)           \
    static_assert(true, "")

#if defined(__clang__)
/* A region that cannot be vectorized is not an error. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define UHAL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define UHAL_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* A BARRIER() inside a region finds the inner declaration, and does not compile. */
#define THREADS_OF(block, t)                                                                       \
    UHAL_INDEPENDENT for (u32 t = 0, t##_end = (block).uhal_threads(); t < t##_end; ++t)           \
        if constexpr ([[maybe_unused]] constexpr bool uhal_inside_region = true; true)
#define THREAD_X(t) ((t) % blockDim.x)
#define THREAD_Y(t) ((t) / blockDim.x % blockDim.y)
#define THREAD_Z(t) ((t) / blockDim.x / blockDim.y)
#define BARRIER() static_assert(!uhal_inside_region, "BARRIER() stands between THREADS regions")
#define SHARED(type, name, ...)                                                                    \
    alignas(64) type name UHAL_EXTENTS(__VA_ARGS__);                                               \
    static_assert(sizeof name <= UHAL_HOST_MAX_SHARED_BYTES, "a block has 48 KiB of shared memory")
#define DYNAMIC_SHARED(type, name) type *const name = static_cast<type *>(this->dynamic_shared)
#define REGISTER_OF(block, type, name, count)                                                      \
    ::uhal::Register<type, count> name((block).uhal_threads())
/* One contiguous piece per block: the loop has unit stride. */
#define GRID_STRIDE_OF(block, i, n)                                                                \
    UHAL_INDEPENDENT for (u64 i = (block).uhal_first(n), i##_end = (block).uhal_last(n);           \
                          i < i##_end; ++i)                                                        \
        if constexpr ([[maybe_unused]] constexpr bool uhal_inside_region = true; true)

constexpr bool uhal_inside_region = false;

/* A list is a linker section of pointers: in a section of structs, padding would look like data. */
#if defined(__APPLE__)
#define UHAL_SECTION(name) "__DATA," #name
#define UHAL_BOUNDS(type, name)                                                                    \
    extern const type *const __start_##name __asm("section$start$__DATA$" #name);                  \
    extern const type *const __stop_##name __asm("section$end$__DATA$" #name);
#else
#define UHAL_SECTION(name) #name
/* Hidden, because otherwise one library's bounds would replace another's. */
#define UHAL_BOUNDS(type, name)                                                                    \
    extern __attribute__((visibility("hidden"))) const type *const __start_##name;                 \
    extern __attribute__((visibility("hidden"))) const type *const __stop_##name;
#endif
/* Prevents linkers from dropping data that only section bounds refer to. */
#if __has_attribute(retain)
#define UHAL_KEEP used, retain
#else
#define UHAL_KEEP used
#endif
#define UHAL_LIST(section_name, type, variable, value)                                             \
    __attribute__((section(UHAL_SECTION(section_name)), UHAL_KEEP)) static const type *variable =  \
        value;

/* The linker defines a section's bounds only where the section exists. */
UHAL_LIST(uhal_kernels, uhal_host_kernel, uhal_list_no_kernel, nullptr)
UHAL_LIST(uhal_globals, uhal_host_global, uhal_list_no_global, nullptr)

extern "C" {
UHAL_BOUNDS(uhal_host_kernel, uhal_kernels)
UHAL_BOUNDS(uhal_host_global, uhal_globals)

/* Weak, because every source of a library defines it; an `inline` variable would be
   STB_GNU_UNIQUE, which joins the variables of different libraries and keeps them loaded. */
extern __attribute__((weak, visibility("default"))) const uhal_host_module uhal_host_module;
__attribute__((used)) const struct uhal_host_module uhal_host_module = {
    UHAL_HOST_MODULE_MAGIC,
    UHAL_HOST_MODULE_VERSION,
#if !defined(__x86_64__)
    0,
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
    4,
#elif defined(__AVX2__) && defined(__FMA__) && defined(__BMI2__)
    3,
#elif defined(__SSE4_2__)
    2,
#else
    1,
#endif
    &__start_uhal_kernels,
    &__stop_uhal_kernels,
    &__start_uhal_globals,
    &__stop_uhal_globals,
};
}

namespace uhal {

struct Block : uhal_block {
    u32 uhal_threads() const UHAL_RESTRICT { return blockDim.x * blockDim.y * blockDim.z; }

    /* First and past-the-last element of this block's piece of n, in whole cache lines. */
    u64 uhal_first(u64 n) const UHAL_RESTRICT {
        const u64 rows_before = u64{gridDim.y} * blockIdx.z + blockIdx.y;
        const u64 first = (gridDim.x * rows_before + blockIdx.x) * uhal_piece(n);
        return first < n ? first : n;
    }
    u64 uhal_last(u64 n) const UHAL_RESTRICT {
        const u64 first = uhal_first(n);
        const u64 piece = uhal_piece(n);
        return n - first < piece ? n : first + piece;
    }
    u64 uhal_piece(u64 n) const UHAL_RESTRICT {
        const u64 blocks = u64{gridDim.x} * gridDim.y * gridDim.z;
        return (n / blocks + (n % blocks != 0) + 63) & ~u64{63};
    }
};

/* A value per work-item. The runtime reports an exception here as a failed launch. */
template <class Type, u32 count> class Register {
  public:
    explicit Register(u32 threads) {
        if (threads > count) {
            throw std::length_error("the block has more work-items than a REGISTER of the kernel");
        }
    }
    Type &operator()(u32 thread) { return values_[thread]; }
    const Type &operator()(u32 thread) const { return values_[thread]; }

  private:
    alignas(64) Type values_[count];
};

/* Character code of a scalar type, 0 for any other. */
template <class Type> constexpr u32 dtype_code() {
    using Plain = std::remove_cv_t<Type>;
    if constexpr (std::is_void_v<Plain>) {
        return 0;
    } else if constexpr (std::is_same_v<Plain, bool>) {
        return '?';
    } else if constexpr (std::is_same_v<Plain, f16>) {
        return 'e';
    } else if constexpr (std::is_same_v<Plain, bf16>) {
        return 'g';
    } else if constexpr (std::is_same_v<Plain, f8e4m3>) {
        return '8';
    } else if constexpr (std::is_same_v<Plain, f32>) {
        return 'f';
    } else if constexpr (std::is_same_v<Plain, f64>) {
        return 'd';
    } else if constexpr (std::is_enum_v<Plain>) {
        return dtype_code<std::underlying_type_t<Plain>>();
    } else if constexpr (std::is_integral_v<Plain> && sizeof(Plain) <= 8) {
        constexpr const char *codes = std::is_signed_v<Plain> ? "bhiq" : "BHIQ";
        constexpr u32 width = sizeof(Plain) == 1 ? 0 : sizeof(Plain) == 2 ? 1 : sizeof(Plain) / 4 + 1;
        return static_cast<u32>(codes[width]);
    } else {
        return 0;
    }
}

template <class Type> constexpr uhal_host_parameter describe_parameter() {
    static_assert(std::is_trivially_copyable_v<Type>, "a kernel parameter is copied as bytes");
    u32 flags = 0;
    u32 dtype = dtype_code<Type>();
    if constexpr (std::is_pointer_v<Type>) {
        using Pointee = std::remove_pointer_t<Type>;
        flags = UHAL_HOST_PARAMETER_POINTER;
        flags |= std::is_const_v<Pointee> ? UHAL_HOST_PARAMETER_CONST : 0;
        dtype = dtype_code<Pointee>();
    }
    return {sizeof(Type), alignof(Type), flags, dtype};
}

/* A parameter value, which may lie at any address. */
template <class Type> UHAL_UNCHECKED inline Type load(const void *argument) {
    alignas(Type) unsigned char bytes[sizeof(Type)];
    memcpy(bytes, argument, sizeof bytes);
    return *std::launder(reinterpret_cast<Type *>(bytes));
}

UHAL_UNCHECKED inline void next_block(uhal_block &block) {
    if (++block.blockIdx.x < block.gridDim.x) {
        return;
    }
    block.blockIdx.x = 0;
    if (++block.blockIdx.y < block.gridDim.y) {
        return;
    }
    block.blockIdx.y = 0;
    ++block.blockIdx.z;
}

/* Kernel is a local type, so everything instantiated from it is local to the library too. */
template <class Kernel, class... Types> struct Entry {
    static_assert((sizeof(Types) + ... + 0) <= UHAL_HOST_MAX_PARAMETER_BYTES,
                  "a kernel takes at most 4096 bytes of parameters");

    /* One more than needed: C++ has no arrays of size 0. */
    static constexpr uhal_host_parameter parameters[sizeof...(Types) + 1] = {
        describe_parameter<std::decay_t<Types>>()...};

    template <size_t... index>
    UHAL_UNCHECKED static void run_blocks(const uhal_block *first, u64 count, void *const *arguments,
                           std::index_sequence<index...>) {
        Kernel kernel;
        static_cast<uhal_block &>(kernel) = *first;
        (void)arguments;
        for (; count != 0; --count) {
            kernel.body(load<std::decay_t<Types>>(arguments[index])...);
            next_block(kernel);
        }
    }

    UHAL_UNCHECKED static void run(const uhal_block *first, u64 count, void *const *arguments) {
        run_blocks(first, count, arguments, std::index_sequence_for<Types...>());
    }
};

template <class Kernel, u32 max_threads, class... Types>
constexpr uhal_host_kernel describe(const char *entry, const char *parameter_text, u32 order,
                                    void (*)(Types...)) {
    static_assert(max_threads > 0 && max_threads <= UHAL_HOST_MAX_THREADS,
                  "a block has 1 to 1024 work-items");
    using Described = Entry<Kernel, Types...>;
    return {entry,       parameter_text, Described::parameters, sizeof...(Types),
            max_threads, order,          &Described::run};
}

} // namespace uhal

#if defined(UHAL_CHECKED)
#include <uhal/checked.h>
#endif

#endif
