/** Vectors: several numbers that one instruction loads or stores.
 *
 * `vec<f32, 4>` is four adjacent numbers, aligned to their size; `v[0]` is the first. A pair of
 * 16-bit floats, f16x2 or bf16x2, is one word to `atomic_add` of <uhal/atomics.h>.
 *
 *     const f32x4 four = load_vector<4>(x + 4 * i);
 */
#ifndef UHAL_VECTOR_H
#define UHAL_VECTOR_H

#include <uhal/kernel.h>

#include <string.h>

/** `count` numbers of one type, aligned as a whole, with at most 16 bytes. */
template <class Type, u32 count> struct alignas(sizeof(Type) * count) vec {
    static_assert(count == 2 || count == 4 || count == 8, "a vector has 2, 4 or 8 numbers");
    static_assert(sizeof(Type) * count <= 16, "a vector has at most 16 bytes");
    Type at[count];
    DEVICE_METHOD Type &operator[](u32 index) { return at[index]; }
    DEVICE_METHOD const Type &operator[](u32 index) const { return at[index]; }
};

/** The vectors with names of their own: type, `x`, count. */
typedef vec<f32, 2> f32x2;
typedef vec<f32, 4> f32x4;
typedef vec<f64, 2> f64x2;
typedef vec<i32, 2> i32x2;
typedef vec<i32, 4> i32x4;
typedef vec<u32, 2> u32x2;
typedef vec<u32, 4> u32x4;
typedef vec<u8, 4> u8x4;
typedef vec<f16, 2> f16x2;
typedef vec<f16, 4> f16x4;
typedef vec<f16, 8> f16x8;
typedef vec<bf16, 2> bf16x2;
typedef vec<bf16, 4> bf16x4;
typedef vec<bf16, 8> bf16x8;

/* The word that an instruction moves, by its size in bytes. */
template <u32 bytes> struct uhal_unit;
template <> struct uhal_unit<2> {
    typedef u16 type;
};
template <> struct uhal_unit<4> {
    typedef u32 type;
};
#if defined(__CUDACC__)
template <> struct uhal_unit<8> {
    typedef uint2 type;
};
template <> struct uhal_unit<16> {
    typedef uint4 type;
};
#else
template <> struct uhal_unit<8> {
    typedef u32 type __attribute__((vector_size(8), may_alias));
};
template <> struct uhal_unit<16> {
    typedef u32 type __attribute__((vector_size(16), may_alias));
};
#endif

/** Load `count` numbers at once. `address` is a multiple of their total size. */
template <u32 count, class Type> DEVICE_FUNCTION vec<Type, count> load_vector(const Type *address) {
    vec<Type, count> loaded;
    typedef typename uhal_unit<sizeof loaded>::type Unit;
    const Unit unit = *reinterpret_cast<const Unit *>(address);
    memcpy(&loaded, &unit, sizeof loaded);
    return loaded;
}

/** Store a vector at once. `address` is a multiple of its size. */
template <class Type, u32 count>
DEVICE_FUNCTION void store_vector(Type *address, const vec<Type, count> &value) {
    typename uhal_unit<sizeof value>::type unit;
    memcpy(&unit, &value, sizeof unit);
    *reinterpret_cast<decltype(unit) *>(address) = unit;
}

#endif
