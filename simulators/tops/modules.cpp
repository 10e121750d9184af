// Modules: loads container bytes for the current device and finds functions and variables in them.
#include <algorithm>
#include <fstream>
#include <iterator>

#include "../images/cubin.h"
#include "call.h"

using namespace tops_sim;

namespace {

template <class Body> topsError_t with_module(const char *name, topsModule_t handle, Body body) {
    return on_device(name, [&](Call &call) {
        const std::shared_ptr<Module> module = call.runtime.modules.find(handle);
        return module == nullptr ? topsErrorInvalidHandle : body(call, module);
    });
}

bool ends_in(const std::string &text, const std::string &end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Chooses the image of a bundle as the runtime does: the device's image, or just the first.
const sim::TopsfbMember *choose(const std::vector<sim::TopsfbMember> &members,
                                const Readings &readings, const Profile &profile) {
    for (const sim::TopsfbMember &member : members) {
        const bool fits = ends_in(member.triple, std::string("--") + profile.target);
        if (fits || !readings.chooses_in_bundles) {
            return &member;
        }
    }
    return nullptr;
}

topsError_t read_image(Call &call, const sim::Bytes &bytes, bool bundled, sim::GcuImage &image) {
    const Profile &profile = call.device->profile;
    std::string why;
    sim::Bytes elf = bytes;
    if (bundled) {
        std::vector<sim::TopsfbMember> members;
        if (!sim::read_topsfb(bytes, members, why)) {
            return refuse(topsErrorInvalidImage, why);
        }
        const sim::TopsfbMember *member = choose(members, call.runtime.readings, profile);
        if (member == nullptr) {
            return refuse(topsErrorNoBinaryForGcu,
                          std::string("the bundle has no image for ") + profile.target);
        }
        elf = member->content;
    }
    if (!sim::read_gcu(elf, image, why)) {
        return refuse(topsErrorInvalidImage, why);
    }
    if (!image.target.empty() && image.target != profile.target) {
        return refuse(topsErrorNoBinaryForGcu,
                      "an image for " + image.target + " does not run on " + profile.target);
    }
    return topsSuccess;
}

topsError_t load(Call &call, topsModule_t *handle, const sim::Bytes &bytes, bool bundled) {
    const auto module = std::make_shared<Module>();
    module->device = call.device;
    const topsError_t result = read_image(call, bytes, bundled, module->image);
    if (result != topsSuccess) {
        return result;
    }
    std::vector<std::string> entries;
    for (const sim::GcuEntry &entry : module->image.entries) {
        entries.push_back(entry.kernel.entry);
    }
    module->executable = call.runtime.host_kernels.load(entries);
    *handle = call.runtime.modules.add(module);
    return topsSuccess;
}

topsError_t load_data(const char *name, topsModule_t *module, const void *image) {
    return on_device(name, [&](Call &call) {
        if (module == nullptr || image == nullptr) {
            return topsErrorInvalidValue;
        }
        const uint64_t bundle = sim::topsfb_bytes(image);
        const uint64_t bytes = bundle != 0 ? bundle : sim::elf_bytes(image);
        return bytes == 0 ? refuse(topsErrorInvalidImage, "it is neither a bundle nor an ELF file")
                          : load(call, module, sim::Bytes(image, bytes), bundle != 0);
    });
}

topsError_t find_function(Call &call, const std::shared_ptr<Module> &module,
                          const std::string &name, std::shared_ptr<Function> &function) {
    const auto known = module->functions.find(name);
    if (known != module->functions.end()) {
        function = known->second;
        return topsSuccess;
    }
    const auto &entries = module->image.entries;
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto &one) { return one.kernel.entry == name; });
    if (entry == entries.end()) {
        return topsErrorNotFound;
    }
    std::string why = "the image does not describe its parameters";
    auto executable = entry->described ? module->executable->kernel(entry->kernel, why) : nullptr;
    if (executable == nullptr) {
        return refuse(topsErrorNotSupported, "kernel " + name + " cannot be simulated: " + why);
    }
    function = std::make_shared<Function>();
    function->module = module;
    function->entry = &*entry;
    function->executable = std::move(executable);
    call.runtime.functions.add(function);
    module->functions.emplace(name, function);
    return topsSuccess;
}

