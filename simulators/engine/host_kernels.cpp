#include "host_kernels.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <uhal/dtype_bytes.h>

#include "settings.h"

namespace sim {

namespace {

namespace files = std::filesystem;

const uhal_host_module *module_of(void *library) {
    const auto *module =
        library == nullptr
            ? nullptr
            : static_cast<const uhal_host_module *>(dlsym(library, "uhal_host_module"));
    const bool ours = module != nullptr && module->magic == UHAL_HOST_MODULE_MAGIC &&
                      module->version == UHAL_HOST_MODULE_VERSION;
    return ours ? module : nullptr;
}

const uhal_host_kernel *find_kernel(const uhal_host_module &module, const std::string &entry) {
    for (auto kernel = module.kernels_begin; kernel != module.kernels_end; ++kernel) {
        if (*kernel != nullptr && entry == (*kernel)->entry) {
            return *kernel;
        }
    }
    return nullptr;
}

bool has_variables(const uhal_host_module &module) {
    return std::any_of(module.globals_begin, module.globals_end,
                       [](const uhal_host_global *global) { return global != nullptr; });
}

// Loads a second copy of a library, with variables of its own. The loader tells libraries apart by
// file, so the copy gets a new file.
void *load_copy(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    const int descriptor = memfd_create("uhal-simulated-module", MFD_CLOEXEC);
    if (descriptor < 0) {
        return nullptr;
    }
    void *library = nullptr;
    if (write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) {
        // dlopen returns the earlier library for a known name, and descriptor numbers recur. So
        // each name is spelled differently: its "./" parts encode the bits of a counter and of the
        // counter's address, because a process may hold several simulated drivers.
        static std::atomic<uint64_t> counter{0};
        std::string name = "/proc/self/fd/";
        for (uint64_t word : {reinterpret_cast<uint64_t>(&counter), counter.fetch_add(1)}) {
            for (int bit = 0; bit < 64; ++bit, word >>= 1) {
                name += (word & 1) != 0 ? "./" : "/";
            }
        }
        name += std::to_string(descriptor);
        library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    close(descriptor);
    return library;
}

std::vector<std::string> folders_of_driver(const std::string &beside) {
    Dl_info here = {};
    if (dladdr(reinterpret_cast<void *>(&folders_of_driver), &here) == 0) {
        return {};
    }
    std::error_code ignored;
    const files::path build = files::canonical(here.dli_fname, ignored).parent_path();
    if (!beside.empty()) {
        return {(build / beside).string()};
    }
    // simulators/build -> ubridge/kernels/host/<level>
    const files::path host = build.parent_path().parent_path() / "ubridge" / "kernels" / "host";
    std::vector<std::string> folders;
    for (const auto &entry : files::directory_iterator(host, ignored)) {
        folders.push_back(entry.path().string());
    }
    // x86-64-v4 before x86-64-v3: the loader refuses a level that this CPU lacks.
    std::sort(folders.rbegin(), folders.rend());
    return folders;
}

std::vector<std::string> libraries_in(const std::string &path) {
    std::vector<std::string> found;
    std::error_code ignored;
    if (!files::is_directory(path, ignored)) {
        found.push_back(path);
        return found;
    }
    for (const auto &entry : files::directory_iterator(path, ignored)) {
        if (entry.path().extension() == ".so") {
            found.push_back(entry.path().string());
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

bool cpu_runs(const uhal_host_module &module) {
#if defined(__x86_64__)
    switch (module.instruction_level) {
    case 4:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw");
    case 3:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    default:
        return true;
    }
#else
    return module.instruction_level == 0;
#endif
}

class HostExecutable : public Executable {
  public:
    HostExecutable(const uhal_host_kernel &kernel, KernelDescription description)
        : kernel_(kernel), description_(std::move(description)) {}

    uint32_t max_threads() const override { return kernel_.max_threads; }

    bool is_pointer(size_t parameter) const override {
        return (kernel_.parameters[parameter].flags & UHAL_HOST_PARAMETER_POINTER) != 0;
    }

    bool may_write(size_t parameter) const override {
        return is_pointer(parameter) &&
               (kernel_.parameters[parameter].flags & UHAL_HOST_PARAMETER_CONST) == 0;
    }

    std::function<Outcome()> prepare(const LaunchShape &shape,
                                     const std::vector<unsigned char> &parameters,
                                     const AddressMap &map) const override {
        Status status = Status::ok;
        std::vector<unsigned char> bound = bind(parameters, map, status);
        if (status != Status::ok) {
            return [status] { return Outcome{status, 0, "was given a misaligned address"}; };
        }
        return [this, shape, bound = std::move(bound)] { return run(shape, bound); };
    }

  private:
    static constexpr size_t shared_alignment = 64;

    // Translates the pointers of a parameter block.
    std::vector<unsigned char> bind(const std::vector<unsigned char> &block, const AddressMap &map,
                                    Status &status) const {
        std::vector<unsigned char> bound = block;
        for (uint32_t index = 0; index < kernel_.parameter_count; ++index) {
            const uhal_host_parameter &parameter = kernel_.parameters[index];
            if ((parameter.flags & UHAL_HOST_PARAMETER_POINTER) == 0) {
                continue;
            }
            unsigned char *argument = bound.data() + description_.parameters[index].offset;
            uint64_t address = 0;
            std::memcpy(&address, argument, sizeof address);
            if (address == 0) {
                continue;
            }
            if (address % uhal_dtype_bytes(parameter.dtype) != 0) {
                status = Status::misaligned_address;
            }
            void *translated = map.translate(address);
            std::memcpy(argument, &translated, sizeof translated);
        }
        return bound;
    }

    Outcome run(const LaunchShape &shape, const std::vector<unsigned char> &bound) const {
        std::vector<unsigned char> values = bound;
        std::vector<void *> parameters;
        for (const ParameterLayout &parameter : description_.parameters) {
            parameters.push_back(values.data() + parameter.offset);
        }
        std::vector<unsigned char> shared(shape.shared_bytes + shared_alignment);
        uhal_block block = {};
        block.blockDim = {shape.block[0], shape.block[1], shape.block[2]};
        block.gridDim = {shape.grid[0], shape.grid[1], shape.grid[2]};
        block.dynamic_shared_bytes = shape.shared_bytes;
        const uint64_t raw = reinterpret_cast<uint64_t>(shared.data());
        block.dynamic_shared = shared.data() + (shared_alignment - raw % shared_alignment);
        const uint64_t blocks = shape.blocks();
        return run_guarded([&] { kernel_.run(&block, blocks, parameters.data()); });
    }

    const uhal_host_kernel &kernel_;
    const KernelDescription description_;
};

// Whether the host build has the image's parameters. If not, `why` has the reason.
bool agrees(const uhal_host_kernel &kernel, const KernelDescription &description,
            std::string &why) {
    const size_t count = description.parameters.size();
    if (kernel.parameter_count != count) {
        why = "its host build takes " + std::to_string(kernel.parameter_count) +
              " parameters, the image's " + std::to_string(count);
        return false;
    }
    uint32_t offset = 0;
    for (size_t index = 0; index < count; ++index) {
        const uhal_host_parameter &ours = kernel.parameters[index];
        const ParameterLayout &theirs = description.parameters[index];
        offset = (offset + ours.alignment - 1) / ours.alignment * ours.alignment;
        if (description.any_order) {
            offset = theirs.offset / ours.alignment * ours.alignment;
        }
        if (ours.size != theirs.size || offset != theirs.offset) {
            why = "parameter " + std::to_string(index) + " of its host build has " +
                  std::to_string(ours.size) + " bytes at " + std::to_string(offset) +
                  ", the image's " + std::to_string(theirs.size) + " at " +
                  std::to_string(theirs.offset);
            return false;
        }
        offset += ours.size;
    }
    return true;
}

class HostModule : public ExecutableModule {
  public:
    HostModule(const uhal_host_module *module, std::string path, void *copy)
        : module_(module), path_(std::move(path)), copy_(copy) {
        if (module_ == nullptr) {
            return;
        }
        for (auto global = module_->globals_begin; global != module_->globals_end; ++global) {
            if (*global != nullptr) {
                variables_[(*global)->name] = {(*global)->address, (*global)->bytes};
            }
        }
    }

    ~HostModule() override {
        if (copy_ != nullptr) {
            dlclose(copy_);
        }
    }

    std::unique_ptr<Executable> kernel(const KernelDescription &description,
                                       std::string &why) override {
        const uhal_host_kernel *kernel =
            module_ == nullptr ? nullptr : find_kernel(*module_, description.entry);
        if (kernel == nullptr) {
            why = "no host build of this kernel was found; UHAL_SIM_KERNELS names more libraries";
            return nullptr;
        }
        if (!agrees(*kernel, description, why)) {
            why += " (" + path_ + ")";
            return nullptr;
        }
        return std::make_unique<HostExecutable>(*kernel, description);
    }

    const ExecutableVariable *variable(const std::string &name) override {
        const auto found = variables_.find(name);
        return found == variables_.end() ? nullptr : &found->second;
    }

  private:
    const uhal_host_module *module_;
    const std::string path_;
    void *copy_;
    std::map<std::string, ExecutableVariable> variables_;
};

} // namespace

std::unique_ptr<ExecutableModule> HostKernels::load(const std::vector<std::string> &entries) {
    const Library *best = nullptr;
    size_t most = 0;
    ptrdiff_t best_size = 0;
    for (const Library &library : libraries()) {
        const size_t matches = static_cast<size_t>(
            std::count_if(entries.begin(), entries.end(), [&](const std::string &entry) {
                return find_kernel(*library.module, entry) != nullptr;
            }));
        // If several libraries have all names, the one with the fewest other names fits best.
        const auto size = library.module->kernels_end - library.module->kernels_begin;
        if (matches > most || (matches == most && most > 0 && size < best_size)) {
            most = matches;
            best = &library;
            best_size = size;
        }
    }
    if (best == nullptr) {
        return std::make_unique<HostModule>(nullptr, "", nullptr);
    }
    if (!has_variables(*best->module)) {
        return std::make_unique<HostModule>(best->module, best->path, nullptr);
    }
    void *copy = load_copy(best->path);
    return std::make_unique<HostModule>(module_of(copy), best->path, copy);
}

bool HostKernels::has_any(const std::vector<std::string> &entries) {
    const std::vector<Library> &all = libraries();
    return std::any_of(all.begin(), all.end(), [&](const Library &library) {
        return std::any_of(entries.begin(), entries.end(), [&](const std::string &entry) {
            return find_kernel(*library.module, entry) != nullptr;
        });
    });
}

const std::vector<HostKernels::Library> &HostKernels::libraries() {
    std::call_once(searched_, [this] {
        std::vector<std::string> folders = Settings::list("KERNELS", ':');
        const std::vector<std::string> shipped = folders_of_driver(beside_);
        folders.insert(folders.end(), shipped.begin(), shipped.end());
        for (const std::string &folder : folders) {
            for (const std::string &path : libraries_in(folder)) {
                void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
                const uhal_host_module *module = module_of(library);
                if (module != nullptr && cpu_runs(*module)) {
                    libraries_.push_back({path, module});
                } else if (library != nullptr) {
                    dlclose(library);
                }
            }
        }
    });
    return libraries_;
}

} // namespace sim
