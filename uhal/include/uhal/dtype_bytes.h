// The size of the type of a parameter's `dtype` (<uhal/host_module.h>).
#ifndef UHAL_DTYPE_BYTES_H
#define UHAL_DTYPE_BYTES_H

#include <stdint.h>

// Bytes of one element; 1 for a character that stands for no dtype.
static inline uint32_t uhal_dtype_bytes(uint32_t dtype) {
    switch (dtype) {
    case 'h':
    case 'H':
    case 'e':
    case 'g':
        return 2;
    case 'i':
    case 'I':
    case 'f':
        return 4;
    case 'q':
    case 'Q':
    case 'd':
        return 8;
    default:
        return 1;
    }
}

#endif
