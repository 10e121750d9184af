/* The functions of wgpu-native that native code calls, as addresses. No library is linked, so
 * native code builds and loads on machines without wgpu-native. abi.h has their prototypes.
 */
#ifndef UHAL_WG_FUNCTIONS_H
#define UHAL_WG_FUNCTIONS_H

#include "abi.h"

/* clang-format off */
#define UHAL_WG_FUNCTIONS(FUNCTION)                                                                \
    FUNCTION(wgpuCreateInstance)                                                                   \
    FUNCTION(wgpuInstanceEnumerateAdapters)                                                        \
    FUNCTION(wgpuInstanceRelease)                                                                  \
    FUNCTION(wgpuAdapterGetInfo)                                                                   \
    FUNCTION(wgpuAdapterInfoFreeMembers)                                                           \
    FUNCTION(wgpuAdapterGetLimits)                                                                 \
    FUNCTION(wgpuAdapterHasFeature)                                                                \
    FUNCTION(wgpuAdapterRelease)                                                                   \
    FUNCTION(wgpuAdapterRequestDevice)                                                             \
    FUNCTION(wgpuDeviceGetQueue)                                                                   \
    FUNCTION(wgpuDevicePoll)                                                                       \
    FUNCTION(wgpuDeviceRelease)                                                                    \
    FUNCTION(wgpuQueueRelease)                                                                     \
    FUNCTION(wgpuDeviceCreateBuffer)                                                               \
    FUNCTION(wgpuBufferMapAsync)                                                                   \
    FUNCTION(wgpuBufferGetConstMappedRange)                                                        \
    FUNCTION(wgpuBufferUnmap)                                                                      \
    FUNCTION(wgpuBufferRelease)                                                                    \
    FUNCTION(wgpuDeviceCreateBindGroupLayout)                                                      \
    FUNCTION(wgpuDeviceCreateBindGroup)                                                            \
    FUNCTION(wgpuDeviceCreatePipelineLayout)                                                       \
    FUNCTION(wgpuDeviceCreateShaderModule)                                                         \
    FUNCTION(wgpuDeviceCreateShaderModuleTrusted)                                                  \
    FUNCTION(wgpuDeviceCreateComputePipeline)                                                      \
    FUNCTION(wgpuBindGroupRelease)                                                                 \
    FUNCTION(wgpuBindGroupLayoutRelease)                                                           \
    FUNCTION(wgpuPipelineLayoutRelease)                                                            \
    FUNCTION(wgpuShaderModuleRelease)                                                              \
    FUNCTION(wgpuComputePipelineRelease)                                                           \
    FUNCTION(wgpuDeviceCreateCommandEncoder)                                                       \
    FUNCTION(wgpuCommandEncoderBeginComputePass)                                                   \
    FUNCTION(wgpuCommandEncoderCopyBufferToBuffer)                                                 \
    FUNCTION(wgpuCommandEncoderFinish)                                                             \
    FUNCTION(wgpuCommandEncoderRelease)                                                            \
    FUNCTION(wgpuCommandBufferRelease)                                                             \
    FUNCTION(wgpuComputePassEncoderSetPipeline)                                                    \
    FUNCTION(wgpuComputePassEncoderSetBindGroup)                                                   \
    FUNCTION(wgpuComputePassEncoderSetImmediates)                                                  \
    FUNCTION(wgpuComputePassEncoderDispatchWorkgroups)                                             \
    FUNCTION(wgpuComputePassEncoderEnd)                                                            \
    FUNCTION(wgpuComputePassEncoderRelease)                                                        \
    FUNCTION(wgpuQueueSubmitForIndex)                                                              \
    FUNCTION(wgpuQueueWriteBuffer)                                                                 \
    FUNCTION(wgpuQueueOnSubmittedWorkDone)                                                         \
    FUNCTION(wgpuDeviceCreateQuerySet)                                                             \
    FUNCTION(wgpuQuerySetRelease)                                                                  \
    FUNCTION(wgpuCommandEncoderWriteTimestamp)                                                     \
    FUNCTION(wgpuCommandEncoderResolveQuerySet)                                                    \
    FUNCTION(wgpuQueueGetTimestampPeriod)
/* clang-format on */

#define UHAL_WG_FUNCTION_FIELD(name) __typeof__(&name) name;
typedef struct uhal_wg_functions {
    UHAL_WG_FUNCTIONS(UHAL_WG_FUNCTION_FIELD)
} uhal_wg_functions;
#undef UHAL_WG_FUNCTION_FIELD

/* Replaces the functions of release 27 whose interface differs from abi.h. */
void uhal_wg_adapt_27(uhal_wg_functions *wgpu);

#endif
