/* The part of OpenCL's interface that uhal calls. Names, values and prototypes come from Khronos's
 * published headers. The version is OpenCL 2.1 (programs of an intermediate language), with two
 * extensions: Intel's unified shared memory and buffer addresses. * Readers: uhal/abi.py (ctypes)
 * and libuhal_opencl, which includes this file. Subset: integer defines, enums, typedefs, structs,
 * prototypes. For 64-bit little-endian machines.
 */
#ifndef UHAL_OPENCL_ABI_H
#define UHAL_OPENCL_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -- status ------------------------------------------------------------------------------------ */

typedef int32_t cl_int;
/* The result type of functions that return a status; the same type as cl_int, under another
 * name. */
typedef int32_t cl_status;

#define CL_SUCCESS 0
#define CL_DEVICE_NOT_FOUND (-1)
#define CL_DEVICE_NOT_AVAILABLE (-2)
#define CL_COMPILER_NOT_AVAILABLE (-3)
#define CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)
#define CL_OUT_OF_RESOURCES (-5)
#define CL_OUT_OF_HOST_MEMORY (-6)
#define CL_PROFILING_INFO_NOT_AVAILABLE (-7)
#define CL_MEM_COPY_OVERLAP (-8)
#define CL_IMAGE_FORMAT_MISMATCH (-9)
#define CL_IMAGE_FORMAT_NOT_SUPPORTED (-10)
#define CL_BUILD_PROGRAM_FAILURE (-11)
#define CL_MAP_FAILURE (-12)
#define CL_MISALIGNED_SUB_BUFFER_OFFSET (-13)
#define CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST (-14)
#define CL_COMPILE_PROGRAM_FAILURE (-15)
#define CL_LINKER_NOT_AVAILABLE (-16)
#define CL_LINK_PROGRAM_FAILURE (-17)
#define CL_DEVICE_PARTITION_FAILED (-18)
#define CL_KERNEL_ARG_INFO_NOT_AVAILABLE (-19)
#define CL_INVALID_VALUE (-30)
#define CL_INVALID_DEVICE_TYPE (-31)
#define CL_INVALID_PLATFORM (-32)
#define CL_INVALID_DEVICE (-33)
#define CL_INVALID_CONTEXT (-34)
#define CL_INVALID_QUEUE_PROPERTIES (-35)
#define CL_INVALID_COMMAND_QUEUE (-36)
#define CL_INVALID_HOST_PTR (-37)
#define CL_INVALID_MEM_OBJECT (-38)
#define CL_INVALID_IMAGE_FORMAT_DESCRIPTOR (-39)
#define CL_INVALID_IMAGE_SIZE (-40)
#define CL_INVALID_SAMPLER (-41)
#define CL_INVALID_BINARY (-42)
#define CL_INVALID_BUILD_OPTIONS (-43)
#define CL_INVALID_PROGRAM (-44)
#define CL_INVALID_PROGRAM_EXECUTABLE (-45)
#define CL_INVALID_KERNEL_NAME (-46)
#define CL_INVALID_KERNEL_DEFINITION (-47)
#define CL_INVALID_KERNEL (-48)
#define CL_INVALID_ARG_INDEX (-49)
#define CL_INVALID_ARG_VALUE (-50)
#define CL_INVALID_ARG_SIZE (-51)
#define CL_INVALID_KERNEL_ARGS (-52)
#define CL_INVALID_WORK_DIMENSION (-53)
#define CL_INVALID_WORK_GROUP_SIZE (-54)
#define CL_INVALID_WORK_ITEM_SIZE (-55)
#define CL_INVALID_GLOBAL_OFFSET (-56)
#define CL_INVALID_EVENT_WAIT_LIST (-57)
#define CL_INVALID_EVENT (-58)
#define CL_INVALID_OPERATION (-59)
#define CL_INVALID_GL_OBJECT (-60)
#define CL_INVALID_BUFFER_SIZE (-61)
#define CL_INVALID_MIP_LEVEL (-62)
#define CL_INVALID_GLOBAL_WORK_SIZE (-63)
#define CL_INVALID_PROPERTY (-64)
#define CL_INVALID_IMAGE_DESCRIPTOR (-65)
#define CL_INVALID_COMPILER_OPTIONS (-66)
#define CL_INVALID_LINKER_OPTIONS (-67)
#define CL_INVALID_DEVICE_PARTITION_COUNT (-68)
#define CL_INVALID_PIPE_SIZE (-69)
#define CL_INVALID_DEVICE_QUEUE (-70)
#define CL_INVALID_SPEC_ID (-71)
#define CL_MAX_SIZE_RESTRICTION_EXCEEDED (-72)
#define CL_PLATFORM_NOT_FOUND_KHR (-1001) /* of the loader: no runtime is registered */
/* -- types ------------------------------------------------------------------------------------- */

typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_uint cl_bool;
typedef cl_ulong cl_bitfield;
typedef cl_ulong cl_properties;

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;
typedef struct _cl_mem *cl_mem;
typedef cl_ulong cl_mem_device_address_ext;

typedef void (*cl_context_callback)(const char *text, const void *info, size_t bytes, void *data);
typedef void (*cl_program_callback)(cl_program program, void *data);
typedef void (*cl_event_callback)(cl_event event, cl_int status, void *data);

#define CL_FALSE 0
#define CL_TRUE 1

/* -- platforms and devices --------------------------------------------------------------------- */

#define CL_PLATFORM_VERSION 0x0901
#define CL_PLATFORM_NAME 0x0902
#define CL_PLATFORM_VENDOR 0x0903

#define CL_DEVICE_TYPE_CPU 2
#define CL_DEVICE_TYPE_GPU 4
#define CL_DEVICE_TYPE_ACCELERATOR 8
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFF

#define CL_DEVICE_TYPE 0x1000
#define CL_DEVICE_VENDOR_ID 0x1001
#define CL_DEVICE_MAX_COMPUTE_UNITS 0x1002
#define CL_DEVICE_MAX_WORK_GROUP_SIZE 0x1004
#define CL_DEVICE_MAX_WORK_ITEM_SIZES 0x1005
#define CL_DEVICE_MAX_CLOCK_FREQUENCY 0x100C
#define CL_DEVICE_ADDRESS_BITS 0x100D
#define CL_DEVICE_MAX_MEM_ALLOC_SIZE 0x1010
#define CL_DEVICE_MAX_PARAMETER_SIZE 0x1017
#define CL_DEVICE_GLOBAL_MEM_SIZE 0x101F
#define CL_DEVICE_LOCAL_MEM_SIZE 0x1023
#define CL_DEVICE_ENDIAN_LITTLE 0x1026
#define CL_DEVICE_AVAILABLE 0x1027
#define CL_DEVICE_COMPILER_AVAILABLE 0x1028
#define CL_DEVICE_NAME 0x102B
#define CL_DEVICE_VENDOR 0x102C
#define CL_DRIVER_VERSION 0x102D
#define CL_DEVICE_VERSION 0x102F
#define CL_DEVICE_EXTENSIONS 0x1030
#define CL_DEVICE_DOUBLE_FP_CONFIG 0x1032
#define CL_DEVICE_SVM_CAPABILITIES 0x1053
#define CL_DEVICE_IL_VERSION 0x105B
#define CL_DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT 0x1069
#define CL_DEVICE_UUID_KHR 0x106A
#define CL_DEVICE_SUB_GROUP_SIZES_INTEL 0x4108
#define CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL 0x4190
#define CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL 0x4191

#define CL_UUID_SIZE_KHR 16

/* Bits of CL_DEVICE_SVM_CAPABILITIES. */
#define CL_DEVICE_SVM_COARSE_GRAIN_BUFFER 1
#define CL_DEVICE_SVM_FINE_GRAIN_BUFFER 2

/* Bits of the two capabilities of unified shared memory. */
#define CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL 1

cl_status clGetPlatformIDs(cl_uint room, cl_platform_id *platforms, cl_uint *count);
cl_status clGetPlatformInfo(cl_platform_id platform, cl_uint name, size_t bytes, void *value,
                            size_t *needed);
cl_status clGetDeviceIDs(cl_platform_id platform, cl_bitfield type, cl_uint room,
                         cl_device_id *devices, cl_uint *count);
cl_status clGetDeviceInfo(cl_device_id device, cl_uint name, size_t bytes, void *value,
                          size_t *needed);
