/* <string.h> for device code compiled without a C library: only the functions that kernels use. */
#ifndef UHAL_HIP_STRING_H
#define UHAL_HIP_STRING_H

#include <stddef.h>

#define memcpy __builtin_memcpy
#define memmove __builtin_memmove
#define memset __builtin_memset

#endif
