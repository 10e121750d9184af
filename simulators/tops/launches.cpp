// Kernel launches, and queries of functions.
#include <algorithm>

#include "kernel_work.h"
#include "operations.h"

using namespace tops_sim;

namespace {

struct LaunchOptions {
    bool extended = false; // through topsModuleLaunchKernelEx
    bool cooperative = false;
    unsigned sub_threads[3] = {1, 1, 1};
};

// Content of the configuration, in the form that this library reads.
struct Configuration {
    sim::LaunchShape shape;
    LaunchOptions options;
    topsStream_t stream;
};

topsError_t check_options(const DeviceState &device, const sim::LaunchShape &shape,
                          const LaunchOptions &options) {
    const Profile &profile = device.profile;
    if (profile.sub_threads && !options.extended) {
        return refuse(topsErrorNotSupported,
                      "this device takes launches of topsModuleLaunchKernelEx only");
    }
    if (profile.sub_threads && shape.block[2] != 1) {
        return refuse(topsErrorInvalidValue, "a block has no third axis on this device");
    }
    const uint64_t sub_threads =
        uint64_t{options.sub_threads[0]} * options.sub_threads[1] * options.sub_threads[2];
    const unsigned most = profile.sub_threads ? max_sub_threads : 1;
    if (sub_threads == 0 || sub_threads > most) {
        return refuse(topsErrorInvalidValue, std::to_string(sub_threads) +
                                                 " threads of a SIP, it has " +
                                                 std::to_string(most));
    }
    if (options.cooperative && shape.blocks() > profile.clusters) {
        return refuse(topsErrorCooperativeLaunchTooLarge,
                      "the device holds " + std::to_string(profile.clusters) + " blocks");
    }
    return topsSuccess;
}

topsError_t launch(Call &call, topsFunction_t handle, const Configuration &wanted,
                   void **parameters, void **extra) {
    const std::shared_ptr<Function> function = call.runtime.functions.find(handle);
    const std::shared_ptr<Stream> stream = own_stream_of(call, wanted.stream);
    if (function == nullptr || stream == nullptr || function->module->device != call.device) {
        return refuse(topsErrorInvalidHandle,
                      "the function or the stream is stale or not of the current device");
    }
    const bool limited =
        (stream->limit_clusters != 0 && wanted.shape.blocks() > stream->limit_clusters) ||
        (stream->limit_sips != 0 && wanted.shape.block[0] > stream->limit_sips);
    if (limited) {
        return refuse(topsErrorLaunchOutOfResources, "the stream's launch limit is lower");
    }
    topsError_t result = check_options(*call.device, wanted.shape, wanted.options);
    Operation operation;
    if (result == topsSuccess) {
        result =
            make_kernel_call(call, function, wanted.shape, parameters, extra, operation.kernel);
    }
    if (result != topsSuccess) {
        return result;
    }
    // Kernels see the threads of a SIP as a third axis, which blocks do not have.
    operation.kernel->shape.block[2] *= wanted.options.sub_threads[0] *
                                        wanted.options.sub_threads[1] *
                                        wanted.options.sub_threads[2];
    return enqueue(call, *stream, std::move(operation));
}

template <class Config>
topsError_t read_configuration(const Config &config, Configuration &wanted) {
    if (config.localSmemBytes != 0 || config.numAttrs > 8 ||
        (config.numAttrs != 0 && config.attrs == nullptr)) {
        return refuse(topsErrorInvalidConfiguration, "the configuration has another form");
    }
    wanted.shape = {{config.gridDim.x, config.gridDim.y, config.gridDim.z},
                    {config.blockDim.x, config.blockDim.y, config.blockDim.z},
                    static_cast<uint32_t>(config.dynamicSmemBytes)};
    wanted.stream = config.stream;
    wanted.options.extended = true;
    for (unsigned index = 0; index < config.numAttrs; ++index) {
        const topsLaunchAttribute &attribute = config.attrs[index];
        if (attribute.id == topsLaunchAttributeCooperative) {
            wanted.options.cooperative = attribute.val.cooperative != 0;
        } else if (attribute.id == topsLaunchAttributeThreadDimension) {
            std::copy(attribute.val.ThreadDim, attribute.val.ThreadDim + 3,
                      wanted.options.sub_threads);
        }
    }
    return topsSuccess;
}

} // namespace

topsError_t topsModuleLaunchKernel(topsFunction_t f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, topsStream_t stream,
                                   void **kernelParams, void **extra) {
    return on_device(__func__, [&](Call &call) {
        const Configuration wanted = {
            {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes},
            {},
            stream};
        return launch(call, f, wanted, kernelParams, extra);
    });
}

topsError_t topsModuleLaunchKernelEx(const void *config, topsFunction_t f, void **kernelParams,
                                     void **extra) {
    return on_device(__func__, [&](Call &call) {
        if (config == nullptr) {
            return topsErrorInvalidValue;
        }
        Configuration wanted = {};
        const topsError_t read =
            call.runtime.readings.launch_config == 72
                ? read_configuration(*static_cast<const uhalTopsLaunchConfig72 *>(config), wanted)
                : read_configuration(*static_cast<const uhalTopsLaunchConfig64 *>(config), wanted);
        return read != topsSuccess ? read : launch(call, f, wanted, kernelParams, extra);
    });
}

topsError_t topsFuncGetAttribute(int *value, topsFunction_attribute attrib, topsFunction_t hfunc) {
    return on_device(__func__, [&](Call &call) {
        const std::shared_ptr<Function> function = call.runtime.functions.find(hfunc);
        if (function == nullptr || value == nullptr) {
            return function == nullptr ? topsErrorInvalidDeviceFunction : topsErrorInvalidValue;
        }
        const Profile &profile = function->module->device->profile;
        switch (attrib) {
        case TOPS_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value = static_cast<int>(max_threads(call.runtime, *function));
            return topsSuccess;
        case TOPS_FUNC_ATTRIBUTE_BINARY_VERSION:
            *value = 100 * profile.major() + 10 * profile.minor();
            return topsSuccess;
        case TOPS_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        case TOPS_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        case TOPS_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        case TOPS_FUNC_ATTRIBUTE_NUM_REGS:
        case TOPS_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *value = 0;
            return topsSuccess;
        }
        return topsErrorInvalidValue;
    });
}
