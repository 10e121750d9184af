#include "module.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "abi.h"
#include "check.h"
#include "crash.h"
#include "platform.h"
#include "runtime.h"

#include <uhal/stream_teller.h>

namespace uhal_host {

// The image as a file that dlopen can read, closed and removed by the destructor.
class ImageFile {
  public:
    ImageFile(const void *image, size_t bytes)
        : debugged_(memmem(image, bytes, debug_section, sizeof debug_section - 1) != nullptr) {
#if defined(__linux__)
        descriptor_ = memfd_create("uhal-module", MFD_CLOEXEC);
        in_memory_ = descriptor_ >= 0;
#endif
        if (!in_memory_) {
            create_temporary();
        }
    }

    ~ImageFile() {
        if (descriptor_ >= 0) {
            close(descriptor_);
        }
        if (!in_memory_ && !path_.empty()) {
            unlink(path_.c_str());
        }
    }

    ImageFile(const ImageFile &) = delete;

    // Returns whether a debugger needs the file. If so, the file stays as long as the library.
    bool debugged() const { return debugged_; }

    bool write_all(const void *image, size_t bytes) {
        const char *next = static_cast<const char *>(image);
        while (bytes != 0 && descriptor_ >= 0) {
            const ssize_t written = write(descriptor_, next, bytes);
            if (written < 0 && errno == EINTR) {
                continue;
            }
            if (written <= 0) {
                return false;
            }
            next += written;
            bytes -= static_cast<size_t>(written);
        }
        return descriptor_ >= 0;
    }

    // For a known name, dlopen returns the earlier library, and descriptor numbers recur. So each
    // name has a unique spelling: the bits of a counter select where the name contains "./".
    std::string name() const {
        if (!in_memory_) {
            return path_;
        }
        static std::atomic<uint32_t> counter{0};
        // A debugger is another process, so "self" would be the debugger.
        std::string name = "/proc/" + (debugged_ ? std::to_string(getpid()) : "self") + "/fd/";
        for (uint32_t bits = counter.fetch_add(1) + 1; bits != 0; bits >>= 1) {
            name += bits & 1 ? "./" : "/";
        }
        return name + std::to_string(descriptor_);
    }

  private:
    void create_temporary() {
        const char *folder = getenv("TMPDIR");
        path_ = folder != nullptr && *folder == '/' ? folder : "/tmp";
        path_ += "/uhal-module-XXXXXX";
        descriptor_ = mkstemp(&path_[0]);
        if (descriptor_ < 0) {
            path_.clear();
        }
    }

    static constexpr char debug_section[] = ".debug_info"; // among the names of an ELF's sections

