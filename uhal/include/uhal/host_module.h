/* Tables in a host kernel library for the host runtime: the contract between
 * <uhal/kernel.h>, which emits these tables, and host_backend, which loads them.
 *
 * A library exports one symbol, `uhal_host_module`. Everything in it is plain data; a change of
 * any struct raises UHAL_HOST_MODULE_VERSION, and the runtime takes exactly its own version.
 */
#ifndef UHAL_HOST_MODULE_H
#define UHAL_HOST_MODULE_H

#include <stddef.h>
#include <stdint.h>

#define UHAL_HOST_MODULE_MAGIC 0x656C75646F4D4855 /* the bytes "UHModule", little endian */
#define UHAL_HOST_MODULE_VERSION 1
#define UHAL_HOST_MAX_THREADS 1024
#define UHAL_HOST_MAX_SHARED_BYTES 49152
#define UHAL_HOST_MAX_PARAMETER_BYTES 4096

#define UHAL_HOST_PARAMETER_POINTER 1
#define UHAL_HOST_PARAMETER_CONST 2 /* the kernel only reads through the pointer */

struct uhal_dim3 {
    uint32_t x;
    uint32_t y;
    uint32_t z;
};

/* The running block; the fields have CUDA's names. */
struct uhal_block {
    struct uhal_dim3 blockIdx;
    struct uhal_dim3 blockDim;
    struct uhal_dim3 gridDim;
    uint32_t dynamic_shared_bytes;
    void *dynamic_shared; /* aligned to 64 bytes, one per running block */
};

struct uhal_host_parameter {
    uint32_t size;      /* bytes */
    uint32_t alignment; /* bytes */
    uint32_t flags;     /* UHAL_HOST_PARAMETER_… */
    uint32_t dtype;     /* `?bBhHiIqQ8egfd` of the scalar or the pointer's target; 0: none of them */
};

/* Runs `count` consecutive blocks, the first being block->blockIdx, x fastest. */
typedef void (*uhal_host_kernel_run)(const struct uhal_block *block, uint64_t count,
                                     void *const *parameters);

struct uhal_host_kernel {
    const char *entry;
    const char *parameter_text; /* the parameter list as the source spells it, with parentheses */
    const struct uhal_host_parameter *parameters;
    uint32_t parameter_count;
    uint32_t max_threads; /* the largest block the kernel takes */
    uint32_t order;       /* rises from kernel to kernel of one source */
    uhal_host_kernel_run run;
};

struct uhal_host_global {
    const char *name;
    void *address;
    uint64_t bytes;
};

struct uhal_host_module {
    uint64_t magic;
    uint32_t version;
    uint32_t instruction_level; /* x86-64 level of the code, 0 on other machines */
    /* Ranges of pointers; null pointers are padding. */
    const struct uhal_host_kernel *const *kernels_begin;
    const struct uhal_host_kernel *const *kernels_end;
    const struct uhal_host_global *const *globals_begin;
    const struct uhal_host_global *const *globals_end;
};

#endif
