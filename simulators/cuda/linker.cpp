// The driver's linker. It returns PTX instead of a driver's cubin, because the simulator executes
// no machine code.
#include "../images/ptx_link.h"
#include "module_images.h"

using namespace cuda_sim;

namespace {

template <class Body> CUresult with_link(const char *name, CUlinkState state, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<LinkState> link = call.driver.link_states.find(state);
        if (link == nullptr) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        std::string why;
        const CUresult result = body(call, *link, why);
        if (result == CUDA_SUCCESS) {
            return result;
        }
        link->log.error(why);
        link->log.finish();
        return refuse(result, why);
    });
}

// Reason why inputs of this kind cannot be linked; null if such inputs can be linked.
const char *unlinkable(CUjitInputType type) {
    switch (type) {
    case CU_JIT_INPUT_CUBIN:
    case CU_JIT_INPUT_PTX:
    case CU_JIT_INPUT_FATBINARY:
        return nullptr;
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
        return "device code in host objects and libraries is not simulated: link its PTX";
    default:
        return "this kind of input is not linked by this driver";
    }
}

// The input's PTX: the input's text, or the PTX beside its machine code.
CUresult add(Call &call, LinkState &link, CUjitInputType type, const void *data, const char *name,
             std::string &why) {
    if (const char *reason = unlinkable(type); reason != nullptr) {
        why = reason;
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    sim::Image image;
    const CUresult result =
        read_image(call.driver, call.context->device->profile, data, image, why);
    if (result == CUDA_SUCCESS && image.kind == sim::Image::Kind::ptx) {
        link.texts.push_back(std::move(image.text));
        return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        why = image.missing.empty() ? "it is machine code without its PTX" : image.missing;
    }
    why = std::string(name == nullptr ? "an input" : name) + " cannot be linked: " + why;
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
}

} // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut) {
    return in_context(__func__, [&](Call &call) {
        if (stateOut == nullptr || (numOptions != 0 && (!options || !optionValues))) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto link = std::make_shared<LinkState>();
        link->log = JitLog(numOptions, options, optionValues);
        *stateOut = call.driver.link_states.add(link);
        return CUDA_SUCCESS;
    });
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned int, CUjit_option *, void **) {
    return with_link(__func__, state, [&](Call &call, LinkState &link, std::string &why) {
        if (data == nullptr || size == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto *bytes = static_cast<const char *>(data);
        std::vector<char> whole(bytes, bytes + size);
        whole.insert(whole.end(), 64, 0);
        return add(call, link, type, whole.data(), name, why);
    });
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned int,
                          CUjit_option *, void **) {
    return with_link(__func__, state, [&](Call &call, LinkState &link, std::string &why) {
        std::vector<char> bytes;
        if (path == nullptr || !read_file(path, bytes)) {
            return CUDA_ERROR_FILE_NOT_FOUND;
        }
        return add(call, link, type, bytes.data(), path, why);
    });
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut) {
    return with_link(__func__, state, [&](Call &, LinkState &link, std::string &why) {
        if (cubinOut == nullptr || sizeOut == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (link.texts.empty()) {
            why = "nothing was added";
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (!sim::link_ptx(link.texts, link.linked, why)) {
            return CUDA_ERROR_INVALID_PTX;
        }
        link.log.finish();
        *cubinOut = link.linked.data();
        *sizeOut = link.linked.size() + 1;
        return CUDA_SUCCESS;
    });
}

CUresult cuLinkDestroy(CUlinkState state) {
    return with_link(__func__, state, [&](Call &call, LinkState &, std::string &) {
        call.driver.link_states.remove(state);
        return CUDA_SUCCESS;
    });
}
