#include "hsaco.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>

#include "messagepack.h"

namespace sim {

namespace {

constexpr uint16_t machine_amdgpu = 224;
constexpr unsigned char osabi_hsa = 64;
constexpr unsigned char oldest_abi = 2; // code object version 4
constexpr unsigned char newest_abi = 4; // version 6
constexpr uint32_t metadata_note = 32;
constexpr uint64_t most_kernarg_bytes = 1 << 20;
constexpr uint64_t any_u32 = UINT32_MAX;

// The part of a descriptor that repeats the metadata.
struct Descriptor {
    uint32_t group_bytes;
    uint32_t private_bytes;
    uint32_t kernarg_bytes;
};

constexpr unsigned xnack = 1;
constexpr unsigned sramecc = 2;

// A processor's number in e_flags, and the features that it may have. Source: section "ELF Header"
// of LLVM's "User Guide for AMDGPU Backend".
struct Processor {
    uint32_t number;
    const char *name;
    unsigned features;
};

constexpr Processor processors[] = {
    {0x2C, "gfx900", xnack},
    {0x2F, "gfx906", xnack | sramecc},
    {0x30, "gfx908", xnack | sramecc},
    {0x3F, "gfx90a", xnack | sramecc},
    {0x4C, "gfx942", xnack | sramecc},
    {0x4F, "gfx950", xnack | sramecc},
    {0x33, "gfx1010", xnack},
    {0x36, "gfx1030", 0},
    {0x37, "gfx1031", 0},
    {0x38, "gfx1032", 0},
    {0x41, "gfx1100", 0},
    {0x46, "gfx1101", 0},
    {0x47, "gfx1102", 0},
    {0x44, "gfx1103", 0},
    {0x43, "gfx1150", 0},
    {0x4A, "gfx1151", 0},
    {0x48, "gfx1200", 0},
    {0x4E, "gfx1201", 0},
    {0x51, "gfx9-generic", xnack},
    {0x5F, "gfx9-4-generic", xnack | sramecc},
    {0x52, "gfx10-1-generic", xnack},
    {0x53, "gfx10-3-generic", 0},
    {0x54, "gfx11-generic", 0},
    {0x59, "gfx12-generic", 0},
};

struct Feature {
    const char *name;
    unsigned bit;
    unsigned shift; // of its two bits in e_flags
};

constexpr Feature features[] = {{"xnack", xnack, 8}, {"sramecc", sramecc, 10}};
constexpr uint32_t feature_off = 2;
constexpr uint32_t feature_on = 3;

const Processor *find_processor(uint32_t flags) {
    for (const Processor &one : processors) {
        if (one.number == (flags & 0xFF)) {
            return &one;
        }
    }
    return nullptr;
}

class Reader {
  public:
    using Problem = HsacoImage::Problem;

    Reader(const Bytes &elf, HsacoImage &image, std::string &why)
        : elf_(elf), image_(image), why_(why) {}

    Problem read() {
        if (!read_header() || !read_sections() || !read_segments()) {
            return Problem::no_code_object;
        }
        image_.version = header_.e_ident[EI_ABIVERSION] + 2U;
        if (!find_metadata()) {
            return Problem::no_code_object;
        }
        if (find_processor(header_.e_flags) == nullptr) {
            fail("its header is for a processor that is unknown");
            return Problem::no_code_object;
        }
        if (!read_target()) {
            return Problem::impossible_target;
        }
        return read_symbols() && read_kernels() ? Problem::none : problem_;
    }

  private:
    bool fail(const std::string &why) {
        why_ = why;
        return false;
    }

    bool read_header() {
        if (!elf_.read(0, header_) || __builtin_memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 ||
            header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_machine != machine_amdgpu ||
            header_.e_shentsize != sizeof(Elf64_Shdr) ||
            header_.e_phentsize != sizeof(Elf64_Phdr)) {
            return fail("it is no ELF file for AMD devices");
        }
        if (header_.e_ident[EI_OSABI] != osabi_hsa || header_.e_type != ET_DYN) {
            return fail("it is not made for this runtime, or has not been linked");
        }
        const unsigned char abi = header_.e_ident[EI_ABIVERSION];
        return (abi >= oldest_abi && abi <= newest_abi) ||
               fail("its ELF ABI version is " + std::to_string(abi) +
                    "; code object versions 4 to 6 are simulated");
    }

    bool read_sections() {
        for (uint64_t index = 0; index < header_.e_shnum; ++index) {
            Elf64_Shdr section;
            if (!elf_.read(header_.e_shoff + index * sizeof section, section)) {
                return fail("its section table is broken");
            }
            sections_.push_back(section);
        }
        return true;
    }

