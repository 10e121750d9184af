#include "topsfb.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "messagepack.h"

namespace sim {

namespace {

constexpr char magic[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr uint64_t magic_bytes = sizeof magic - 1;
constexpr uint64_t most_members = 64;
constexpr uint64_t longest_triple = 256;

constexpr uint16_t machine_gcu = 0xF8;
constexpr unsigned char osabi_gcu = 0x43;
constexpr unsigned char type_kernel = STT_LOOS;
constexpr char note_name[] = "TOPSDTU";
constexpr uint32_t note_type = 0x20;

struct Member {
    uint64_t offset;
    uint64_t bytes;
    std::string triple;
};

// Reads the table of a bundle, never past the end of `bundle`.
bool read_table(const Bytes &bundle, std::vector<Member> &members) {
    uint64_t count = 0;
    if (bundle.size() < magic_bytes || std::memcmp(bundle.data(), magic, magic_bytes) != 0 ||
        !bundle.read(magic_bytes, count) || count > most_members) {
        return false;
    }
    uint64_t at = magic_bytes + sizeof count;
    for (; count != 0; --count) {
        Member member;
        uint64_t triple_bytes = 0;
        if (!bundle.read(at, member.offset) || !bundle.read(at + 8, member.bytes) ||
            !bundle.read(at + 16, triple_bytes) || triple_bytes > longest_triple) {
            return false;
        }
        const Bytes triple = bundle.part(at + 24, triple_bytes);
        if (triple.size() != triple_bytes) {
            return false;
        }
        member.triple.assign(reinterpret_cast<const char *>(triple.data()), triple_bytes);
        at += 24 + triple_bytes;
        members.push_back(member);
    }
    return true;
}

const char *target_of_flags(uint32_t flags) {
    switch (flags) {
    case 2:
        return "gcu200";
    case 3:
        return "gcu210";
    case 4:
        return "gcu300";
    default:
        return "";
    }
}

class Reader {
  public:
    Reader(const Bytes &elf, GcuImage &image) : elf_(elf), image_(image) {}

    bool read(std::string &why) {
        Elf64_Ehdr header;
        if (!elf_.read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
            header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != machine_gcu ||
            header.e_ident[EI_OSABI] != osabi_gcu || header.e_shentsize != sizeof(Elf64_Shdr)) {
            why = "it is no ELF file for GCUs";
            return false;
        }
        image_.target = target_of_flags(header.e_flags);
        for (uint64_t index = 0; index < header.e_shnum; ++index) {
            Elf64_Shdr section;
            if (!elf_.read(header.e_shoff + index * sizeof section, section)) {
                why = "its section table is cut off";
                return false;
            }
            sections_.push_back(section);
        }
        read_symbols();
        for (const Elf64_Shdr &section : sections_) {
            if (section.sh_type == SHT_NOTE && !read_notes(content(section))) {
                why = "its notes cannot be read";
                return false;
            }
        }
        return true;
    }

  private:
    Bytes content(const Elf64_Shdr &section) const {
        return elf_.part(section.sh_offset, section.sh_size);
    }

    void read_symbols() {
        for (const Elf64_Shdr &section : sections_) {
            if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections_.size()) {
                continue;
            }
            const Bytes names = content(sections_[section.sh_link]);
            const Bytes symbols = content(section);
            Elf64_Sym symbol;
            for (uint64_t at = 0; symbols.read(at, symbol); at += sizeof symbol) {
                if (ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL && symbol.st_shndx != SHN_UNDEF) {
                    add_symbol(names.text(symbol.st_name), symbol);
                }
            }
        }
    }

    void add_symbol(const std::string &name, const Elf64_Sym &symbol) {
        const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
        if (type == type_kernel) {
            image_.entries.emplace_back();
            image_.entries.back().kernel.entry = name;
        } else if (type == STT_OBJECT) {
            image_.variables.push_back({name, symbol.st_size, false});
        }
    }

    bool read_notes(const Bytes &notes) {
        Elf64_Nhdr header;
        for (uint64_t at = 0; notes.read(at, header);) {
            const uint64_t name_at = at + sizeof header;
            const uint64_t text_at = name_at + (header.n_namesz + 3) / 4 * 4;
            const Bytes description = notes.part(text_at, header.n_descsz);
            if (description.size() != header.n_descsz) {
                return false;
            }
            const bool ours = header.n_type == note_type && notes.text(name_at) == note_name;
            if (ours && !read_description(description)) {
                return false;
            }
            at = text_at + (header.n_descsz + 3) / 4 * 4;
        }
        return true;
    }

    bool read_description(const Bytes &packed) {
        PackedValue description;
        if (!unpack(packed, description)) {
            return false;
        }
        const std::string &processor = description["Processor"].text;
        image_.target = processor.empty() ? image_.target : processor;
        for (const PackedValue &kernel : description["Kernels"].items) {
            const auto entry = std::find_if(
                image_.entries.begin(), image_.entries.end(),
                [&](const GcuEntry &one) { return one.kernel.entry == kernel["Name"].text; });
            if (entry != image_.entries.end()) {
                describe(*entry, kernel["Args"].items);
            }
        }
        return true;
    }

    static void describe(GcuEntry &entry, const std::vector<PackedValue> &arguments) {
        entry.described = true;
        for (const PackedValue &argument : arguments) {
            const auto offset = static_cast<uint32_t>(argument["Offset"].number);
            const auto size = static_cast<uint32_t>(argument["Size"].number);
            entry.kernel.parameters.push_back({offset, size});
            entry.kernel.parameter_bytes = std::max(entry.kernel.parameter_bytes, offset + size);
            entry.buffers.push_back(argument["ValueKind"].text == "GlobalBuffer");
        }
    }

    const Bytes &elf_;
    GcuImage &image_;
    std::vector<Elf64_Shdr> sections_;
};

} // namespace

uint64_t topsfb_bytes(const void *image) {
    std::vector<Member> members;
    const uint64_t longest_table = magic_bytes + 8 + most_members * (24 + longest_triple);
    if (std::memcmp(image, magic, magic_bytes) != 0 ||
        !read_table(Bytes(image, longest_table), members)) {
        return 0;
    }
    uint64_t end = 0;
    for (const Member &member : members) {
        end = std::max(end, member.offset + member.bytes);
    }
    return end;
}

bool read_topsfb(const Bytes &bundle, std::vector<TopsfbMember> &members, std::string &why) {
    std::vector<Member> table;
    if (!read_table(bundle, table)) {
        why = "its table is broken";
        return false;
    }
    for (const Member &member : table) {
        const Bytes content = bundle.part(member.offset, member.bytes);
        if (content.size() != member.bytes) {
            why = "an image in it is cut off";
            return false;
        }
        if (member.triple.compare(0, 5, "host-") != 0) {
            members.push_back({member.triple, content});
        }
    }
    return true;
}

bool read_gcu(const Bytes &elf, GcuImage &image, std::string &why) {
    return Reader(elf, image).read(why);
}

} // namespace sim
