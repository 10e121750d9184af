/* An OpenCL library over another OpenCL library: it changes some answers to imitate other devices.
 * This library links with the other library, and uses its functions for everything else.
 *
 *   UHAL_LAYER_HIDES     words that CL_DEVICE_EXTENSIONS loses
 *   UHAL_LAYER_IL        the value of CL_DEVICE_IL_VERSION
 *   UHAL_LAYER_SVM       the value of CL_DEVICE_SVM_CAPABILITIES, a number
 *   UHAL_LAYER_UNTIMED   any value: no marker has times
 *   UHAL_LAYER_BUFFERS   any value: cl_ext_buffer_device_address exists, over fine-grained memory
 */
#define _GNU_SOURCE

#include "abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BUFFERS = 4096, CL_MEM_USE_HOST_PTR = 8 };
enum { CL_EVENT_COMMAND_TYPE = 0x11D1, CL_COMMAND_MARKER = 0x11FE };

static const char OFFERED[] = "cl_ext_buffer_device_address";

/* Finds the function of this name in the library below. */
#define BELOW(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

cl_mem clCreateBuffer(cl_context context, cl_bitfield flags, size_t bytes, void *host,
                      cl_int *status);

/* -- properties of a device -------------------------------------------------------------------- */

static cl_status answer(const void *told, size_t told_bytes, size_t bytes, void *value,
                        size_t *needed) {
    if (needed != NULL)
        *needed = told_bytes;
    if (value == NULL)
        return CL_SUCCESS;
    if (bytes < told_bytes)
        return CL_INVALID_VALUE;
    memcpy(value, told, told_bytes);
    return CL_SUCCESS;
}

static bool is_hidden(const char *word) {
    char hidden[1024];
    snprintf(hidden, sizeof hidden, "%s",
             getenv("UHAL_LAYER_HIDES") ? getenv("UHAL_LAYER_HIDES") : "");
    char *rest = NULL;
    for (char *one = strtok_r(hidden, " ", &rest); one != NULL; one = strtok_r(NULL, " ", &rest))
        if (strcmp(one, word) == 0)
            return true;
    return false;
}

static cl_status extensions(cl_device_id device, size_t bytes, void *value, size_t *needed) {
    char all[16384] = "";
    char shown[16384] = "";
    const cl_status status =
        BELOW(clGetDeviceInfo)(device, CL_DEVICE_EXTENSIONS, sizeof all, all, NULL);
    if (status != CL_SUCCESS)
        return status;
    char *rest = NULL;
    for (char *one = strtok_r(all, " ", &rest); one != NULL; one = strtok_r(NULL, " ", &rest))
        if (!is_hidden(one)) {
            strcat(shown, one);
            strcat(shown, " ");
        }
    if (getenv("UHAL_LAYER_BUFFERS") != NULL)
        strcat(shown, OFFERED);
    return answer(shown, strlen(shown) + 1, bytes, value, needed);
}

cl_status clGetDeviceInfo(cl_device_id device, cl_uint name, size_t bytes, void *value,
                          size_t *needed) {
    const char *il = getenv("UHAL_LAYER_IL");
    const char *svm = getenv("UHAL_LAYER_SVM");
    if (name == CL_DEVICE_EXTENSIONS)
        return extensions(device, bytes, value, needed);
    if (name == CL_DEVICE_IL_VERSION && il != NULL)
        return answer(il, strlen(il) + 1, bytes, value, needed);
    if (name == CL_DEVICE_SVM_CAPABILITIES && svm != NULL) {
        const cl_bitfield told = strtoull(svm, NULL, 0);
        return answer(&told, sizeof told, bytes, value, needed);
    }
    return BELOW(clGetDeviceInfo)(device, name, bytes, value, needed);
}

/* -- SPIR-V of a version that the device does not take ----------------------------------------- */

cl_program clCreateProgramWithIL(cl_context context, const void *il, size_t bytes, cl_int *status) {
    const char *taken = getenv("UHAL_LAYER_IL");
    char version[32];
    const uint32_t *words = il;
    snprintf(version, sizeof version, "SPIR-V_%u.%u", words[1] >> 16, words[1] >> 8 & 0xFF);
    if (taken != NULL && strstr(taken, version) == NULL) {
        *status = CL_INVALID_VALUE;
        return NULL;
    }
    /* Float16 */
    for (size_t i = 5; i < bytes / 4 && (words[i] & 0xFFFF) == 17; i += 2)
        if (words[i + 1] == 9 && is_hidden("cl_khr_fp16")) {
            *status = CL_INVALID_VALUE;
            return NULL;
        }
    return BELOW(clCreateProgramWithIL)(context, il, bytes, status);
}

/* -- addresses of buffers ---------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cl_mem buffer;
    cl_context context;
    void *memory;
} buffers[MOST_BUFFERS];

/* The index of a buffer, or of a free entry if `buffer` is `NULL`; -1 if there is none. */
static int place_of(cl_mem buffer) {
    for (int i = 0; i < MOST_BUFFERS; ++i)
        if (buffers[i].buffer == buffer)
            return i;
    return -1;
}