void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name);

/* -- contexts and queues ----------------------------------------------------------------------- */

#define CL_QUEUE_CONTEXT 0x1090
#define CL_QUEUE_PROPERTIES 0x1093
#define CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE 1
#define CL_QUEUE_PROFILING_ENABLE 2

cl_context clCreateContext(const intptr_t *properties, cl_uint count, const cl_device_id *devices,
                           cl_context_callback notify, void *data, cl_int *status);
cl_status clReleaseContext(cl_context context);
cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const cl_properties *properties,
                                                    cl_int *status);
cl_status clRetainCommandQueue(cl_command_queue queue);
cl_status clReleaseCommandQueue(cl_command_queue queue);
cl_status clGetCommandQueueInfo(cl_command_queue queue, cl_uint name, size_t bytes, void *value,
                                size_t *needed);
cl_status clFlush(cl_command_queue queue);
cl_status clFinish(cl_command_queue queue);

/* -- programs and kernels ---------------------------------------------------------------------- */

#define CL_PROGRAM_SOURCE 0x1164
#define CL_PROGRAM_BINARY_SIZES 0x1165
#define CL_PROGRAM_BINARIES 0x1166
#define CL_PROGRAM_KERNEL_NAMES 0x1168
#define CL_PROGRAM_IL 0x1169
#define CL_PROGRAM_BUILD_OPTIONS 0x1182
#define CL_PROGRAM_BUILD_LOG 0x1183

#define CL_KERNEL_NUM_ARGS 0x1191
#define CL_KERNEL_ARG_ADDRESS_QUALIFIER 0x1196
#define CL_KERNEL_ARG_TYPE_NAME 0x1198
#define CL_KERNEL_ARG_TYPE_QUALIFIER 0x1199
#define CL_KERNEL_ARG_NAME 0x119A
#define CL_KERNEL_ARG_ADDRESS_LOCAL 0x119C
#define CL_KERNEL_ARG_TYPE_CONST 1
#define CL_KERNEL_WORK_GROUP_SIZE 0x11B0
#define CL_KERNEL_LOCAL_MEM_SIZE 0x11B2
#define CL_KERNEL_PRIVATE_MEM_SIZE 0x11B4

#define CL_KERNEL_EXEC_INFO_SVM_PTRS 0x11B6
#define CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL 0x4200
#define CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL 0x4201
#define CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL 0x4202

cl_program clCreateProgramWithIL(cl_context context, const void *il, size_t bytes, cl_int *status);
cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                     const size_t *lengths, cl_int *status);
cl_program clCreateProgramWithBinary(cl_context context, cl_uint count, const cl_device_id *devices,
                                     const size_t *lengths, const unsigned char **binaries,
                                     cl_int *each, cl_int *status);
cl_status clBuildProgram(cl_program program, cl_uint count, const cl_device_id *devices,
                         const char *options, cl_program_callback notify, void *data);
cl_status clGetProgramInfo(cl_program program, cl_uint name, size_t bytes, void *value,
                           size_t *needed);
cl_status clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_uint name, size_t bytes,
                                void *value, size_t *needed);
cl_status clRetainProgram(cl_program program);
cl_status clReleaseProgram(cl_program program);

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *status);
cl_status clReleaseKernel(cl_kernel kernel);
cl_status clGetKernelInfo(cl_kernel kernel, cl_uint name, size_t bytes, void *value,
                          size_t *needed);
cl_status clGetKernelArgInfo(cl_kernel kernel, cl_uint index, cl_uint name, size_t bytes,
                             void *value, size_t *needed);
cl_status clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_uint name,
                                   size_t bytes, void *value, size_t *needed);
cl_status clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value);
cl_status clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint index, const void *value);
cl_status clSetKernelExecInfo(cl_kernel kernel, cl_uint name, size_t bytes, const void *value);
cl_status clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint count, const cl_event *events, cl_event *event);

/* -- events ------------------------------------------------------------------------------------ */

#define CL_EVENT_COMMAND_EXECUTION_STATUS 0x11D3
#define CL_COMPLETE 0
#define CL_PROFILING_COMMAND_END 0x1283

