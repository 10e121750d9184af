/* Launches. OpenCL keeps arguments in the kernel object, so two threads cannot share one: a launch
 * borrows an idle kernel object. The object keeps its arguments, so a launch sets only the changed
 * arguments.
 */
#include "memory.h"
#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_EVERY = 32 };

typedef struct instance {
    struct instance *next;
    cl_kernel kernel;
    uint64_t changes;       /* the device's `changes` when the pointers were set */
    uint64_t reached;       /* `changes` + 1 when the accessible allocations were set; 0: not set */
    unsigned char *values;  /* last values of the arguments, at `offsets` */
    unsigned char is_set[]; /* of each argument */
} instance;

typedef struct function {
    uhal_cl_device *device;
    cl_program program;
    char *name;
    uhalClArgument *arguments;
    uint32_t *offsets; /* bytes to each argument's last value */
    uint32_t count;
    uint32_t value_bytes;
    bool indirect;
    _Atomic(instance *) idle; /* most recently returned */
    pthread_mutex_t lock;     /* for `others`, the other idle instances */
    instance *others;
} function;

/* Number of bytes kept of an argument's last value. */
static uint32_t remembered_bytes(const uhalClArgument *argument) {
    return argument->kind == UHAL_CL_ARGUMENT_VALUE ? argument->size : sizeof(uint64_t);
}

/* -- native kernels ---------------------------------------------------------------------------- */

/* Lets a kernel access memory through pointers in memory. For unified memory, one call for each
 * kind of access is enough; other memory is allowed allocation by allocation. */
static int allow_indirect(const function *owner, instance *one) {
    uhal_cl_device *device = owner->device;
    if (device->info.memory == UHAL_CL_MEMORY_USM) {
        static const cl_uint KINDS[] = {CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL,
                                        CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL,
                                        CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL};
        const cl_bool yes = CL_TRUE;
        for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; ++i) {
            const int status =
                uhal_cl.cl.clSetKernelExecInfo(one->kernel, KINDS[i], sizeof yes, &yes);
            if (status != 0)
                return status;
        }
        return 0;
    }
    const cl_uint name = device->info.memory == UHAL_CL_MEMORY_BUFFER
                             ? CL_KERNEL_EXEC_INFO_DEVICE_PTRS_EXT
                             : CL_KERNEL_EXEC_INFO_SVM_PTRS;
    size_t count;
    uint64_t *starts = uhal_cl_reached(device, &count);
    int status = starts == NULL ? CL_OUT_OF_HOST_MEMORY : 0;
    if (count > 0)
        status = uhal_cl.cl.clSetKernelExecInfo(one->kernel, name, count * sizeof *starts, starts);
    free(starts);
    return status;
}

