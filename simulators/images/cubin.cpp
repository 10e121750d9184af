#include "cubin.h"

#include <elf.h>

#include <algorithm>
#include <map>

namespace sim {

namespace {

constexpr uint16_t machine_cuda = 190;
constexpr unsigned char osabi_first = 51;  // the architecture is in the lowest byte of the flags
constexpr unsigned char osabi_second = 65; // the architecture is in the second byte

// Records of .nv.info: format, attribute, then a 16-bit value or length.
enum : unsigned char { format_sized = 4 };
enum : unsigned char {
    attribute_max_threads = 0x05,
    attribute_frame_size = 0x11,
    attribute_parameter_block = 0x19,
    attribute_parameter = 0x17,
    attribute_registers = 0x2F,
    attribute_api_version = 0x37,
};

// Records of .nv.compat have the same form.
enum : unsigned char { compatibility_instruction_set = 0x09 };

struct Section {
    std::string name;
    Elf64_Shdr header;
};

std::vector<Section> sections_of(const Bytes &elf, const Elf64_Ehdr &header) {
    std::vector<Section> sections;
    for (uint64_t index = 0; index < header.e_shnum; ++index) {
        Section section;
        if (!elf.read(header.e_shoff + index * sizeof section.header, section.header)) {
            return {};
        }
        sections.push_back(section);
    }
    if (header.e_shstrndx >= sections.size()) {
        return {};
    }
    const Elf64_Shdr &names = sections[header.e_shstrndx].header;
    const Bytes texts = elf.part(names.sh_offset, names.sh_size);
    for (Section &section : sections) {
        section.name = texts.text(section.header.sh_name);
    }
    return sections;
}

bool starts_with(const std::string &text, const std::string &start) {
    return text.compare(0, start.size(), start) == 0;
}

class Reader {
  public:
    Reader(const Bytes &elf, Image &image) : elf_(elf), image_(image) {}

    bool read(std::string &why) {
        Elf64_Ehdr header;
        if (!elf_.read(0, header) || header.e_machine != machine_cuda ||
            header.e_shentsize != sizeof(Elf64_Shdr)) {
            why = "it is no ELF file for NVIDIA devices";
            return false;
        }
        if (!read_target(header)) {
            why = "its ELF generation " + std::to_string(header.e_ident[EI_OSABI]) + " is unknown";
            return false;
        }
        sections_ = sections_of(elf_, header);
        if (sections_.empty()) {
            why = "its section table is broken";
            return false;
        }
        read_compatibility();
        read_symbols();
        const Section *constants = section(".nv.constant3");
        image_.constant_bytes = constants == nullptr ? 0 : constants->header.sh_size;
        for (const Section &section : sections_) {
            if (starts_with(section.name, ".text.")) {
                read_entry(section);
            }
        }
        return true;
    }

  private:
    bool read_target(const Elf64_Ehdr &header) {
        const unsigned char generation = header.e_ident[EI_OSABI];
        if (generation == osabi_second) {
            image_.target = header.e_flags >> 8 & 0xFF;
            return true;
        }
        image_.target = header.e_flags & 0xFF;
        image_.target_suffix = (header.e_flags & 0x800) != 0 ? 'a' : 0;
        return generation == osabi_first;
    }

    // Second-generation images mark in .nv.compat that they fit one architecture only.
    void read_compatibility() {
        const Section *compatibility = section(".nv.compat");
        if (compatibility == nullptr) {
            return;
        }
        for_each_record(content(*compatibility),
                        [&](unsigned char attribute, uint32_t value, const Bytes &) {
                            if (attribute == compatibility_instruction_set && value == 1) {
                                image_.target_suffix = 'a';
                            }
                        });
    }

    const Section *section(const std::string &name) const {
        const auto found = std::find_if(sections_.begin(), sections_.end(),
                                        [&](const Section &one) { return one.name == name; });
        return found == sections_.end() ? nullptr : &*found;
    }

    Bytes content(const Section &section) const {
        return elf_.part(section.header.sh_offset, section.header.sh_size);
    }

    void read_symbols() {
        const Section *table = section(".symtab");
        if (table == nullptr || table->header.sh_link >= sections_.size()) {
            return;
        }
        const Bytes names = content(sections_[table->header.sh_link]);
        const Bytes symbols = content(*table);
        Elf64_Sym symbol;
        for (uint64_t at = 0; symbols.read(at, symbol); at += sizeof symbol) {
            const std::string name = names.text(symbol.st_name);
            const auto index = static_cast<uint32_t>(at / sizeof symbol);
            if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
                functions_[name] = {index, ELF64_ST_BIND(symbol.st_info) != STB_LOCAL};
            }
            if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT &&
                ELF64_ST_BIND(symbol.st_info) != STB_LOCAL && symbol.st_shndx < sections_.size()) {
                const std::string &home = sections_[symbol.st_shndx].name;
                const bool initialized = home != ".nv.global";
                if (starts_with(home, ".nv.global") || starts_with(home, ".nv.constant3")) {
                    image_.variables.push_back({name, symbol.st_size, initialized});
                }
            }
        }
    }

