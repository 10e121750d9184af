#include "attached_ptx.h"

#include <elf.h>

namespace sim {

namespace {

constexpr uint32_t section_type = SHT_LOUSER + 0x55A1; // unused by all toolkits
constexpr char section_name[] = ".uhal.ptx";

// The trailer is at the section's end, so that the texts begin where the compiler's bytes end.
struct Trailer {
    uint64_t original_bytes;
    uint64_t original_section_table;
    uint64_t problem_bytes;
    uint64_t texts;
};

void append(std::vector<unsigned char> &bytes, const void *data, uint64_t count) {
    const auto *first = static_cast<const unsigned char *>(data);
    bytes.insert(bytes.end(), first, first + count);
}

void append_text(std::vector<unsigned char> &bytes, const std::string &text) {
    const uint64_t count = text.size();
    append(bytes, &count, sizeof count);
    append(bytes, text.data(), count);
}

bool read_sections(const Bytes &elf, Elf64_Ehdr &header, std::vector<Elf64_Shdr> &sections) {
    if (!elf.read(0, header) || __builtin_memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) {
        return false;
    }
    sections.resize(header.e_shnum);
    for (size_t index = 0; index < sections.size(); ++index) {
        if (!elf.read(header.e_shoff + index * sizeof(Elf64_Shdr), sections[index])) {
            return false;
        }
    }
    return true;
}

// Finds the section with the texts, and its trailer. Returns null if there is no such section.
Bytes find_section(const Bytes &cubin, Trailer &trailer) {
    Elf64_Ehdr header;
    std::vector<Elf64_Shdr> sections;
    if (!read_sections(cubin, header, sections) || sections.back().sh_type != section_type) {
        return {nullptr, 0};
    }
    const Bytes content = cubin.part(sections.back().sh_offset, sections.back().sh_size);
    if (content.size() < sizeof trailer ||
        !content.read(content.size() - sizeof trailer, trailer)) {
        return {nullptr, 0};
    }
    return content;
}

} // namespace

std::vector<unsigned char> attach_ptx(const Bytes &cubin, const AttachedPtx &attached) {
    Elf64_Ehdr header;
    std::vector<Elf64_Shdr> sections;
    if (!read_sections(cubin, header, sections)) {
        return {};
    }
    std::vector<unsigned char> bytes(cubin.data(), cubin.data() + cubin.size());
    const Trailer trailer = {cubin.size(), header.e_shoff, attached.problem.size(),
                             attached.texts.size()};
    for (const std::string &text : attached.texts) {
        append_text(bytes, text);
    }
    append(bytes, attached.problem.data(), attached.problem.size());
    append(bytes, &trailer, sizeof trailer);
    Elf64_Shdr added = {};
    added.sh_type = section_type;
    added.sh_offset = cubin.size();
    added.sh_size = bytes.size() - cubin.size();
    added.sh_addralign = 1;
    // The section names are copied to the end, with one more name.
    Elf64_Shdr &names = sections[header.e_shstrndx];
    const Bytes texts = cubin.part(names.sh_offset, names.sh_size);
    names.sh_offset = bytes.size();
    added.sh_name = static_cast<uint32_t>(texts.size());
    append(bytes, texts.data(), texts.size());
    append(bytes, section_name, sizeof section_name);
    names.sh_size = bytes.size() - names.sh_offset;
    sections.push_back(added);
    bytes.resize((bytes.size() + 7) / 8 * 8);
    header.e_shoff = bytes.size();
    ++header.e_shnum;
    append(bytes, sections.data(), sections.size() * sizeof(Elf64_Shdr));
    __builtin_memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

bool read_attached_ptx(const Bytes &cubin, AttachedPtx &attached) {
    Trailer trailer;
    const Bytes content = find_section(cubin, trailer);
    if (content.size() == 0) {
        return false;
    }
    attached = AttachedPtx();
    uint64_t at = 0;
    for (uint64_t index = 0; index < trailer.texts; ++index) {
        uint64_t count = 0;
        if (!content.read(at, count)) {
            return false;
        }
        const Bytes text = content.part(at + sizeof count, count);
        if (text.size() != count) {
            return false;
        }
        attached.texts.emplace_back(text.data(), text.data() + count);
        at += sizeof count + count;
    }
    const Bytes problem = content.part(at, trailer.problem_bytes);
    attached.problem.assign(problem.data(), problem.data() + problem.size());
    return true;
}

std::vector<unsigned char> without_attached_ptx(const Bytes &cubin) {
    Trailer trailer;
    std::vector<unsigned char> bytes(cubin.data(), cubin.data() + cubin.size());
    if (find_section(cubin, trailer).size() == 0 || trailer.original_bytes > bytes.size() ||
        trailer.original_bytes < sizeof(Elf64_Ehdr)) {
        return bytes;
    }
    bytes.resize(trailer.original_bytes);
    auto *header = reinterpret_cast<Elf64_Ehdr *>(bytes.data());
    header->e_shoff = trailer.original_section_table;
    --header->e_shnum;
    return bytes;
}

} // namespace sim