    bool read_segments() {
        for (uint64_t index = 0; index < header_.e_phnum; ++index) {
            Elf64_Phdr segment;
            if (!elf_.read(header_.e_phoff + index * sizeof segment, segment)) {
                return fail("its segment table is broken");
            }
            segments_.push_back(segment);
        }
        return true;
    }

    bool find_metadata() {
        for (const Elf64_Phdr &segment : segments_) {
            if (segment.p_type == PT_NOTE &&
                find_note(elf_.part(segment.p_offset, segment.p_filesz))) {
                return metadata_.kind == PackedValue::Kind::map || fail("its metadata is broken");
            }
        }
        return fail("it has no metadata");
    }

    bool find_note(const Bytes &notes) {
        Elf64_Nhdr note;
        for (uint64_t at = 0; notes.read(at, note);) {
            const uint64_t name = at + sizeof note;
            const uint64_t content = name + (uint64_t{note.n_namesz} + 3) / 4 * 4;
            if (note.n_type == metadata_note && notes.text(name) == "AMDGPU") {
                if (!unpack(notes.part(content, note.n_descsz), metadata_)) {
                    metadata_ = PackedValue();
                }
                return true;
            }
            at = content + (uint64_t{note.n_descsz} + 3) / 4 * 4;
        }
        return false;
    }

    // The runtime reads only the header. This check also requires the metadata to agree.
    bool read_target() {
        const Processor &processor = *find_processor(header_.e_flags);
        image_.target.processor = processor.name;
        for (const Feature &feature : features) {
            const uint32_t setting = header_.e_flags >> feature.shift & 3;
            if (setting != 0 && (processor.features & feature.bit) == 0) {
                return fail(std::string(processor.name) + " has no " + feature.name);
            }
            if (setting == feature_off || setting == feature_on) {
                image_.target.features[feature.name] = setting == feature_on;
            }
        }
        const std::string &name = metadata_["amdhsa.target"].text;
        AmdTarget told;
        return (parse_amd_target(name, told) && told.name() == image_.target.name()) ||
               fail("its header is for " + image_.target.name() + " and its metadata for \"" +
                    name.substr(0, 80) + "\"");
    }

    bool read_symbols() {
        const char *dynamic = std::getenv("LOADER_USE_DYNSYM");
        const uint32_t looked_in = dynamic != nullptr && *dynamic != '0' ? SHT_DYNSYM : SHT_SYMTAB;
        for (const Elf64_Shdr &section : sections_) {
            if (section.sh_type != looked_in || section.sh_link >= sections_.size()) {
                continue;
            }
            const Elf64_Shdr &strings = sections_[section.sh_link];
            const Bytes names = elf_.part(strings.sh_offset, strings.sh_size);
            const Bytes symbols = elf_.part(section.sh_offset, section.sh_size);
            Elf64_Sym symbol;
            for (uint64_t at = 0; symbols.read(at, symbol); at += sizeof symbol) {
                if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT &&
                    ELF64_ST_BIND(symbol.st_info) != STB_LOCAL) {
                    objects_[names.text(symbol.st_name)] = symbol;
                }
            }
        }
        return true;
    }

    bool read_kernels() {
        const PackedValue &listed = metadata_["amdhsa.kernels"];
        std::map<std::string, bool> seen;
        for (const PackedValue &facts : listed.items) {
            HsacoKernel kernel;
            if (!read_kernel(facts, kernel)) {
                return false;
            }
            if (!seen.emplace(kernel.symbol, true).second) {
                problem_ = Problem::defined_twice;
                return fail("it has " + kernel.symbol + " twice");
            }
            image_.kernels.push_back(std::move(kernel));
        }
        for (const auto &[name, symbol] : objects_) {
            if (seen.count(name) == 0 && !name.empty()) {
                image_.variables.push_back({name, symbol.st_size});
            }
        }
        return true;
    }

