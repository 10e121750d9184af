/* The functions of OpenCL that native code calls, as addresses. No library is linked, so native
 * code builds and loads on machines without OpenCL. abi.h has the prototypes.
 */
#ifndef UHAL_CL_FUNCTIONS_H
#define UHAL_CL_FUNCTIONS_H

#include "abi.h"

/* clang-format off */
#define UHAL_CL_FUNCTIONS(FUNCTION)                                                                \
    FUNCTION(clCreateCommandQueueWithProperties)                                                   \
    FUNCTION(clRetainCommandQueue)                                                                 \
    FUNCTION(clReleaseCommandQueue)                                                                \
    FUNCTION(clFlush)                                                                              \
    FUNCTION(clFinish)                                                                             \
    FUNCTION(clReleaseProgram)                                                                     \
    FUNCTION(clCreateKernel)                                                                       \
    FUNCTION(clReleaseKernel)                                                                      \
    FUNCTION(clGetKernelWorkGroupInfo)                                                             \
    FUNCTION(clSetKernelArg)                                                                       \
    FUNCTION(clSetKernelArgSVMPointer)                                                             \
    FUNCTION(clSetKernelExecInfo)                                                                  \
    FUNCTION(clEnqueueNDRangeKernel)                                                               \
    FUNCTION(clEnqueueMarkerWithWaitList)                                                          \
    FUNCTION(clEnqueueBarrierWithWaitList)                                                         \
    FUNCTION(clRetainEvent)                                                                        \
    FUNCTION(clReleaseEvent)                                                                       \
    FUNCTION(clWaitForEvents)                                                                      \
    FUNCTION(clGetEventInfo)                                                                       \
    FUNCTION(clGetEventProfilingInfo)                                                              \
    FUNCTION(clSetEventCallback)                                                                   \
    FUNCTION(clSVMAlloc)                                                                           \
    FUNCTION(clSVMFree)                                                                            \
    FUNCTION(clEnqueueSVMMemcpy)                                                                   \
    FUNCTION(clEnqueueSVMMemFill)                                                                  \
    FUNCTION(clReleaseMemObject)                                                                   \
    FUNCTION(clGetMemObjectInfo)                                                                   \
    FUNCTION(clEnqueueReadBuffer)                                                                  \
    FUNCTION(clEnqueueWriteBuffer)                                                                 \
    FUNCTION(clEnqueueCopyBuffer)                                                                  \
    FUNCTION(clEnqueueFillBuffer)
/* clang-format on */

#define UHAL_CL_FUNCTION_FIELD(name) __typeof__(&name) name;
typedef struct uhal_cl_functions {
    UHAL_CL_FUNCTIONS(UHAL_CL_FUNCTION_FIELD)
} uhal_cl_functions;
#undef UHAL_CL_FUNCTION_FIELD

#endif
