#include "module_images.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "../images/attached_ptx.h"
#include "../images/cubin.h"
#include "../images/fatbin.h"
#include "../images/ptx.h"
#include "../images/ptx_link.h"

namespace cuda_sim {

std::string target_name(const sim::Image &image) {
    return "sm_" + std::to_string(image.target) +
           (image.target_suffix == 0 ? "" : std::string(1, image.target_suffix));
}

namespace {

constexpr size_t longest_ptx = size_t{256} << 20;
constexpr uint32_t wrapper_magic = 0x466243B1;

// Header that nvcc puts in front of a fatbin in host programs.
struct FatbinWrapper {
    uint32_t magic;
    uint32_t version;
    const void *fatbin;
};

std::string dotted(unsigned tenths) {
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
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
    // Checks the version first, because newer PTX may have any content after the version.
    const bool readable = sim::read_ptx(text, image, why);
    image.text = text;
    if (image.ptx_version > newest_ptx(driver.version())) {
        return check_ptx(driver, profile, image, why);
    }
    return readable ? check_ptx(driver, profile, image, why) : CUDA_ERROR_INVALID_PTX;
}

// Replaces a cubin by its PTX, but keeps facts that only the compiler knows.
void take_text(sim::Image &cubin, sim::Image text) {
    for (sim::ImageEntry &entry : text.entries) {
        const auto compiled =
            std::find_if(cubin.entries.begin(), cubin.entries.end(),
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
    const CUresult result =
        attached.texts.empty() ? CUDA_SUCCESS : read_text(driver, profile, linked, text, why);
    if (result == CUDA_SUCCESS && !attached.texts.empty()) {
        take_text(image, std::move(text));
    }
    image.missing = attached.problem;
    return result;
}

// Whether the image's kernels can run here, and be counted if counts are requested.
bool is_executable(Driver &driver, const sim::Image &image) {
    std::vector<std::string> entries;
    for (const sim::ImageEntry &entry : image.entries) {
        entries.push_back(entry.kernel.entry);
    }
    const bool host_build = !driver.ptx_kernels.counts() && driver.host_kernels.has_any(entries);
    return image.kind == sim::Image::Kind::ptx || host_build;
}

// Chooses the newest machine program for this device, else the newest PTX that can be compiled. PTX
// also replaces a machine program that nothing here can run.
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

} // namespace

size_t image_bytes(const void *image) {
    const uint64_t elf = sim::elf_bytes(image);
    const uint64_t fatbin = sim::fatbin_bytes(image);
    if (elf != 0 || fatbin != 0) {
        return elf != 0 ? elf : fatbin;
    }
    return strnlen(static_cast<const char *>(image), longest_ptx);
}

CUresult read_image(Driver &driver, const Profile &profile, const void *data, sim::Image &image,
                    std::string &why) {
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

bool read_file(const char *path, std::vector<char> &bytes) {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
    bytes.insert(bytes.end(), 64, 0);
    return file.is_open();
}

} // namespace cuda_sim