    void read_entry(const Section &code) {
        ImageEntry entry;
        entry.kernel.entry = code.name.substr(std::string(".text.").size());
        const Section *information = section(".nv.info." + entry.kernel.entry);
        const auto function = functions_.find(entry.kernel.entry);
        if (information == nullptr || function == functions_.end() || !function->second.visible) {
            return;
        }
        std::map<uint32_t, ParameterLayout> parameters;
        for_each_record(content(*information),
                        [&](unsigned char attribute, uint32_t value, const Bytes &record) {
                            read_record(attribute, value, record, entry, parameters);
                        });
        for (const auto &[index, parameter] : parameters) {
            if (index != entry.kernel.parameters.size()) {
                return;
            }
            entry.kernel.parameters.push_back(parameter);
        }
        read_needs(function->second.index, entry);
        const Section *shared = section(".nv.shared." + entry.kernel.entry);
        if (shared != nullptr) {
            // From sm_90 on the system keeps the first KiB for itself.
            const uint64_t reserved = image_.target >= 90 ? 1024 : 0;
            entry.static_shared_bytes = static_cast<uint32_t>(
                shared->header.sh_size - std::min(reserved, shared->header.sh_size));
        }
        image_.entries.push_back(std::move(entry));
    }

    void read_record(unsigned char attribute, uint32_t value, const Bytes &record,
                     ImageEntry &entry, std::map<uint32_t, ParameterLayout> &parameters) {
        if (attribute == attribute_parameter_block) {
            entry.kernel.parameter_bytes = value;
        } else if (attribute == attribute_api_version) {
            record.read(0, image_.toolkit);
        } else if (attribute == attribute_max_threads) {
            uint32_t extents[3] = {};
            record.read(0, extents);
            entry.max_threads = extents[0] * extents[1] * extents[2];
        } else if (attribute == attribute_parameter) {
            uint16_t ordinal = 0;
            uint16_t offset = 0;
            uint32_t packed = 0;
            if (record.read(4, ordinal) && record.read(6, offset) && record.read(8, packed)) {
                parameters[ordinal] = {offset, packed >> 18};
            }
        }
    }

    void read_needs(uint32_t function, ImageEntry &entry) {
        const Section *information = section(".nv.info");
        if (information == nullptr) {
            return;
        }
        for_each_record(content(*information),
                        [&](unsigned char attribute, uint32_t, const Bytes &record) {
                            uint32_t symbol = 0;
                            if (!record.read(0, symbol) || symbol != function) {
                                return;
                            }
                            if (attribute == attribute_registers) {
                                record.read(4, entry.registers);
                            } else if (attribute == attribute_frame_size) {
                                record.read(4, entry.local_bytes);
                            }
                        });
    }

    template <class Visit> static void for_each_record(const Bytes &records, Visit visit) {
        uint64_t at = 0;
        unsigned char format = 0;
        unsigned char attribute = 0;
        uint16_t value = 0;
        while (records.read(at, format) && records.read(at + 1, attribute) &&
               records.read(at + 2, value)) {
            at += 4;
            const uint64_t length = format == format_sized ? value : 0;
            visit(attribute, uint32_t{value}, records.part(at, length));
            at += length;
        }
    }

    struct Function {
        uint32_t index;
        bool visible;
    };

    const Bytes elf_;
    Image &image_;
    std::vector<Section> sections_;
    std::map<std::string, Function> functions_;
};

} // namespace

uint64_t elf_bytes(const void *image) {
    Elf64_Ehdr header;
    __builtin_memcpy(&header, image, sizeof header);
    const bool is_elf = __builtin_memcmp(header.e_ident, ELFMAG, SELFMAG) == 0;
    if (!is_elf || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shoff > (1U << 30)) {
        return 0;
    }
    const uint64_t sections = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
    const uint64_t segments = header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize;
    return std::max({sections, segments, uint64_t{sizeof header}});
}

bool read_cubin(const Bytes &elf, Image &image, std::string &why) {
    image = Image();
    image.kind = Image::Kind::cubin;
    return Reader(elf, image).read(why);
}

} // namespace sim