topsError_t find_variable(const std::shared_ptr<Module> &module, const std::string &name,
                          uint64_t &pointer, size_t &bytes) {
    const auto &variables = module->image.variables;
    const auto variable = std::find_if(variables.begin(), variables.end(),
                                       [&](const auto &one) { return one.name == name; });
    if (variable == variables.end()) {
        return topsErrorNotFound;
    }
    uint64_t &address = module->variables[name];
    if (address == 0) {
        const sim::ExecutableVariable *host = module->executable->variable(name);
        const bool same = host != nullptr && host->bytes == variable->bytes;
        const sim::Status status =
            same ? module->device->device.memory.borrow(static_cast<char *>(host->address),
                                                        host->bytes, address)
                 : sim::Status::launch_failed;
        if (status != sim::Status::ok) {
            module->variables.erase(name);
            return same ? to_result(status)
                        : refuse(topsErrorNotSupported,
                                 "variable " + name + " is not in the host build");
        }
    }
    pointer = address;
    bytes = variable->bytes;
    return topsSuccess;
}

} // namespace

topsError_t topsModuleLoadData(topsModule_t *module, const void *image) {
    return load_data(__func__, module, image);
}

topsError_t topsModuleLoadDataEx(topsModule_t *module, const void *image, unsigned int numOptions,
                                 int *options, void **optionValues) {
    (void)numOptions;
    (void)options;
    (void)optionValues;
    return load_data(__func__, module, image);
}

topsError_t topsModuleLoad(topsModule_t *module, const char *fname) {
    return on_device(__func__, [&](Call &call) {
        if (module == nullptr || fname == nullptr) {
            return topsErrorInvalidValue;
        }
        std::ifstream file(fname, std::ios::binary);
        if (!file) {
            return topsErrorFileNotFound;
        }
        const std::string bytes((std::istreambuf_iterator<char>(file)), {});
        const bool bundled = bytes.compare(0, 2, "__") == 0;
        return load(call, module, sim::Bytes(bytes.data(), bytes.size()), bundled);
    });
}

topsError_t topsModuleUnload(topsModule_t handle) {
    return with_module(__func__, handle, [&](Call &call, const std::shared_ptr<Module> &module) {
        for (const auto &[name, function] : module->functions) {
            call.runtime.functions.remove(function->handle);
        }
        for (const auto &[name, pointer] : module->variables) {
            module->device->device.memory.release(pointer);
        }
        module->functions.clear();
        module->variables.clear();
        call.runtime.modules.remove(handle);
        return topsSuccess;
    });
}

topsError_t topsModuleGetFunction(topsFunction_t *function, topsModule_t handle,
                                  const char *kname) {
    return with_module(__func__, handle, [&](Call &call, const std::shared_ptr<Module> &module) {
        if (function == nullptr || kname == nullptr) {
            return topsErrorInvalidValue;
        }
        std::shared_ptr<Function> found;
        const topsError_t result = find_function(call, module, kname, found);
        *function = result == topsSuccess ? found->handle : nullptr;
        return result;
    });
}

topsError_t topsModuleGetGlobal(topsDeviceptr_t *dptr, size_t *bytes, topsModule_t hmod,
                                const char *name) {
    return with_module(__func__, hmod, [&](Call &, const std::shared_ptr<Module> &module) {
        if (dptr == nullptr || bytes == nullptr || name == nullptr) {
            return topsErrorInvalidValue;
        }
        uint64_t pointer = 0;
        const topsError_t result = find_variable(module, name, pointer, *bytes);
        *dptr = reinterpret_cast<void *>(pointer);
        return result;
    });
}
