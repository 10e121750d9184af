// Memory of a CPU's kernel, released when the kernel ends.
#ifndef UBRIDGE_SCRATCH_H
#define UBRIDGE_SCRATCH_H

#include <stdlib.h>

#include <memory>
#include <new>

#include "vectors.h"

struct Released {
    void operator()(void *memory) const { free(memory); }
};
template <class T> using Held = std::unique_ptr<T[], Released>;

template <class T> DEVICE_FUNCTION Held<T> hold(u64 count) {
    Held<T> memory(static_cast<T *>(aligned_alloc(64, whole_times(count * sizeof(T) + 1, 64))));
    if (memory == nullptr)
        throw std::bad_alloc();
    return memory;
}

#endif
