#define _POSIX_C_SOURCE 200809L

#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "fault.h"

/* Calls a function of the runtime and stores its name for errors. */
#define CALL(module_call, function, ...)                                                           \
    (*(module_call) = #function, uhal_hsa.hsa.function(__VA_ARGS__))

/* -- kernels ----------------------------------------------------------------------------------- */

typedef struct hidden_name {
    const char *name;
    uhal_aql_hidden_kind kind;
} hidden_name;

/* The metadata's names for arguments that a launch fills in. All other hidden arguments are zero:
 * grid offsets, partial blocks (a grid has neither), and services of HIP's and OpenCL's
 * launchers. */
static const hidden_name HIDDEN_NAMES[] = {
    {"hidden_block_count_x", UHAL_AQL_BLOCK_COUNT_X},
    {"hidden_block_count_y", UHAL_AQL_BLOCK_COUNT_Y},
    {"hidden_block_count_z", UHAL_AQL_BLOCK_COUNT_Z},
    {"hidden_group_size_x", UHAL_AQL_BLOCK_SIZE_X},
    {"hidden_group_size_y", UHAL_AQL_BLOCK_SIZE_Y},
    {"hidden_group_size_z", UHAL_AQL_BLOCK_SIZE_Z},
    {"hidden_grid_dims", UHAL_AQL_GRID_DIMENSIONS},
    {"hidden_dynamic_lds_size", UHAL_AQL_DYNAMIC_GROUP_BYTES},
    {"hidden_queue_ptr", UHAL_AQL_QUEUE},
};

static int hidden_kind(const char *name, uhal_aql_hidden_kind *kind) {
    for (size_t i = 0; i < sizeof HIDDEN_NAMES / sizeof *HIDDEN_NAMES; ++i)
        if (strcmp(HIDDEN_NAMES[i].name, name) == 0) {
            *kind = HIDDEN_NAMES[i].kind;
            return 1;
        }
    return 0;
}

_Static_assert(sizeof(uhalHsaParameter) == sizeof(struct uhal_parameter),
               "the same in two headers");

/* Copies a kernel's metadata. */
static hsa_status_t describe(uhal_hsa_kernel *kernel, const uhalHsaKernelInfo *info) {
    struct uhal_parameter *parameters = malloc((info->parameter_count + 1) * sizeof *parameters);
    uhal_aql_hidden *hidden = malloc((info->hidden_count + 1) * sizeof *hidden);
    kernel->info = *info;
    kernel->info.name = strdup(info->name);
    kernel->info.symbol = strdup(info->symbol);
    kernel->info.parameters = (const uhalHsaParameter *)parameters;
    kernel->info.hidden = NULL;
    kernel->aql.parameters = parameters;
    kernel->aql.hidden = hidden;
    if (parameters == NULL || hidden == NULL || kernel->info.name == NULL ||
        kernel->info.symbol == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    memcpy(parameters, info->parameters, info->parameter_count * sizeof *parameters);
    kernel->aql.parameter_count = info->parameter_count;
    for (uint32_t i = 0; i < info->hidden_count; ++i) {
        uhal_aql_hidden *next = &hidden[kernel->aql.hidden_count];
        next->offset = info->hidden[i].offset;
        kernel->aql.hidden_count += (uint32_t)hidden_kind(info->hidden[i].kind, &next->kind);
    }
    kernel->aql.kernarg_bytes = info->kernarg_bytes;
    kernel->aql.group_bytes = info->group_bytes;
    kernel->aql.private_bytes = info->private_bytes;
    return HSA_STATUS_SUCCESS;
}

static void forget(uhal_hsa_kernel *kernel) {
    free((void *)kernel->aql.parameters);
    free((void *)kernel->aql.hidden);
    free((void *)kernel->info.name);
    free((void *)kernel->info.symbol);
}

static hsa_status_t find(uhal_hsa_module *module, uhal_hsa_kernel *kernel, const char **call) {
    hsa_executable_symbol_t symbol;
    const hsa_status_t status = CALL(call, hsa_executable_get_symbol_by_name, module->executable,
                                     kernel->info.symbol, &module->device->agent, &symbol);
    if (status != HSA_STATUS_SUCCESS)
        return status;
    return CALL(call, hsa_executable_symbol_get_info, symbol,
                HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &kernel->aql.object);
}

/* -- load and unload --------------------------------------------------------------------------- */

static void drop(void *object) {
    uhal_hsa_module *module = object;
    if (atomic_fetch_sub(&module->holders, 1) != 1)
        return;
    if (module->executable.handle != 0)
        uhal_hsa.hsa.hsa_executable_destroy(module->executable);
    for (uint32_t i = 0; i < module->kernel_count; ++i)
        forget(&module->kernels[i]);
    free(module->kernels);
    free(module->image);
    free(module);
}

static hsa_status_t load_image(uhal_hsa_module *module, size_t bytes, const char **call) {
    hsa_code_object_reader_t reader;
    hsa_status_t status = CALL(call, hsa_executable_create_alt, HSA_PROFILE_FULL,
                               HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &module->executable);
    if (status != HSA_STATUS_SUCCESS)
        return status;
    status = CALL(call, hsa_code_object_reader_create_from_memory, module->image, bytes, &reader);
    if (status != HSA_STATUS_SUCCESS)
        return status;
    status = CALL(call, hsa_executable_load_agent_code_object, module->executable,
                  module->device->agent, reader, NULL, NULL);
    uhal_hsa.hsa.hsa_code_object_reader_destroy(reader);
    if (status != HSA_STATUS_SUCCESS)
        return status;
    return CALL(call, hsa_executable_freeze, module->executable, NULL);
}

static hsa_status_t load(uhal_hsa_module *module, const void *image, size_t bytes,
                         const uhalHsaKernelInfo *kernels, unsigned int count, const char **call) {
    module->image = malloc(bytes + 1);
    module->kernels = calloc(count + 1, sizeof *module->kernels);
    if (module->image == NULL || module->kernels == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    memcpy(module->image, image, bytes);
    hsa_status_t status = load_image(module, bytes, call);
    for (unsigned int i = 0; i < count && status == HSA_STATUS_SUCCESS; ++i) {
        module->kernel_count = i + 1;
        status = describe(&module->kernels[i], &kernels[i]);
        if (status == HSA_STATUS_SUCCESS)
            status = find(module, &module->kernels[i], call);
    }
    return status;
}

uhalHsaResult uhalHsaModuleLoad(void **handle, const void *image, size_t bytes,
                                const uhalHsaKernelInfo *kernels, unsigned int count,
                                const char **call) {
    uhal_hsa_device *device = uhal_hsa_current();
    *call = "uhalHsaModuleLoad";
    if (device == NULL)
        return HSA_STATUS_ERROR_INVALID_AGENT;
    int status = uhal_hsa_check(device);
    if (status != 0)
        return status;
    uhal_hsa_module *module = calloc(1, sizeof *module);
    if (module == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    module->device = device;
    atomic_init(&module->holders, 1);
    status = (int)load(module, image, bytes, kernels, count, call);
    if (status != 0) {
        drop(module);
        return status;
    }
    atomic_fetch_add(&uhal_hsa.live[UHAL_HSA_KIND_MODULE], 1);
    *handle = module;
    return 0;
}

/* The module's launches may be pending: each queue releases the module after its launches. */
uhalHsaResult uhalHsaModuleUnload(void *handle) {
    uhal_hsa_module *module = handle;
    uhal_hsa_device *device = module->device;
    pthread_mutex_lock(&device->lock);
    const uint32_t count = device->queue_count;
    pthread_mutex_unlock(&device->lock);
    for (uint32_t i = 0; i < count; ++i) {
        uhal_hsa_queue *queue = device->queues[i];
        const uint64_t submitted = uhal_aql_submitted(&queue->writer);
        if (uhal_hsa_queue_completed(queue) < submitted) {
            atomic_fetch_add(&module->holders, 1);
            uhal_hsa_queue_hold(queue, submitted, drop, module);
        }
    }
    drop(module);
    atomic_fetch_sub(&uhal_hsa.live[UHAL_HSA_KIND_MODULE], 1);
    return 0;
}

/* -- contents ---------------------------------------------------------------------------------- */

uhalHsaResult uhalHsaModuleGetFunction(void **function, void *handle, const char *name) {
    uhal_hsa_module *module = handle;
    for (uint32_t i = 0; i < module->kernel_count; ++i)
        if (strcmp(module->kernels[i].info.name, name) == 0) {
            *function = &module->kernels[i];
            return 0;
        }
    return HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
}

uhalHsaResult uhalHsaFuncGetInfo(uhalHsaKernelInfo *info, void *function) {
    *info = ((const uhal_hsa_kernel *)function)->info;
    return 0;
}

uhalHsaResult uhalHsaModuleGetGlobal(uint64_t *address, size_t *bytes, void *handle,
                                     const char *name) {
    uhal_hsa_module *module = handle;
    hsa_executable_symbol_t symbol;
    int32_t kind;
    uint32_t size;
    hsa_status_t status = uhal_hsa.hsa.hsa_executable_get_symbol_by_name(
        module->executable, name, &module->device->agent, &symbol);
    if (status != HSA_STATUS_SUCCESS)
        return (int)status;
    status =
        uhal_hsa.hsa.hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_TYPE, &kind);
    if (status == HSA_STATUS_SUCCESS && kind != HSA_SYMBOL_KIND_VARIABLE)
        status = HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;
    if (status == HSA_STATUS_SUCCESS)
        status = uhal_hsa.hsa.hsa_executable_symbol_get_info(
            symbol, HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS, address);
    if (status == HSA_STATUS_SUCCESS)
        status = uhal_hsa.hsa.hsa_executable_symbol_get_info(
            symbol, HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_SIZE, &size);
    *bytes = status == HSA_STATUS_SUCCESS ? size : 0;
    return (int)status;
}