cl_mem clCreateBufferWithProperties(cl_context context, const cl_properties *properties,
                                    cl_bitfield flags, size_t bytes, void *host, cl_int *status) {
    if (properties == NULL || properties[0] != CL_MEM_DEVICE_PRIVATE_ADDRESS_EXT || !properties[1])
        return BELOW(clCreateBufferWithProperties)(context, properties, flags, bytes, host, status);
    void *memory =
        BELOW(clSVMAlloc)(context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, bytes, 0);
    if (memory == NULL) {
        *status = CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return NULL;
    }
    cl_mem made =
        BELOW(clCreateBuffer)(context, flags | CL_MEM_USE_HOST_PTR, bytes, memory, status);
    pthread_mutex_lock(&lock);
    const int place = place_of(NULL);
    buffers[place].buffer = made;
    buffers[place].context = context;
    buffers[place].memory = memory;
    pthread_mutex_unlock(&lock);
    return made;
}

cl_status clGetMemObjectInfo(cl_mem buffer, cl_uint name, size_t bytes, void *value,
                             size_t *needed) {
    if (name != CL_MEM_DEVICE_ADDRESS_EXT)
        return BELOW(clGetMemObjectInfo)(buffer, name, bytes, value, needed);
    pthread_mutex_lock(&lock);
    const int place = place_of(buffer);
    const cl_mem_device_address_ext address = place < 0 ? 0 : (uintptr_t)buffers[place].memory;
    pthread_mutex_unlock(&lock);
    return place < 0 ? CL_INVALID_VALUE : answer(&address, sizeof address, bytes, value, needed);
}

cl_status clReleaseMemObject(cl_mem buffer) {
    pthread_mutex_lock(&lock);
    const int place = place_of(buffer);
    const cl_context context = place < 0 ? NULL : buffers[place].context;
    void *memory = place < 0 ? NULL : buffers[place].memory;
    if (place >= 0)
        buffers[place].buffer = NULL;
    pthread_mutex_unlock(&lock);
    const cl_status status = BELOW(clReleaseMemObject)(buffer);
    if (memory != NULL)
        BELOW(clSVMFree)(context, memory);
    return status;
}

/* Avoids Intel's blocking write, which ran at the wrong time for buffers over shared memory and
 * gave wrong layers in network_test. A non-blocking write and a wait gave correct layers. */
cl_status clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                               size_t offset, size_t bytes, const void *source, cl_uint count,
                               const cl_event *events, cl_event *event) {
    cl_event done;
    cl_status status = BELOW(clEnqueueWriteBuffer)(queue, buffer, CL_FALSE, offset, bytes, source,
                                                   count, events, &done);
    if (status != CL_SUCCESS)
        return status;
    if (blocking)
        status = BELOW(clWaitForEvents)(1, &done);
    if (event != NULL)
        *event = done;
    else
        BELOW(clReleaseEvent)(done);
    return status;
}

cl_status clSetKernelArgDevicePointerEXT(cl_kernel kernel, cl_uint index,
                                         cl_mem_device_address_ext value) {
    return BELOW(clSetKernelArgSVMPointer)(kernel, index, (const void *)(uintptr_t)value);
}

cl_status clSetKernelExecInfo(cl_kernel kernel, cl_uint name, size_t bytes, const void *value) {
    if (name == CL_KERNEL_EXEC_INFO_DEVICE_PTRS_EXT)
        name = CL_KERNEL_EXEC_INFO_SVM_PTRS;
    return BELOW(clSetKernelExecInfo)(kernel, name, bytes, value);
}

/* A device that only has buffer addresses does not accept host pointers, so these calls fail. */
cl_status clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool blocking, void *destination,
                             const void *source, size_t bytes, cl_uint count,
                             const cl_event *events, cl_event *event) {
    if (getenv("UHAL_LAYER_BUFFERS") != NULL)
        return CL_INVALID_OPERATION;
    return BELOW(clEnqueueSVMMemcpy)(queue, blocking, destination, source, bytes, count, events,
                                     event);
}

cl_status clGetEventProfilingInfo(cl_event event, cl_uint name, size_t bytes, void *value,
                                  size_t *needed) {
    const uint64_t none = 0;
    cl_uint command = 0;
    BELOW(clGetEventInfo)(event, CL_EVENT_COMMAND_TYPE, sizeof command, &command, NULL);
    if (getenv("UHAL_LAYER_UNTIMED") != NULL && command == CL_COMMAND_MARKER)
        return answer(&none, sizeof none, bytes, value, needed);
    return BELOW(clGetEventProfilingInfo)(event, name, bytes, value, needed);
}

void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
    if (getenv("UHAL_LAYER_BUFFERS") != NULL && strcmp(name, "clSetKernelArgDevicePointerEXT") == 0)
        return (void *)clSetKernelArgDevicePointerEXT;
    return BELOW(clGetExtensionFunctionAddressForPlatform)(platform, name);
}
