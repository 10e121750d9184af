// Primary and created contexts, and each thread's current context.
#include <algorithm>

#include "operations.h"

using namespace cuda_sim;

namespace {

constexpr unsigned api_version = 3020;
constexpr int greatest_priority = -5;

CUresult make_current(Call &call, CUcontext context, bool push) {
    std::vector<CUcontext> &stack = context_stack();
    if (context != nullptr && call.driver.contexts.find(context) == nullptr) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (push || stack.empty()) {
        stack.push_back(context);
    } else {
        stack.back() = context;
    }
    return CUDA_SUCCESS;
}

CUresult create(CUcontext *context, unsigned flags, CUdevice ordinal, const char *name) {
    return initialized(name, [&](Call &call) {
        DeviceState *device = call.driver.device(ordinal);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (context == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *context = call.driver.make_context(*device, flags, false)->handle;
        context_stack().push_back(*context);
        return CUDA_SUCCESS;
    });
}

template <class Body> CUresult on_context(CUcontext context, Body body) {
    if (context == nullptr) {
        return body();
    }
    CUcontext before = nullptr;
    const CUresult pushed = cuCtxPushCurrent_v2(context);
    if (pushed != CUDA_SUCCESS) {
        return pushed;
    }
    const CUresult result = body();
    cuCtxPopCurrent_v2(&before);
    return result;
}

} // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
    return initialized(__func__, [&](Call &call) {
        DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (pctx == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (device->device.fault != sim::Status::ok) {
            return to_result(device->device.fault);
        }
        if (device->primary == nullptr) {
            device->primary = call.driver.make_context(*device, device->primary_flags, true);
        }
        ++device->primary_retained;
        *pctx = device->primary->handle;
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    return initialized(__func__, [&](Call &call) {
        DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (device->primary_retained == 0) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (--device->primary_retained == 0) {
            const std::shared_ptr<Context> context = std::move(device->primary);
            device->primary = nullptr;
            call.driver.destroy_context(call.lock, context);
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
    return initialized(__func__, [&](Call &call) {
        const DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (flags == nullptr || active == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *flags = device->primary_flags;
        *active = device->primary != nullptr;
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    return initialized(__func__, [&](Call &call) {
        DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        device->primary_flags = flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    return initialized(__func__, [&](Call &call) {
        DeviceState *device = call.driver.device(dev);
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        if (device->primary != nullptr) {
            const std::shared_ptr<Context> context = std::move(device->primary);
            device->primary = nullptr;
            device->primary_retained = 0;
            call.driver.destroy_context(call.lock, context);
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
    return create(pctx, flags, dev, __func__);
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
    if (paramsArray != nullptr || numParams != 0) {
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    return create(pctx, flags, dev, __func__);
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
    if (ctxCreateParams != nullptr) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return create(pctx, flags, dev, __func__);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    return initialized(__func__, [&](Call &call) {
        const std::shared_ptr<Context> context = call.driver.contexts.find(ctx);
        if (context == nullptr || context->primary) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        std::vector<CUcontext> &stack = context_stack();
        if (!stack.empty() && stack.back() == ctx) {
            stack.pop_back();
        }
        call.driver.destroy_context(call.lock, context);
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
    (void)flags;
    return cuCtxGetCurrent(pctx);
}

CUresult cuCtxDetach(CUcontext ctx) {
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxGetCurrent(CUcontext *pctx) {
    return initialized(__func__, [&](Call &) {
        if (pctx == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *pctx = context_stack().empty() ? nullptr : context_stack().back();
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
    return initialized(__func__, [&](Call &call) { return make_current(call, ctx, false); });
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    return initialized(__func__, [&](Call &call) {
        return ctx == nullptr ? CUDA_ERROR_INVALID_CONTEXT : make_current(call, ctx, true);
    });
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
    return initialized(__func__, [&](Call &) {
        std::vector<CUcontext> &stack = context_stack();
        if (stack.empty()) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (pctx != nullptr) {
            *pctx = stack.back();
        }
        stack.pop_back();
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetDevice(CUdevice *device) {
    return in_context(__func__, [&](Call &call) {
        if (device == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *device = call.device->device.ordinal;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSynchronize() {
    return in_context(__func__, [&](Call &call) {
        const CUresult unsafe = check_capture_unsafe(call);
        return unsafe != CUDA_SUCCESS
                   ? unsafe
                   : wait_for(call, call.driver.scheduler.pending(call.device->device));
    });
}

// The forms of CUDA 13 name a context; null stands for the current context.
CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    return on_context(ctx, [] { return cuCtxSynchronize(); });
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    return on_context(ctx, [&] { return cuCtxGetDevice(device); });
}

CUresult cuCtxSetFlags(unsigned int flags) {
    return in_context(__func__, [&](Call &call) {
        call.context->flags = flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxResetPersistingL2Cache() {
    return in_context(__func__, [](Call &) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    return initialized(__func__, [&](Call &call) {
        if (ctx != nullptr && call.driver.contexts.find(ctx) == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        *version = api_version;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    return in_context(__func__, [&](Call &call) {
        *flags = call.context->flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId) {
    return initialized(__func__, [&](Call &call) {
        const CUcontext current = context_stack().empty() ? nullptr : context_stack().back();
        const auto context = call.driver.contexts.find(ctx == nullptr ? current : ctx);
        if (context == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        *ctxId = context->id;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
    return in_context(__func__, [&](Call &call) {
        const auto found = call.context->limits.find(limit);
        if (found == call.context->limits.end()) {
            return CUDA_ERROR_UNSUPPORTED_LIMIT;
        }
        *pvalue = found->second;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    return in_context(__func__, [&](Call &call) {
        const auto found = call.context->limits.find(limit);
        if (found == call.context->limits.end()) {
            return CUDA_ERROR_UNSUPPORTED_LIMIT;
        }
        found->second = value;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig) {
    return in_context(__func__, [&](Call &) {
        *pconfig = CU_FUNC_CACHE_PREFER_NONE;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    (void)config;
    return in_context(__func__, [&](Call &) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *pConfig) {
    return in_context(__func__, [&](Call &) {
        *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    (void)config;
    return in_context(__func__, [&](Call &) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority) {
    return in_context(__func__, [&](Call &) {
        if (leastPriority != nullptr) {
            *leastPriority = 0;
        }
        if (greatestPriority != nullptr) {
            *greatestPriority = greatest_priority;
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
    return in_context(__func__, [&](Call &call) {
        const std::shared_ptr<Context> peer = call.driver.contexts.find(peerContext);
        if (peer == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        if (Flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (peer->device == call.device) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
        ++call.driver.access_changes;
        return call.context->peers.insert(peer.get()).second
                   ? CUDA_SUCCESS
                   : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    });
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
    return in_context(__func__, [&](Call &call) {
        const std::shared_ptr<Context> peer = call.driver.contexts.find(peerContext);
        if (peer == nullptr) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        ++call.driver.access_changes;
        return call.context->peers.erase(peer.get()) != 0 ? CUDA_SUCCESS
                                                          : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    });
}
