/* A loaded code object and its kernels. Any thread may use a module. */
#ifndef UHAL_HSA_MODULE_H
#define UHAL_HSA_MODULE_H

#include "device.h"

typedef struct uhal_hsa_kernel {
    uhal_aql_kernel aql;
    uhalHsaKernelInfo info; /* the module owns its texts and arrays */
} uhal_hsa_kernel;

typedef struct uhal_hsa_module {
    uhal_hsa_device *device;
    unsigned char *image; /* the executable points into it */
    hsa_executable_t executable;
    uhal_hsa_kernel *kernels;
    uint32_t kernel_count;
    atomic_uint holders; /* the owner, and queues with pending work at the unloading */
} uhal_hsa_module;

#endif
