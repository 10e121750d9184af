#include "inputs.h"

#include <ar.h>
#include <elf.h>

#include <algorithm>
#include <cstring>

#include "../images/fatbin.h"

namespace compilers {

namespace {

constexpr uint16_t machine_cuda = 190;

bool starts_with(const sim::Bytes &input, const char *start, size_t bytes) {
    return input.size() >= bytes && std::memcmp(input.data(), start, bytes) == 0;
}

// A fatbin may hold the same program for several targets.
bool add_fatbin(const sim::Bytes &input, unsigned target, sim::AttachedPtx &found) {
    std::vector<sim::FatbinMember> members;
    std::string why;
    if (!sim::read_fatbin(input, members, why)) {
        return false;
    }
    const sim::FatbinMember *newest = nullptr;
    for (const sim::FatbinMember &member : members) {
        if (member.kind == sim::Image::Kind::ptx && member.problem.empty() &&
            member.target <= target && (newest == nullptr || member.target > newest->target)) {
            newest = &member;
        }
    }
    if (newest == nullptr) {
        return false;
    }
    const auto *text = reinterpret_cast<const char *>(newest->content.data());
    found.texts.emplace_back(text, strnlen(text, newest->content.size()));
    return true;
}

// An object file of a host compiler carries fatbins, one behind the other.
bool add_object(const sim::Bytes &input, unsigned target, sim::AttachedPtx &found) {
    Elf64_Ehdr header;
    if (!input.read(0, header) || header.e_shentsize != sizeof(Elf64_Shdr)) {
        return false;
    }
    Elf64_Shdr names = {};
    input.read(header.e_shoff + header.e_shstrndx * sizeof names, names);
    const sim::Bytes texts = input.part(names.sh_offset, names.sh_size);
    bool any = false;
    for (uint64_t index = 0; index < header.e_shnum; ++index) {
        Elf64_Shdr section = {};
        input.read(header.e_shoff + index * sizeof section, section);
        const std::string name = texts.text(section.sh_name);
        if (name != ".nv_fatbin" && name != "__nv_relfatbin") {
            continue;
        }
        sim::Bytes rest = input.part(section.sh_offset, section.sh_size);
        while (rest.size() >= 16) {
            const uint64_t bytes = sim::fatbin_bytes(rest.data());
            if (bytes == 0 || bytes > rest.size()) {
                break;
            }
            any = add_fatbin(rest.part(0, bytes), target, found) || any;
            rest = rest.part(bytes, rest.size() - bytes);
        }
    }
    return any;
}

bool add_archive(const sim::Bytes &input, unsigned target, sim::AttachedPtx &found) {
    bool any = false;
    ar_hdr header;
    for (uint64_t at = SARMAG; input.read(at, header);) {
        const uint64_t bytes = std::strtoull(header.ar_size, nullptr, 10);
        at += sizeof header;
        any = add_object(input.part(at, bytes), target, found) || any;
        at += bytes + bytes % 2;
    }
    return any;
}

bool add_cubin(const sim::Bytes &input, sim::AttachedPtx &found) {
    sim::AttachedPtx attached;
    if (!sim::read_attached_ptx(input, attached)) {
        return false;
    }
    found.texts.insert(found.texts.end(), attached.texts.begin(), attached.texts.end());
    found.problem += attached.problem;
    return true;
}

bool add_text(const sim::Bytes &input, sim::AttachedPtx &found) {
    const auto *text = reinterpret_cast<const char *>(input.data());
    found.texts.emplace_back(text, strnlen(text, input.size()));
    return found.texts.back().find(".version") != std::string::npos;
}

bool add(const sim::Bytes &input, unsigned target, sim::AttachedPtx &found) {
    if (starts_with(input, ELFMAG, SELFMAG)) {
        Elf64_Ehdr header;
        return input.read(0, header) &&
               (header.e_machine == machine_cuda ? add_cubin(input, found)
                                                 : add_object(input, target, found));
    }
    if (starts_with(input, ARMAG, SARMAG)) {
        return add_archive(input, target, found);
    }
    if (input.size() >= 16 && sim::fatbin_bytes(input.data()) != 0) {
        return add_fatbin(input, target, found);
    }
    return add_text(input, found);
}

} // namespace

void add_ptx_of(const sim::Bytes &input, const std::string &name, unsigned target,
                sim::AttachedPtx &found) {
    const size_t before = found.texts.size();
    if (!add(input, target, found)) {
        found.texts.resize(std::min(before, found.texts.size()));
        found.problem += (found.problem.empty() ? "" : ", ") + name;
    }
}

} // namespace compilers
