// Modules and launches.

#include "api.h"
#include "capture.h"

using namespace uhal_host;

extern "C" {

static_assert(sizeof(uhalHostParameter) == sizeof(uhal_host_parameter), "the same four fields");

uhalHostResult uhalHostModuleLoadData(void **module, const void *image, size_t bytes) {
    return with_device([&](Device &device) -> int {
        if (image == nullptr || bytes == 0) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        int error = UHAL_HOST_SUCCESS;
        Module *const loaded = Module::load(device, image, bytes, error);
        if (loaded != nullptr) {
            device.runtime.live_modules.fetch_add(1);
            *module = loaded;
        }
        return error;
    });
}

uhalHostResult uhalHostModuleUnload(void *handle) {
    return guarded([&]() -> int {
        if (handle == nullptr) {
            return UHAL_HOST_ERROR_INVALID_HANDLE;
        }
        Module *const module = static_cast<Module *>(handle);
        module->device().runtime.live_modules.fetch_sub(1);
        module->drop();
        return UHAL_HOST_SUCCESS;
    });
}

uhalHostResult uhalHostModuleGetKernelCount(unsigned int *count, void *handle) {
    *count = static_cast<unsigned int>(static_cast<Module *>(handle)->kernel_count());
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostModuleGetKernel(uhalHostKernelInfo *info, unsigned int index, void *handle) {
    Module &module = *static_cast<Module *>(handle);
    if (index >= module.kernel_count()) {
        return UHAL_HOST_ERROR_INVALID_VALUE;
    }
    const uhal_host_kernel &kernel = *module.function(index).kernel;
    info->entry = kernel.entry;
    info->parameter_text = kernel.parameter_text;
    info->parameters = reinterpret_cast<const uhalHostParameter *>(kernel.parameters);
    info->parameter_count = kernel.parameter_count;
    info->max_threads_per_block = kernel.max_threads;
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostModuleGetFunction(void **function, void *handle, const char *name) {
    Function *const found = static_cast<Module *>(handle)->find_function(name);
    if (found == nullptr) {
        return UHAL_HOST_ERROR_NOT_FOUND;
    }
    *function = found;
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostModuleGetGlobal(uint64_t *address, size_t *bytes, void *handle,
                                       const char *name) {
    const uhal_host_global *const found = static_cast<Module *>(handle)->find_global(name);
    if (found == nullptr) {
        return UHAL_HOST_ERROR_NOT_FOUND;
    }
    *address = reinterpret_cast<uintptr_t>(found->address);
    *bytes = found->bytes;
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostFuncGetAttributes(uhalHostFuncAttributes *attributes, void *handle) {
    const Function &function = *static_cast<Function *>(handle);
    attributes->max_threads_per_block = function.kernel->max_threads;
    attributes->max_dynamic_shared_bytes = UHAL_HOST_MAX_SHARED_BYTES;
    attributes->nanoseconds_per_item = function.nanoseconds_per_item.load();
    return UHAL_HOST_SUCCESS;
}

uhalHostResult uhalHostLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                    unsigned int block_z, unsigned int shared_bytes, void *handle,
                                    void **parameters, void **extra) {
    return with_stream(handle, [&](Stream &stream) -> int {
        const Launch launch = make_launch(function, {grid_x, grid_y, grid_z},
                                          {block_x, block_y, block_z}, shared_bytes, parameters);
        if (const int error = check_launch(launch)) {
            return error;
        }
        if (extra != nullptr) {
            return UHAL_HOST_ERROR_NOT_SUPPORTED;
        }
        if (stream.capturing()) {
            return Capture::record(stream, launch);
        }
        stream.launch(launch);
        return UHAL_HOST_SUCCESS;
    });
}

} // extern "C"
