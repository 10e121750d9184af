// Prototypes of the HIP functions that a benchmark calls, with untyped handles.
#pragma once

#include <cstddef>

#define HIP_LAUNCH_PARAM_BUFFER_POINTER (reinterpret_cast<void *>(1))
#define HIP_LAUNCH_PARAM_END (reinterpret_cast<void *>(3))

enum hipError_t { hipSuccess = 0 };

#pragma GCC visibility push(default)
extern "C" {
hipError_t hipInit(unsigned flags);
hipError_t hipMalloc(void **pointer, size_t bytes);
hipError_t hipFree(void *pointer);
hipError_t hipMemcpyHtoD(void *destination, const void *source, size_t bytes);
hipError_t hipMemcpyHtoDAsync(void *destination, const void *source, size_t bytes, void *stream);
hipError_t hipModuleLoadData(void **module, const void *image);
hipError_t hipModuleGetFunction(void **function, void *module, const char *name);
hipError_t hipStreamCreate(void **stream);
hipError_t hipStreamSynchronize(void *stream);
hipError_t hipEventCreate(void **event);
hipError_t hipEventRecord(void *event, void *stream);
hipError_t hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z,
                                 unsigned shared_bytes, void *stream, void **parameters,
                                 void **extra);
}
#pragma GCC visibility pop
