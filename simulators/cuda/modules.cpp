#include "modules.h"

#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "../images/attached_ptx.h"
#include "../images/cubin.h"
#include "../images/fatbin.h"
#include "../images/ptx.h"
#include "../images/ptx_link.h"

namespace cuda_sim {

namespace {

constexpr size_t longest_ptx = size_t{256} << 20;
constexpr uint32_t wrapper_magic = 0x466243B1;

// What nvcc puts into host programs in front of a fatbin.
struct FatbinWrapper {
    uint32_t magic;
    uint32_t version;
    const void *fatbin;
};

std::string dotted(unsigned tenths) {
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

std::string target_name(const sim::Image &image) {
    return "sm_" + std::to_string(image.target) +
           (image.target_suffix == 0 ? "" : std::string(1, image.target_suffix));
}

CUresult check_ptx(const Driver &driver, const Profile &profile, const sim::Image &image,
                   std::string &why) {
    const unsigned newest = newest_ptx(driver.version());
    if (image.ptx_version > newest) {
        why = "PTX .version " + dotted(image.ptx_version) + " is newer than " + dotted(newest) +
              ", the newest that this driver (CUDA " + dotted(driver.version() / 100) + ") takes";
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    }
    const bool exact = image.target_suffix == 'a';
    const bool family = image.target_suffix == 'f';
    const bool fits = exact ? image.target == profile.target
                      : family
                          ? image.target / 10 == profile.major() && image.target <= profile.target
                          : image.target <= profile.target;
    if (!fits) {
        why = "PTX .target " + target_name(image) + " cannot be compiled for sm_" +
              std::to_string(profile.target);
        return CUDA_ERROR_INVALID_PTX;
    }
    return CUDA_SUCCESS;
}

CUresult check_cubin(const Driver &driver, const Profile &profile, const sim::Image &image,
                     std::string &why) {
    const bool runs = image.target_suffix != 0
                          ? image.target == profile.target
                          : image.target / 10 == profile.major() && image.target <= profile.target;
    if (!runs) {
        why = "a cubin for " + target_name(image) + " does not run on sm_" +
              std::to_string(profile.target);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (image.toolkit / 10 > driver.version() / 1000) {
        why = "a cubin of CUDA " + dotted(image.toolkit) + " is newer than this driver (CUDA " +
              dotted(driver.version() / 100) + ")";
        return CUDA_ERROR_INVALID_IMAGE;
    }
    return CUDA_SUCCESS;
}

CUresult read_text(const Driver &driver, const Profile &profile, std::string_view text,
                   sim::Image &image, std::string &why) {
    if (text.find(".version") == std::string_view::npos) {
        why = "it is neither PTX nor a cubin nor a fatbin";
        return CUDA_ERROR_INVALID_IMAGE;
    }
    // The version first: a newer one may hold anything further on.
    const bool readable = sim::read_ptx(text, image, why);
    image.text = text;
    if (image.ptx_version > newest_ptx(driver.version())) {
        return check_ptx(driver, profile, image, why);
    }
    return readable ? check_ptx(driver, profile, image, why) : CUDA_ERROR_INVALID_PTX;
}

// PTX replaces the cubin it was made into, except for what only the compiler knows.
void take_text(sim::Image &cubin, sim::Image text) {
    for (sim::ImageEntry &entry : text.entries) {
        const auto compiled = std::find_if(
            cubin.entries.begin(), cubin.entries.end(),
            [&](const auto &one) { return one.kernel.entry == entry.kernel.entry; });
        if (compiled != cubin.entries.end()) {
            entry.registers = compiled->registers;
            entry.local_bytes = compiled->local_bytes;
        }
    }
    text.constant_bytes = cubin.constant_bytes;
    cubin = std::move(text);
}

CUresult read_elf(const Driver &driver, const Profile &profile, const sim::Bytes &bytes,
                  sim::Image &image, std::string &why) {
    if (!sim::read_cubin(bytes, image, why)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const CUresult unfit = check_cubin(driver, profile, image, why);
    sim::AttachedPtx attached;
    if (unfit != CUDA_SUCCESS || !sim::read_attached_ptx(bytes, attached)) {
        return unfit;
    }
    std::string linked;
    sim::Image text;
    if (!attached.texts.empty() && !sim::link_ptx(attached.texts, linked, why)) {
        return CUDA_ERROR_INVALID_PTX;
    }
    const CUresult result = attached.texts.empty()
                                ? CUDA_SUCCESS
                                : read_text(driver, profile, linked, text, why);
    if (result == CUDA_SUCCESS && !attached.texts.empty()) {
        take_text(image, std::move(text));
    }
    image.missing = attached.problem;
    return result;
}

// Whether anything here can run its kernels.
bool is_executable(Driver &driver, const sim::Image &image) {
    std::vector<std::string> entries;
    for (const sim::ImageEntry &entry : image.entries) {
        entries.push_back(entry.kernel.entry);
    }
    return image.kind == sim::Image::Kind::ptx || driver.host_kernels.has_any(entries);
}

// A machine program for this device, the newest, else the newest PTX that can be compiled for it.
// Where nothing can run the machine program, PTX beside it does.
CUresult read_container(Driver &driver, const Profile &profile, const sim::Bytes &bytes,
                        sim::Image &image, std::string &why) {
    std::vector<sim::FatbinMember> members;
    if (!sim::read_fatbin(bytes, members, why)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    std::stable_sort(members.begin(), members.end(), [](const auto &left, const auto &right) {
        const bool left_cubin = left.kind == sim::Image::Kind::cubin;
        const bool right_cubin = right.kind == sim::Image::Kind::cubin;
        return left_cubin != right_cubin ? left_cubin : left.target > right.target;
    });
    CUresult result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    std::string reasons;
    for (const sim::FatbinMember &member : members) {
        sim::Image candidate;
        std::string reason = member.problem;
        CUresult refusal = CUDA_ERROR_INVALID_IMAGE;
        const sim::Bytes content(member.content.data(), member.content.size());
        if (reason.empty() && member.kind == sim::Image::Kind::cubin) {
            refusal = read_elf(driver, profile, content, candidate, reason);
        } else if (reason.empty()) {
            const auto *text = reinterpret_cast<const char *>(content.data());
            refusal = read_text(driver, profile, {text, strnlen(text, content.size())}, candidate,
                                reason);
        }
        if (refusal == CUDA_SUCCESS && result != CUDA_SUCCESS) {
            image = std::move(candidate);
            result = CUDA_SUCCESS;
        } else if (refusal == CUDA_SUCCESS && candidate.kind == sim::Image::Kind::ptx) {
            take_text(image, std::move(candidate));
        }
        if (result == CUDA_SUCCESS && is_executable(driver, image)) {
            return CUDA_SUCCESS;
        }
        if (refusal == CUDA_ERROR_UNSUPPORTED_PTX_VERSION && result != CUDA_SUCCESS) {
            result = refusal;
        }
        reasons += (reasons.empty() ? "" : "; ") + reason;
    }
    why = reasons.empty() ? "it is empty" : reasons;
    return result;
}

CUresult read_image(Driver &driver, const Profile &profile, const void *data,
                    sim::Image &image, std::string &why) {
    FatbinWrapper wrapper;
    std::memcpy(&wrapper.magic, data, sizeof wrapper.magic);
    if (wrapper.magic == wrapper_magic) {
        std::memcpy(&wrapper, data, sizeof wrapper);
        data = wrapper.fatbin;
    }
    const size_t bytes = image_bytes(data);
    const sim::Bytes content(data, bytes);
    if (std::memcmp(data, ELFMAG, SELFMAG) == 0) {
        return read_elf(driver, profile, content, image, why);
    }
    if (sim::fatbin_bytes(data) != 0) {
        return read_container(driver, profile, content, image, why);
    }
    return read_text(driver, profile, {static_cast<const char *>(data), bytes}, image, why);
}

} // namespace

JitLog::JitLog(unsigned count, const CUjit_option *options, void **values) {
    for (unsigned index = 0; index < count; ++index) {
        void *&value = values[index];
        switch (options[index]) {
        case CU_JIT_ERROR_LOG_BUFFER:
            error_.text = static_cast<char *>(value);
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            error_.bytes = static_cast<unsigned>(reinterpret_cast<uint64_t>(value));
            error_.size_value = &value;
            break;
        case CU_JIT_INFO_LOG_BUFFER:
            information_.text = static_cast<char *>(value);
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            information_.bytes = static_cast<unsigned>(reinterpret_cast<uint64_t>(value));
            information_.size_value = &value;
            break;
        default:
            break;
        }
    }
}

void JitLog::error(const std::string &text) {
    error_.written = text;
}

void JitLog::finish() {
    store(error_);
    store(information_);
}

void JitLog::store(Buffer &buffer) {
    if (buffer.size_value == nullptr) {
        return;
    }
    size_t written = 0;
    if (buffer.text != nullptr && buffer.bytes != 0) {
        written = std::min(buffer.written.size(), buffer.bytes - 1);
        std::memcpy(buffer.text, buffer.written.data(), written);
        buffer.text[written] = 0;
    }
    *buffer.size_value = reinterpret_cast<void *>(written);
}

size_t image_bytes(const void *image) {
    const uint64_t elf = sim::elf_bytes(image);
    const uint64_t fatbin = sim::fatbin_bytes(image);
    if (elf != 0 || fatbin != 0) {
        return elf != 0 ? elf : fatbin;
    }
    return strnlen(static_cast<const char *>(image), longest_ptx);
}

namespace {

CUresult result_of(const sim::TranslatorAnswer &problem) {
    switch (problem.kind) {
    case sim::TranslatorAnswer::Kind::done:
        return CUDA_SUCCESS;
    case sim::TranslatorAnswer::Kind::no_ptx:
    case sim::TranslatorAnswer::Kind::unsupported:
        return CUDA_ERROR_INVALID_PTX;
    case sim::TranslatorAnswer::Kind::unavailable:
        return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    case sim::TranslatorAnswer::Kind::failed:
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_ERROR_UNKNOWN;
}

std::string words_of(const sim::TranslatorAnswer &problem) {
    const std::string line = problem.line == 0 ? "" : "line " + std::to_string(problem.line) + ": ";
    return line + problem.words;
}

// What runs the module's kernels: PTX itself, and for machine code the host build of its source.
CUresult make_executable(Driver &driver, Module &module, JitLog &log) {
    if (module.image.kind == sim::Image::Kind::cubin) {
        std::vector<std::string> entries;
        for (const sim::ImageEntry &entry : module.image.entries) {
            entries.push_back(entry.kernel.entry);
        }
        module.executable = driver.host_kernels.load(entries);
        return CUDA_SUCCESS;
    }
    sim::TranslatorAnswer problem;
    module.ptx = driver.ptx_kernels.load(module.image.text, module.context->device->device.memory,
                                         problem);
    if (module.ptx == nullptr) {
        log.error(words_of(problem));
        log.finish();
    }
    return module.ptx != nullptr ? CUDA_SUCCESS : refuse(result_of(problem), words_of(problem));
}

} // namespace

CUresult load_module(Call &call, const std::shared_ptr<Context> &context, const void *image,
                     JitLog &log, std::shared_ptr<Module> &module) {
    release_unloaded(call.driver);
    module = std::make_shared<Module>();
    module->context = context;
    std::string why;
    const CUresult result =
        read_image(call.driver, context->device->profile, image, module->image, why);
    if (result != CUDA_SUCCESS) {
        log.error(why);
        log.finish();
        return refuse(result, why);
    }
    const CUresult unloadable = make_executable(call.driver, *module, log);
    if (unloadable != CUDA_SUCCESS) {
        return unloadable;
    }
    call.driver.modules.add(module);
    log.finish();
    return CUDA_SUCCESS;
}

void unload_module(Call &call, const std::shared_ptr<Module> &module) {
    for (const auto &[name, function] : module->functions) {
        call.driver.functions.remove(function->handle);
    }
    module->functions.clear();
    module->loaded = false;
    call.driver.modules.remove(module->handle);
    // Kernels on the way may use its variables.
    call.driver.unloaded.emplace_back(
        module, call.driver.scheduler.pending(module->context->device->device));
    release_unloaded(call.driver);
}

void release_unloaded(Driver &driver) {
    auto &unloaded = driver.unloaded;
    const auto unused = [](const auto &one) {
        const auto &[module, points] = one;
        if (!std::all_of(points.begin(), points.end(),
                         [](const sim::Point &point) { return point.reached(); })) {
            return false;
        }
        release_variables(*module);
        return true;
    };
    unloaded.erase(std::remove_if(unloaded.begin(), unloaded.end(), unused), unloaded.end());
}

void release_variables(Module &module) {
    for (const auto &[name, address] : module.variables) {
        module.context->device->device.memory.release(address);
    }
    module.variables.clear();
    if (module.ptx != nullptr) {
        module.ptx->release();
    }
}

namespace {

// Said once, for a program that compiles to cubins gets no further; a report need not be asked for.
void advise_on_cubins(const sim::Image &image) {
    static bool said = false;
    if (said) {
        return;
    }
    said = true;
    const std::string advice =
        !image.missing.empty()
            ? image.missing
            : "run the program by `python -m uhal sim run`, which hands on the PTX of what is "
              "compiled at run time, or compile for compute_" +
                  std::to_string(image.target) + " instead of " + target_name(image);
    std::fprintf(stderr, "uhal simulator: a cubin is machine code, which cannot be executed: %s\n",
                 advice.c_str());
}

CUresult make_kernel(Module &module, const sim::KernelDescription &kernel,
                     std::unique_ptr<sim::Executable> &executable) {
    const std::string refused = "kernel " + kernel.entry + " cannot be simulated: ";
    const std::string &missing = module.image.missing;
    if (module.ptx != nullptr) {
        sim::TranslatorAnswer problem;
        executable = module.ptx->kernel(kernel, problem);
        const std::string words =
            words_of(problem) + (missing.empty() ? "" : " (" + missing + ")");
        return executable != nullptr ? CUDA_SUCCESS : refuse(result_of(problem), refused + words);
    }
    std::string why;
    executable = module.executable->kernel(kernel, why);
    if (executable != nullptr) {
        return CUDA_SUCCESS;
    }
    advise_on_cubins(module.image);
    return refuse(CUDA_ERROR_NOT_SUPPORTED, refused + why);
}

// Where a variable of a cubin is: in the host build, which gets a device address.
CUresult borrow_variable(Module &module, const sim::ImageVariable &variable, uint64_t &address) {
    const auto known = module.variables.find(variable.name);
    if (known != module.variables.end()) {
        address = known->second;
        return CUDA_SUCCESS;
    }
    const sim::ExecutableVariable *host = module.executable->variable(variable.name);
    if (host == nullptr || host->bytes != variable.bytes) {
        return refuse(CUDA_ERROR_NOT_SUPPORTED,
                      "variable " + variable.name +
                          " cannot be simulated: the host build has none of " +
                          std::to_string(variable.bytes) + " bytes");
    }
    const sim::Status status = module.context->device->device.memory.borrow(
        static_cast<char *>(host->address), host->bytes, address);
    if (status == sim::Status::ok) {
        module.variables.emplace(variable.name, address);
    }
    return to_result(status);
}

} // namespace

const sim::ImageEntry *find_entry(const Module &module, const std::string &name) {
    const auto &entries = module.image.entries;
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto &one) { return one.kernel.entry == name; });
    return entry == entries.end() ? nullptr : &*entry;
}

CUresult find_function(Driver &driver, const std::shared_ptr<Module> &module,
                       const std::string &name, std::shared_ptr<Function> &function) {
    const auto known = module->functions.find(name);
    if (known != module->functions.end()) {
        function = known->second;
        return CUDA_SUCCESS;
    }
    const sim::ImageEntry *entry = find_entry(*module, name);
    if (entry == nullptr) {
        return CUDA_ERROR_NOT_FOUND;
    }
    std::unique_ptr<sim::Executable> executable;
    const CUresult refusal = make_kernel(*module, entry->kernel, executable);
    if (refusal != CUDA_SUCCESS) {
        return refusal;
    }
    function = std::make_shared<Function>();
    function->module = module;
    function->entry = entry;
    function->executable = std::move(executable);
    function->max_dynamic_shared =
        shared_per_block - std::min(shared_per_block, entry->static_shared_bytes);
    driver.functions.add(function);
    module->functions.emplace(name, function);
    return CUDA_SUCCESS;
}

CUresult find_variable(Driver &driver, const std::shared_ptr<Module> &module,
                       const std::string &name, CUdeviceptr *address, size_t *bytes) {
    (void)driver;
    const auto &variables = module->image.variables;
    const auto variable = std::find_if(variables.begin(), variables.end(),
                                       [&](const auto &one) { return one.name == name; });
    if (variable == variables.end()) {
        return CUDA_ERROR_NOT_FOUND;
    }
    uint64_t found_address = 0;
    uint64_t found_bytes = variable->bytes;
    if (module->ptx == nullptr) {
        const CUresult refusal = borrow_variable(*module, *variable, found_address);
        if (refusal != CUDA_SUCCESS) {
            return refusal;
        }
    } else if (!module->ptx->variable(name, found_address, found_bytes)) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (address != nullptr) {
        *address = found_address;
    }
    if (bytes != nullptr) {
        *bytes = found_bytes;
    }
    return CUDA_SUCCESS;
}

CUresult module_of_library(Call &call, Library &library, JitLog &log,
                           std::shared_ptr<Module> &module) {
    const auto known = library.modules.find(call.context.get());
    if (known != library.modules.end() && known->second->loaded) {
        module = known->second;
        return CUDA_SUCCESS;
    }
    const CUresult result = load_module(call, call.context, library.image.data(), log, module);
    if (result == CUDA_SUCCESS) {
        library.modules[call.context.get()] = module;
    }
    return result;
}

CUresult function_of_kernel(Call &call, const Kernel &kernel, std::shared_ptr<Function> &function) {
    const std::shared_ptr<Library> library = kernel.library.lock();
    if (library == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    JitLog log(0, nullptr, nullptr);
    std::shared_ptr<Module> module;
    const CUresult result = module_of_library(call, *library, log, module);
    return result == CUDA_SUCCESS ? find_function(call.driver, module, kernel.name, function)
                                  : result;
}

} // namespace cuda_sim
