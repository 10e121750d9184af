// For GPUs: contiguous elements in vectors of 16 bytes, which one instruction loads or stores.
#ifndef UBRIDGE_ELEMENT_VECTORS_H
#define UBRIDGE_ELEMENT_VECTORS_H

#include <uhal/vector.h>

#include "number.h"

template <class... T> constexpr u32 widest = 1;
template <class First, class... Rest>
constexpr u32 widest<First, Rest...> =
    sizeof(First) > widest<Rest...> ? u32(sizeof(First)) : widest<Rest...>;

// Number of elements in a vector: the widest type fills 16 bytes. Vectors of bytes have only four
// elements, for less code.
template <class... T> constexpr u32 vector_length = widest<T...> == 1 ? 4 : 16 / widest<T...>;

// Bytes from the last place where a vector may begin.
template <u32 count, class T> DEVICE_FUNCTION u64 misalignment(const T *from)
{
    return reinterpret_cast<u64>(from) & (sizeof(T) * count - 1);
}

#endif