    const bool debugged_;
    int descriptor_ = -1;
    bool in_memory_ = false;
    std::string path_;
};

Module *Module::load(Device &device, const void *image, size_t bytes, int &error) {
    auto file = std::make_unique<ImageFile>(image, bytes);
    if (!file->write_all(image, bytes)) {
        set_error_text("the image cannot be written to memory: %s", strerror(errno));
        error = UHAL_HOST_ERROR_OPERATING_SYSTEM;
        return nullptr;
    }
    void *const library = dlopen(file->name().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!file->debugged()) {
        file.reset();
    }
    if (library == nullptr) {
        const char *words = dlerror();
        set_error_text("%s", words != nullptr ? words : "dlopen failed");
        error = UHAL_HOST_ERROR_SHARED_OBJECT_INIT_FAILED;
        return nullptr;
    }
    // Owns the library from here on.
    Module *const module = new Module(device, library, std::move(file));
    error = module->read_tables();
    if (error != 0) {
        module->drop();
        return nullptr;
    }
    return module;
}

int Module::read_tables() {
    tables_ = static_cast<const uhal_host_module *>(dlsym(library_, "uhal_host_module"));
    if (tables_ == nullptr || tables_->magic != UHAL_HOST_MODULE_MAGIC) {
        set_error_text("the library holds no kernels: it exports no table uhal_host_module");
        return UHAL_HOST_ERROR_INVALID_IMAGE;
    }
    if (tables_->version != UHAL_HOST_MODULE_VERSION) {
        set_error_text("built with version %u of <uhal/kernel.h>, this is version %u: build again",
                       tables_->version, unsigned{UHAL_HOST_MODULE_VERSION});
        return UHAL_HOST_ERROR_INVALID_IMAGE;
    }
    if (tables_->instruction_level > instruction_level()) {
        set_error_text("built for x86-64-v%u, this CPU is x86-64-v%u", tables_->instruction_level,
                       instruction_level());
        return UHAL_HOST_ERROR_NO_BINARY_FOR_CPU;
    }
    if (const int error = read_check()) {
        return error;
    }
    image_ = image_of(tables_).whole;
    set_launch_teller();
    // The order of the list depends on the compiler.
    std::vector<const uhal_host_kernel *> kernels(tables_->kernels_begin, tables_->kernels_end);
    kernels.erase(std::remove(kernels.begin(), kernels.end(), nullptr), kernels.end());
    std::stable_sort(kernels.begin(), kernels.end(), [](const auto *left, const auto *right) {
        return left->order < right->order;
    });
    functions_.reset(new Function[kernels.size()]);
    for (const uhal_host_kernel *kernel : kernels) {
        if (find_function(kernel->entry) != nullptr) {
            set_error_text("kernel %s is defined twice", kernel->entry);
            return UHAL_HOST_ERROR_INVALID_IMAGE;
        }
        Function &function = functions_[function_count_++];
        function.kernel = kernel;
        function.module = this;
        function.checked = check_ != nullptr;
        for (uint32_t index = 0; index < kernel->parameter_count; ++index) {
            const uhal_host_parameter &parameter = kernel->parameters[index];
            const uint32_t mask = parameter.alignment - 1;
            const uint32_t offset = (function.parameter_bytes + mask) & ~mask;
            function.offsets.push_back(offset);
            function.parameter_bytes = offset + parameter.size;
        }
    }
    return UHAL_HOST_SUCCESS;
}

int Module::read_check() {
    check_ = static_cast<uhal_host_check *>(dlsym(library_, "uhal_host_check"));
    if (check_ == nullptr) {
        return UHAL_HOST_SUCCESS;
    }
#if !defined(__linux__)
    set_error_text("checked libraries are judged on Linux alone: compile it without --checked");
    return UHAL_HOST_ERROR_INVALID_IMAGE;
#endif
    if (check_->version != UHAL_HOST_CHECK_VERSION) {
        set_error_text("built with version %u of <uhal/checked.h>, this is version %u: build again",
                       check_->version, unsigned{UHAL_HOST_CHECK_VERSION});
        return UHAL_HOST_ERROR_INVALID_IMAGE;
    }
    check_->services = &check_services;
    return UHAL_HOST_SUCCESS;
}

// A library built from several sources has several launch tellers.
void Module::set_launch_teller() const {
    for (auto global = tables_->globals_begin; global != tables_->globals_end; ++global) {
        if (*global != nullptr && strcmp((*global)->name, UHAL_LAUNCH_TELLER) == 0) {
            *static_cast<uhal_launch_teller_function *>((*global)->address) = [] {
                return running_in == nullptr ? uhal_running{} : running_in->running();
            };
        }
    }
}

Function *Module::find_function(const char *name) {
    for (size_t index = 0; index < function_count_; ++index) {
        if (strcmp(functions_[index].kernel->entry, name) == 0) {
            return &functions_[index];
        }
    }
    return nullptr;
}

const uhal_host_global *Module::find_global(const char *name) const {
    for (auto global = tables_->globals_begin; global != tables_->globals_end; ++global) {
        if (*global != nullptr && strcmp((*global)->name, name) == 0) {
            return *global;
        }
    }
    return nullptr;
}

void Module::drop() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete this;
    }
}

Module::Module(Device &device, void *library, std::unique_ptr<ImageFile> file)
    : device_(device), library_(library), file_(std::move(file)) {}

Module::~Module() {
    functions_.reset();
    dlclose(library_);
}

} // namespace uhal_host
