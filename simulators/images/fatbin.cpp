#include "fatbin.h"

#include <dlfcn.h>

#include "lz4.h"

namespace sim {

namespace {

constexpr uint32_t magic = 0xBA55ED50;
// Hostile sizes are refused before memory is allocated.
constexpr uint64_t largest_member = uint64_t{256} << 20;

struct ContainerHeader {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t content_bytes;
};

struct MemberHeader {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t stored_bytes; // with padding
    uint32_t compressed_bytes;
    uint32_t options;
    uint16_t minor;
    uint16_t major;
    uint32_t target;
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t reserved;
    uint64_t decompressed_bytes;
};

static_assert(sizeof(ContainerHeader) == 16 && sizeof(MemberHeader) == 64, "as in the file");

enum : uint16_t { kind_ptx = 1, kind_cubin = 2 };
enum : uint64_t { flag_lz4 = 0x2000, flag_zstd = 0x8000 };

bool decompress_zstd(const Bytes &stored, std::vector<unsigned char> &content,
                     std::string &problem) {
    using Decompress = size_t (*)(void *, size_t, const void *, size_t);
    static void *const library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto decompress = library == nullptr
                                ? nullptr
                                : reinterpret_cast<Decompress>(dlsym(library, "ZSTD_decompress"));
    if (decompress == nullptr) {
        problem = "it is compressed with zstd and libzstd.so.1 is not installed";
        return false;
    }
    const size_t made = decompress(content.data(), content.size(), stored.data(), stored.size());
    if (made != content.size()) {
        problem = "its zstd data are broken";
        return false;
    }
    return true;
}

void read_content(const Bytes &container, uint64_t at, const MemberHeader &header,
                  FatbinMember &member) {
    const bool lz4 = (header.flags & flag_lz4) != 0;
    const bool zstd = (header.flags & flag_zstd) != 0;
    const uint64_t stored_bytes = lz4 || zstd ? header.compressed_bytes : header.stored_bytes;
    const Bytes stored = container.part(at + header.header_bytes, stored_bytes);
    if (stored.size() == 0 || header.decompressed_bytes > largest_member) {
        member.problem = "its size is impossible";
        return;
    }
    if (lz4 || zstd) {
        member.content.resize(header.decompressed_bytes);
        if (zstd && !decompress_zstd(stored, member.content, member.problem)) {
            member.content.clear();
        }
        if (lz4 && !decompress_lz4(stored, member.content)) {
            member.content.clear();
            member.problem = "its LZ4 data are broken";
        }
    } else {
        member.content.assign(stored.data(), stored.data() + stored.size());
    }
    if (member.kind == Image::Kind::ptx && !member.content.empty()) {
        member.content.push_back(0);
    }
}

} // namespace

uint64_t fatbin_bytes(const void *image) {
    ContainerHeader header;
    __builtin_memcpy(&header, image, sizeof header);
    const bool plausible = header.magic == magic && header.header_bytes >= sizeof header &&
                           header.content_bytes <= (uint64_t{1} << 32);
    return plausible ? header.header_bytes + header.content_bytes : 0;
}

bool read_fatbin(const Bytes &container, std::vector<FatbinMember> &members, std::string &why) {
    ContainerHeader container_header;
    if (!container.read(0, container_header) || container_header.magic != magic) {
        why = "it is no fatbin";
        return false;
    }
    uint64_t at = container_header.header_bytes;
    while (at < container.size()) {
        MemberHeader header;
        if (!container.read(at, header) || header.header_bytes < sizeof header ||
            container.part(at, header.header_bytes + header.stored_bytes).size() == 0) {
            why = "its table is broken";
            return false;
        }
        if (header.kind == kind_ptx || header.kind == kind_cubin) {
            FatbinMember member;
            member.kind = header.kind == kind_ptx ? Image::Kind::ptx : Image::Kind::cubin;
            member.target = header.target;
            read_content(container, at, header, member);
            members.push_back(std::move(member));
        }
        at += header.header_bytes + header.stored_bytes;
    }
    return true;
}

} // namespace sim