cl_status clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint count, const cl_event *events,
                                      cl_event *event);
cl_status clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint count,
                                       const cl_event *events, cl_event *event);
cl_status clRetainEvent(cl_event event);
cl_status clReleaseEvent(cl_event event);
cl_status clWaitForEvents(cl_uint count, const cl_event *events);
cl_status clGetEventInfo(cl_event event, cl_uint name, size_t bytes, void *value, size_t *needed);
cl_status clGetEventProfilingInfo(cl_event event, cl_uint name, size_t bytes, void *value,
                                  size_t *needed);
cl_status clSetEventCallback(cl_event event, cl_int type, cl_event_callback function, void *data);

/* -- memory with addresses: shared virtual memory ---------------------------------------------- */

#define CL_MEM_READ_WRITE 1
#define CL_MEM_SVM_FINE_GRAIN_BUFFER 1024

void *clSVMAlloc(cl_context context, cl_bitfield flags, size_t bytes, cl_uint alignment);
void clSVMFree(cl_context context, void *pointer);
cl_status clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool blocking, void *destination,
                             const void *source, size_t bytes, cl_uint count,
                             const cl_event *events, cl_event *event);
cl_status clEnqueueSVMMemFill(cl_command_queue queue, void *destination, const void *pattern,
                              size_t pattern_bytes, size_t bytes, cl_uint count,
                              const cl_event *events, cl_event *event);

/* -- memory with addresses: cl_ext_buffer_device_address -----------------------------------------
 *
 * clCreateBufferWithProperties is of OpenCL 3; the last function is looked up like the functions of
 * the next section.
 */

#define CL_MEM_DEVICE_PRIVATE_ADDRESS_EXT 0x5000
#define CL_MEM_DEVICE_ADDRESS_EXT 0x5001
#define CL_KERNEL_EXEC_INFO_DEVICE_PTRS_EXT 0x5002

cl_mem clCreateBufferWithProperties(cl_context context, const cl_properties *properties,
                                    cl_bitfield flags, size_t bytes, void *host, cl_int *status);
cl_status clReleaseMemObject(cl_mem memory);
cl_status clGetMemObjectInfo(cl_mem memory, cl_uint name, size_t bytes, void *value,
                             size_t *needed);
cl_status clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                              size_t offset, size_t bytes, void *destination, cl_uint count,
                              const cl_event *events, cl_event *event);
cl_status clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                               size_t offset, size_t bytes, const void *source, cl_uint count,
                               const cl_event *events, cl_event *event);
cl_status clEnqueueCopyBuffer(cl_command_queue queue, cl_mem source, cl_mem destination,
                              size_t source_offset, size_t destination_offset, size_t bytes,
                              cl_uint count, const cl_event *events, cl_event *event);
cl_status clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern,
                              size_t pattern_bytes, size_t offset, size_t bytes, cl_uint count,
                              const cl_event *events, cl_event *event);
cl_status clSetKernelArgDevicePointerEXT(cl_kernel kernel, cl_uint index,
                                         cl_mem_device_address_ext value);

/* -- memory with addresses: cl_intel_unified_shared_memory -------------------------------------
 *
 * clGetExtensionFunctionAddressForPlatform returns the addresses of these functions.
 */

void *clDeviceMemAllocINTEL(cl_context context, cl_device_id device,
                            const cl_properties *properties, size_t bytes, cl_uint alignment,
                            cl_int *status);
void *clHostMemAllocINTEL(cl_context context, const cl_properties *properties, size_t bytes,
                          cl_uint alignment, cl_int *status);
cl_status clMemBlockingFreeINTEL(cl_context context, void *pointer);
cl_status clEnqueueMemcpyINTEL(cl_command_queue queue, cl_bool blocking, void *destination,
                               const void *source, size_t bytes, cl_uint count,
                               const cl_event *events, cl_event *event);
cl_status clEnqueueMemFillINTEL(cl_command_queue queue, void *destination, const void *pattern,
                                size_t pattern_bytes, size_t bytes, cl_uint count,
                                const cl_event *events, cl_event *event);
cl_status clSetKernelArgMemPointerINTEL(cl_kernel kernel, cl_uint index, const void *value);

#ifdef __cplusplus
}
#endif

#endif