static int make(const function *owner, instance **made) {
    instance *one = calloc(1, sizeof *one + owner->count + owner->value_bytes);
    if (one == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    cl_int status = 0;
    one->values = one->is_set + owner->count;
    one->kernel = uhal_cl.cl.clCreateKernel(owner->program, owner->name, &status);
    if (status == 0 && owner->indirect && owner->device->info.memory == UHAL_CL_MEMORY_USM) {
        status = allow_indirect(owner, one);
        if (status != 0)
            uhal_cl.cl.clReleaseKernel(one->kernel);
    }
    if (status != 0) {
        free(one);
        return status;
    }
    *made = one;
    return 0;
}

static int take(function *owner, instance **taken) {
    *taken = atomic_exchange(&owner->idle, NULL);
    if (*taken != NULL)
        return 0;
    pthread_mutex_lock(&owner->lock);
    *taken = owner->others;
    if (*taken != NULL)
        owner->others = (*taken)->next;
    pthread_mutex_unlock(&owner->lock);
    return *taken != NULL ? 0 : make(owner, taken);
}

static void give_back(function *owner, instance *one) {
    one = atomic_exchange(&owner->idle, one);
    if (one == NULL)
        return;
    pthread_mutex_lock(&owner->lock);
    one->next = owner->others;
    owner->others = one;
    pthread_mutex_unlock(&owner->lock);
}

static void destroy_instance(instance *one) {
    uhal_cl.cl.clReleaseKernel(one->kernel);
    free(one);
}

/* -- functions --------------------------------------------------------------------------------- */

static void forget(function *one) {
    free(one->offsets);
    free(one->arguments);
    free(one->name);
    free(one);
}

uhalClResult uhalClKernelCreate(void **handle, const uhalClKernelInfo *info) {
    function *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    made->device = info->context;
    made->program = info->program;
    made->count = info->argument_count;
    made->indirect = info->indirect != 0;
    made->name = malloc(strlen(info->name) + 1);
    made->arguments = calloc(made->count + 1, sizeof *made->arguments);
    made->offsets = calloc(made->count + 1, sizeof *made->offsets);
    if (made->name == NULL || made->arguments == NULL || made->offsets == NULL) {
        forget(made);
        return CL_OUT_OF_HOST_MEMORY;
    }
    strcpy(made->name, info->name);
    for (uint32_t i = 0; i < made->count; ++i) {
        made->arguments[i] = info->arguments[i];
        made->offsets[i] = made->value_bytes;
        made->value_bytes += remembered_bytes(&info->arguments[i]);
    }
    instance *first;
    const int status = make(made, &first);
    if (status != 0) {
        forget(made);
        return status;
    }
    atomic_init(&made->idle, first);
    pthread_mutex_init(&made->lock, NULL);
    atomic_fetch_add(&uhal_cl.live[UHAL_CL_KIND_FUNCTION], 1);
    *handle = made;
    return 0;
}

uhalClResult uhalClKernelDestroy(void *handle) {
    function *one = handle;
    instance *idle = atomic_exchange(&one->idle, NULL);
    if (idle != NULL)
        destroy_instance(idle);
    while (one->others != NULL) {
        idle = one->others;
        one->others = idle->next;
        destroy_instance(idle);
    }
    const int status = uhal_cl.cl.clReleaseProgram(one->program);
    pthread_mutex_destroy(&one->lock);
    forget(one);
    atomic_fetch_sub(&uhal_cl.live[UHAL_CL_KIND_FUNCTION], 1);
    return status;
}

uhalClResult uhalClKernelGetFacts(uhalClKernelFacts *facts, void *handle) {
    function *owner = handle;
    instance *fresh;
    /* Queries a new kernel object, because for a used object the driver would also count the local
     * memory of its arguments. */
    int status = make(owner, &fresh);
    if (status != 0)
        return status;
    const struct {
        cl_uint name;
        uint64_t *value;
    } wanted[] = {{CL_KERNEL_WORK_GROUP_SIZE, &facts->block_threads},
                  {CL_KERNEL_LOCAL_MEM_SIZE, &facts->shared_bytes},
                  {CL_KERNEL_PRIVATE_MEM_SIZE, &facts->private_bytes}};
    for (size_t i = 0; status == 0 && i < sizeof wanted / sizeof *wanted; ++i)
        status = uhal_cl.cl.clGetKernelWorkGroupInfo(fresh->kernel, owner->device->device,
                                                     wanted[i].name, sizeof *wanted[i].value,
                                                     wanted[i].value, NULL);
    destroy_instance(fresh);
    return status;
}

uhalClResult uhalClKernelGetProgram(void **program, void *handle) {
    *program = ((const function *)handle)->program;
    return 0;
}

/* -- launches ---------------------------------------------------------------------------------- */

static int set_native(const function *owner, const instance *one, uint32_t index,
                      const void *value) {
    const uhalClArgument *argument = &owner->arguments[index];
    uint64_t word;
    switch (argument->kind) {
    case UHAL_CL_ARGUMENT_VALUE:
        return uhal_cl.cl.clSetKernelArg(one->kernel, index, argument->size, value);
    case UHAL_CL_ARGUMENT_SHARED:
        memcpy(&word, value, sizeof word);
        return uhal_cl.cl.clSetKernelArg(one->kernel, index, word, NULL);
    default:
        memcpy(&word, value, sizeof word);
        if (owner->device->info.memory == UHAL_CL_MEMORY_BUFFER)
            return owner->device->set_address(one->kernel, index, word);
        return owner->device->set_pointer(one->kernel, index, (const void *)(uintptr_t)word);
    }
}

static int set_arguments(const function *owner, instance *one, uint64_t shared_bytes,
                         void **parameters) {
    for (uint32_t i = 0; i < owner->count; ++i) {
        const uhalClArgument *argument = &owner->arguments[i];
        const void *value;
        if (argument->kind == UHAL_CL_ARGUMENT_SHARED)
            value = &shared_bytes;
        else if (argument->kind == UHAL_CL_ARGUMENT_VARIABLE)
            value = &argument->address;
        else
            value = *parameters++;
        unsigned char *last = one->values + owner->offsets[i];
        const size_t bytes = remembered_bytes(argument);
        if (one->is_set[i] && memcmp(last, value, bytes) == 0)
            continue;
        one->is_set[i] = 0;
        const int status = set_native(owner, one, i, value);
        if (status != 0)
            return status;
        memcpy(last, value, bytes);
        one->is_set[i] = 1;
    }
    return 0;
}

/* A pointer set earlier may now be the address of other memory. */
static void forget_pointers(const function *owner, instance *one, uint64_t changes) {
    for (uint32_t i = 0; i < owner->count; ++i)
        if (owner->arguments[i].kind == UHAL_CL_ARGUMENT_POINTER)
            one->is_set[i] = 0;
    one->changes = changes;
}

static int prepare(const function *owner, instance *one, uint64_t shared_bytes, void **parameters) {
    const uint64_t changes = atomic_load(&owner->device->changes);
    if (one->changes != changes)
        forget_pointers(owner, one, changes);
    if (owner->indirect && owner->device->info.memory != UHAL_CL_MEMORY_USM &&
        one->reached != changes + 1) {
        const int status = allow_indirect(owner, one);
        if (status != 0)
            return status;
        one->reached = changes + 1; /* never 0, which means not set */
    }
    return set_arguments(owner, one, shared_bytes, parameters);
}

uhalClResult uhalClLaunchKernel(void *handle, unsigned int grid_x, unsigned int grid_y,
                                unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                unsigned int block_z, unsigned int shared_bytes,
                                void *stream_handle, void **parameters, void **extra) {
    (void)extra;
    function *owner = handle;
    uhal_cl_stream *stream = stream_handle;
    instance *one;
    int status = take(owner, &one);
    if (status != 0)
        return status;
    /* A local argument has at least one byte. */
    status = prepare(owner, one, shared_bytes == 0 ? 1 : shared_bytes, parameters);
    if (status == 0) {
        const size_t block[] = {block_x, block_y, block_z};
        const size_t grid[] = {(size_t)grid_x * block_x, (size_t)grid_y * block_y,
                               (size_t)grid_z * block_z};
        const cl_uint dimensions = grid[2] != 1 ? 3 : grid[1] != 1 ? 2 : 1;
        status = uhal_cl.cl.clEnqueueNDRangeKernel(stream->queue, one->kernel, dimensions, NULL,
                                                   grid, block, 0, NULL, NULL);
    }
    give_back(owner, one);
    if (status != 0)
        return status;
    const uint64_t ticket = atomic_fetch_add(&stream->submitted, 1) + 1;
    /* A driver may hold back commands until a flush. */
    return ticket % FLUSH_EVERY == 0 ? uhal_cl.cl.clFlush(stream->queue) : 0;
}
