// For GPUs: neighboring elements of contiguous operands, as many at a time as 16 bytes hold of the
// widest: an access is no wider than that, and narrow ones leave bandwidth unused.
#ifndef UBRIDGE_PACKS_H
#define UBRIDGE_PACKS_H

#include "number.h"

template <class T, u32 count> struct alignas(sizeof(T) * count) Pack {
    T values[count];
};

template <class... T> constexpr u64 widest = 0;
template <class First, class... Rest>
constexpr u64 widest<First, Rest...> =
    sizeof(First) > widest<Rest...> ? sizeof(First) : widest<Rest...>;

// Elements of a pack, as many of every type. Longer code does not pay for the widest types, of which
// single accesses are wide enough, and for the narrowest, which are computed by many instructions.
template <class... T>
constexpr u32 pack_length = widest<T...> == 8   ? 1
                            : widest<T...> == 1 ? 4
                                                : 16 / widest<T...>;

template <u32 length, class T> DEVICE_FUNCTION bool starts_pack(const T *data)
{
    return reinterpret_cast<u64>(data) % sizeof(Pack<T, length>) == 0;
}

template <u32 length, class Out, class Function, class... In>
DEVICE_FUNCTION Pack<Out, length> map_pack(Function function, const Pack<In, length>... operands)
{
    Pack<Out, length> results;
    for (u32 lane = 0; lane < length; ++lane)
        results.values[lane] = narrow<Out>(function(widen(operands.values[lane])...));
    return results;
}

// out[i] = function(data[i]...) for all of the elements before `numel` that whole packs hold; returns
// how many those are. A work-item has packs first, first + step, …
template <class Out, class Function, class... In>
DEVICE_FUNCTION u64 map_packs(u64 first, u64 step, u64 numel, Out *out, Function function,
                              const In *...data)
{
    constexpr u32 LENGTH = pack_length<Out, In...>;
    if (LENGTH == 1 || !(starts_pack<LENGTH>(out) && ... && starts_pack<LENGTH>(data)))
        return 0;
    const u64 packs = numel / LENGTH;
    ROLLED for (u64 i = first; i < packs; i += step)
        reinterpret_cast<Pack<Out, LENGTH> *>(out)[i] = map_pack<LENGTH, Out>(
            function, reinterpret_cast<const Pack<In, LENGTH> *>(data)[i]...);
    return packs * LENGTH;
}

#endif
