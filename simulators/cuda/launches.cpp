// Kernel launches, function attributes and occupancy.
#include <algorithm>
#include <cstring>

#include "kernel_work.h"
#include "operations.h"

using namespace cuda_sim;

namespace {

constexpr unsigned occupancy_flags = 1; // disable caching override

template <class Body> CUresult with_function(const char *name, CUfunction handle, Body body) {
    return in_context(name, [&](Call &call) {
        std::shared_ptr<Function> function;
        const CUresult refusal = function_of(call, handle, function);
        return refusal != CUDA_SUCCESS ? refusal : body(call, function);
    });
}

struct LaunchOptions {
    bool cooperative = false;
    unsigned cluster[3] = {1, 1, 1};
};

CUresult check_options(const Function &function, const sim::LaunchShape &shape,
                       const LaunchOptions &options) {
    const Profile &profile = function.module->context->device->profile;
    const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
    if (options.cooperative) {
        const uint64_t resident =
            uint64_t{resident_blocks(function, threads, shape.shared_bytes)} * profile.processors;
        if (shape.blocks() > resident) {
            return refuse(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                          "the device holds " + std::to_string(resident) + " of these blocks");
        }
    }
    const uint64_t blocks = uint64_t{options.cluster[0]} * options.cluster[1] * options.cluster[2];
    if (blocks == 1) {
        return CUDA_SUCCESS;
    }
    if (!profile.clusters) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "this device has no clusters");
    }
    const unsigned most = function.large_clusters ? 2 * max_cluster_blocks : max_cluster_blocks;
    bool whole = blocks != 0 && blocks <= most;
    for (size_t axis = 0; whole && axis < 3; ++axis) {
        whole = shape.grid[axis] % options.cluster[axis] == 0;
    }
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult launch(Call &call, const std::shared_ptr<Function> &function, sim::LaunchShape shape,
                const LaunchOptions &options, CUstream stream_handle, void **parameters,
                void **extra) {
    const std::shared_ptr<Stream> stream = stream_of(call, stream_handle);
    if (stream == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    // Unlike copies and waits, a launch needs all its objects in the current context.
    if (stream->context != call.context || function->module->context != call.context) {
        return refuse(CUDA_ERROR_INVALID_HANDLE, "stream and function are of different contexts");
    }
    Operation operation;
    operation.type = CU_GRAPH_NODE_TYPE_KERNEL;
    shape.cooperative = options.cooperative;
    CUresult result = make_kernel_call(function, shape, parameters, extra, operation.kernel);
    if (result == CUDA_SUCCESS) {
        result = check_options(*function, shape, options);
    }
    return result == CUDA_SUCCESS ? enqueue(call, *stream, std::move(operation)) : result;
}

CUresult read_options(const CUlaunchConfig &config, LaunchOptions &options) {
    for (unsigned index = 0; index < config.numAttrs; ++index) {
        const CUlaunchAttribute &attribute = config.attrs[index];
        int number = 0;
        std::memcpy(&number, attribute.value, sizeof number);
        switch (attribute.id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            options.cooperative = number != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            std::memcpy(options.cluster, attribute.value, sizeof options.cluster);
            break;
        default:
            break; // hints
        }
    }
    return config.numAttrs != 0 && config.attrs == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

CUresult get_attribute(const Function &function, CUfunction_attribute attribute, int *value) {
    const sim::Image &image = function.module->image;
    const unsigned binary = image.kind == sim::Image::Kind::cubin
                                ? image.target
                                : function.module->context->device->profile.target;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = static_cast<int>(max_threads(function));
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = static_cast<int>(function.entry->static_shared_bytes);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = static_cast<int>(function.entry->registers);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value =
            static_cast<int>(attribute == CU_FUNC_ATTRIBUTE_PTX_VERSION ? image.target : binary);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = static_cast<int>(function.max_dynamic_shared);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = function.shared_carveout;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = function.large_clusters;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = static_cast<int>(function.entry->local_bytes);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = static_cast<int>(image.constant_bytes);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = 0;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult set_attribute(Function &function, CUfunction_attribute attribute, int value) {
    const unsigned most = function.module->context->device->profile.shared_per_block_optin -
                          function.entry->static_shared_bytes;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || static_cast<unsigned>(value) > most) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        function.max_dynamic_shared = static_cast<unsigned>(value);
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        function.shared_carveout = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        function.large_clusters = value != 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult parameter_info(const Function &function, size_t index, size_t *offset, size_t *size) {
    const auto &parameters = function.entry->kernel.parameters;
    if (offset == nullptr || index >= parameters.size()) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *offset = parameters[index].offset;
    if (size != nullptr) {
        *size = parameters[index].size;
    }
    return CUDA_SUCCESS;
}

CUresult best_block(const char *name, int *grid, int *block, CUfunction handle,
                    CUoccupancyB2DSize shared_of_block, size_t shared, int limit) {
    return with_function(name, handle, [&](Call &call, const std::shared_ptr<Function> &function) {
        if (grid == nullptr || block == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        unsigned most = max_threads(*function);
        if (limit > 0) {
            most = std::min(most, static_cast<unsigned>(limit));
        }
        unsigned best = 0;
        unsigned best_threads = 0;
        unsigned best_blocks = 0;
        for (unsigned threads = most / warp * warp; threads >= warp; threads -= warp) {
            const size_t dynamic =
                shared_of_block == nullptr ? shared : shared_of_block(static_cast<int>(threads));
            const unsigned blocks = resident_blocks(*function, threads, dynamic);
            if (blocks * threads > best) {
                best = blocks * threads;
                best_threads = threads;
                best_blocks = blocks;
            }
        }
        *block = static_cast<int>(best_threads);
        *grid = static_cast<int>(best_blocks * call.device->profile.processors);
        return CUDA_SUCCESS;
    });
}

} // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void **kernelParams, void **extra) {
    return with_function(__func__, f, [&](Call &call, const std::shared_ptr<Function> &function) {
        const sim::LaunchShape shape = {
            {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
        return launch(call, function, shape, {}, hStream, kernelParams, extra);
    });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                          void **extra) {
    return with_function(__func__, f, [&](Call &call, const std::shared_ptr<Function> &function) {
        LaunchOptions options;
        if (config == nullptr || read_options(*config, options) != CUDA_SUCCESS) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const sim::LaunchShape shape = {
            {config->gridDimX, config->gridDimY, config->gridDimZ},
            {config->blockDimX, config->blockDimY, config->blockDimZ},
            config->sharedMemBytes,
        };
        return launch(call, function, shape, options, config->hStream, kernelParams, extra);
    });
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void **kernelParams) {
    return with_function(__func__, f, [&](Call &call, const std::shared_ptr<Function> &function) {
        const sim::LaunchShape shape = {
            {gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}, sharedMemBytes};
        LaunchOptions options;
        options.cooperative = true;
        return launch(call, function, shape, options, hStream, kernelParams, nullptr);
    });
}

CUresult cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc) {
    return with_function(__func__, hfunc, [&](Call &, const std::shared_ptr<Function> &function) {
        return pi == nullptr ? CUDA_ERROR_INVALID_VALUE : get_attribute(*function, attrib, pi);
    });
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
    return with_function(__func__, hfunc, [&](Call &, const std::shared_ptr<Function> &function) {
        return set_attribute(*function, attrib, value);
    });
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset,
                            size_t *paramSize) {
    return with_function(__func__, func, [&](Call &, const std::shared_ptr<Function> &function) {
        return parameter_info(*function, paramIndex, paramOffset, paramSize);
    });
}

CUresult cuFuncGetParamCount(CUfunction func, size_t *paramCount) {
    return with_function(__func__, func, [&](Call &, const std::shared_ptr<Function> &function) {
        if (paramCount == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *paramCount = function->entry->kernel.parameters.size();
        return CUDA_SUCCESS;
    });
}

CUresult cuFuncGetModule(CUmodule *hmod, CUfunction hfunc) {
    return with_function(__func__, hfunc, [&](Call &, const std::shared_ptr<Function> &function) {
        *hmod = function->module->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuFuncGetName(const char **name, CUfunction hfunc) {
    if (name == nullptr || hfunc == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return with_function(__func__, hfunc, [&](Call &, const std::shared_ptr<Function> &function) {
        *name = function->entry->kernel.entry.c_str();
        return CUDA_SUCCESS;
    });
}

CUresult cuFuncLoad(CUfunction function) {
    return with_function(__func__, function,
                         [](Call &, const std::shared_ptr<Function> &) { return CUDA_SUCCESS; });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    return with_function(__func__, function, [&](Call &, const std::shared_ptr<Function> &) {
        *state = CU_FUNCTION_LOADING_STATE_LOADED;
        return CUDA_SUCCESS;
    });
}

// The block shape has no effect: only launch functions of CUDA 3 use the shape. PyCUDA calls this
// before every launch.
CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
    const bool fits = x > 0 && y > 0 && z > 0;
    return with_function(__func__, hfunc, [&](Call &, const std::shared_ptr<Function> &) {
        return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
    (void)config;
    return with_function(__func__, hfunc,
                         [](Call &, const std::shared_ptr<Function> &) { return CUDA_SUCCESS; });
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
    (void)config;
    return with_function(__func__, hfunc,
                         [](Call &, const std::shared_ptr<Function> &) { return CUDA_SUCCESS; });
}

CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
    (void)dev;
    return cuFuncGetAttribute(pi, attrib, reinterpret_cast<CUfunction>(kernel));
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
    (void)dev;
    return cuFuncSetAttribute(reinterpret_cast<CUfunction>(kernel), attrib, val);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
    (void)dev;
    return cuFuncSetCacheConfig(reinterpret_cast<CUfunction>(kernel), config);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset,
                              size_t *paramSize) {
    return cuFuncGetParamInfo(reinterpret_cast<CUfunction>(kernel), paramIndex, paramOffset,
                              paramSize);
}

CUresult cuKernelGetParamCount(CUkernel kernel, size_t *paramCount) {
    return cuFuncGetParamCount(reinterpret_cast<CUfunction>(kernel), paramCount);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                     size_t dynamicSMemSize) {
    return with_function(__func__, func, [&](Call &, const std::shared_ptr<Function> &function) {
        if (numBlocks == nullptr || blockSize <= 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *numBlocks = static_cast<int>(
            resident_blocks(*function, static_cast<unsigned>(blockSize), dynamicSMemSize));
        return CUDA_SUCCESS;
    });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func,
                                                              int blockSize, size_t dynamicSMemSize,
                                                              unsigned int flags) {
    return flags > occupancy_flags ? CUDA_ERROR_INVALID_VALUE
                                   : cuOccupancyMaxActiveBlocksPerMultiprocessor(
                                         numBlocks, func, blockSize, dynamicSMemSize);
}

CUresult cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
    return best_block(__func__, minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                      dynamicSMemSize, blockSizeLimit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize,
                                                   CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
    return flags > occupancy_flags
               ? CUDA_ERROR_INVALID_VALUE
               : best_block(__func__, minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                            dynamicSMemSize, blockSizeLimit);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func,
                                                 int numBlocks, int blockSize) {
    return with_function(
        __func__, func, [&](Call &call, const std::shared_ptr<Function> &function) {
            if (dynamicSmemSize == nullptr || numBlocks <= 0 || blockSize <= 0) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const Profile &profile = call.device->profile;
            const size_t each = profile.shared_per_processor / static_cast<unsigned>(numBlocks);
            const size_t own =
                function->entry->static_shared_bytes + profile.shared_reserved_per_block;
            const size_t most =
                profile.shared_per_block_optin - function->entry->static_shared_bytes;
            *dynamicSmemSize = std::min(each > own ? each - own : 0, most);
            return CUDA_SUCCESS;
        });
}

CUresult cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func,
                                      const CUlaunchConfig *config) {
    return with_function(
        __func__, func, [&](Call &call, const std::shared_ptr<Function> &function) {
            LaunchOptions options;
            if (numClusters == nullptr || config == nullptr ||
                read_options(*config, options) != CUDA_SUCCESS) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (!call.device->profile.clusters) {
                return CUDA_ERROR_NOT_SUPPORTED;
            }
            const unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
            const unsigned blocks = options.cluster[0] * options.cluster[1] * options.cluster[2];
            const unsigned resident = resident_blocks(*function, threads, config->sharedMemBytes);
            *numClusters =
                static_cast<int>(resident * call.device->profile.processors / std::max(blocks, 1U));
            return CUDA_SUCCESS;
        });
}

CUresult cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func,
                                            const CUlaunchConfig *config) {
    return with_function(
        __func__, func, [&](Call &call, const std::shared_ptr<Function> &function) {
            if (clusterSize == nullptr || config == nullptr) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (!call.device->profile.clusters) {
                return CUDA_ERROR_NOT_SUPPORTED;
            }
            const unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
            const bool fits = resident_blocks(*function, threads, config->sharedMemBytes) != 0;
            const unsigned most =
                function->large_clusters ? 2 * max_cluster_blocks : max_cluster_blocks;
            *clusterSize = static_cast<int>(fits ? most : 0);
            return CUDA_SUCCESS;
        });
}