    bool read_kernel(const PackedValue &facts, HsacoKernel &kernel) {
        kernel.name = facts[".name"].text;
        kernel.symbol = facts[".symbol"].text;
        const bool sizes =
            size(facts, ".kernarg_segment_size", most_kernarg_bytes, kernel.kernarg_bytes) &&
            size(facts, ".group_segment_fixed_size", any_u32, kernel.group_bytes) &&
            size(facts, ".private_segment_fixed_size", any_u32, kernel.private_bytes) &&
            size(facts, ".max_flat_workgroup_size", any_u32, kernel.max_work_items);
        if (kernel.name.empty() || kernel.symbol.empty() || !sizes) {
            return fail("its metadata leaves out what a kernel needs");
        }
        kernel.dynamic_stack = facts[".uses_dynamic_stack"].number != 0;
        const PackedValue &required = facts[".reqd_workgroup_size"];
        for (size_t axis = 0; axis < 3 && required.items.size() == 3; ++axis) {
            kernel.required_group[axis] = static_cast<uint32_t>(required.items[axis].number);
        }
        for (const PackedValue &one : facts[".args"].items) {
            HsacoArgument argument = {one[".value_kind"].text, 0, 0};
            if (argument.kind.empty() || !size(one, ".offset", any_u32, argument.offset) ||
                !size(one, ".size", any_u32, argument.size) ||
                uint64_t{argument.offset} + argument.size > kernel.kernarg_bytes) {
                return fail("an argument of " + kernel.name + " lies outside its arguments");
            }
            kernel.arguments.push_back(std::move(argument));
        }
        return read_descriptor(kernel);
    }

    bool read_descriptor(HsacoKernel &kernel) {
        const auto found = objects_.find(kernel.symbol);
        kernel.exported = found != objects_.end();
        if (!kernel.exported) {
            return true;
        }
        const Bytes bytes = at_address(found->second.st_value, sizeof kernel.descriptor);
        Descriptor told;
        if (!bytes.read(0, kernel.descriptor) || !bytes.read(0, told)) {
            return fail("the descriptor of " + kernel.name + " lies outside the file");
        }
        return (told.group_bytes == kernel.group_bytes &&
                told.private_bytes == kernel.private_bytes &&
                told.kernarg_bytes == kernel.kernarg_bytes) ||
               fail("descriptor and metadata of " + kernel.name + " disagree");
    }

    static bool size(const PackedValue &facts, const std::string &key, uint64_t most,
                     uint32_t &value) {
        const PackedValue &told = facts[key];
        value = static_cast<uint32_t>(told.number);
        return told.is_number(most);
    }

    // Returns the file's bytes at an address.
    Bytes at_address(uint64_t address, uint64_t bytes) const {
        for (const Elf64_Phdr &segment : segments_) {
            const uint64_t offset = address - segment.p_vaddr;
            if (segment.p_type == PT_LOAD && offset < segment.p_filesz &&
                bytes <= segment.p_filesz - offset) {
                return elf_.part(segment.p_offset + offset, bytes);
            }
        }
        return Bytes(nullptr, 0);
    }

    const Bytes elf_;
    HsacoImage &image_;
    std::string &why_;
    Elf64_Ehdr header_ = {};
    std::vector<Elf64_Shdr> sections_;
    std::vector<Elf64_Phdr> segments_;
    std::map<std::string, Elf64_Sym> objects_; // by name
    PackedValue metadata_;
    Problem problem_ = Problem::no_code_object; // when reading fails
};

} // namespace

std::string AmdTarget::name() const {
    std::string name = processor;
    for (const auto &[feature, on] : features) {
        name += ":" + feature + (on ? "+" : "-");
    }
    return name;
}

bool parse_amd_target(const std::string &text, AmdTarget &target) {
    const size_t start = text.rfind("gfx");
    const std::string triple = "amdgcn-amd-amdhsa-";
    if (start == std::string::npos || (start != 0 && text.compare(0, triple.size(), triple) != 0)) {
        return false;
    }
    target = AmdTarget();
    size_t end = std::min(text.find(':', start), text.size());
    target.processor = text.substr(start, end - start);
    while (end < text.size()) {
        const size_t first = end + 1;
        end = std::min(text.find(':', first), text.size());
        const std::string feature = text.substr(first, end - first);
        const std::string name = feature.substr(0, feature.empty() ? 0 : feature.size() - 1);
        const bool known = name == "sramecc" || name == "xnack";
        if (!known || (feature.back() != '+' && feature.back() != '-')) {
            return false;
        }
        target.features[name] = feature.back() == '+';
    }
    return target.processor.size() > 3;
}

std::string amd_conflict(const AmdTarget &code, const AmdTarget &device) {
    if (code.processor != device.processor) {
        return "code for " + code.processor + " does not run on " + device.processor;
    }
    for (const auto &[feature, on] : code.features) {
        const auto has = device.features.find(feature);
        if (has == device.features.end() || has->second != on) {
            return "code for " + code.name() + " does not run on " + device.name();
        }
    }
    return "";
}

HsacoImage::Problem read_hsaco(const Bytes &elf, HsacoImage &image, std::string &why) {
    image = HsacoImage();
    return Reader(elf, image, why).read();
}

} // namespace sim
