#include "ptx.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "../engine/settings.h"

namespace sim {

namespace {

struct Token {
    std::string_view text;
    unsigned line;
};

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
           c == '.';
}

std::vector<Token> tokens_of(std::string_view text) {
    std::vector<Token> tokens;
    unsigned line = 1;
    size_t at = 0;
    const auto skip_to = [&](std::string_view end) {
        const size_t found = std::min(text.find(end, at), text.size());
        line += static_cast<unsigned>(std::count(text.begin() + at, text.begin() + found, '\n'));
        at = std::min(found + end.size(), text.size());
    };
    while (at < text.size()) {
        const char c = text[at];
        if (c == '\n') {
            ++line;
            ++at;
        } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
            ++at;
        } else if (text.compare(at, 2, "//") == 0) {
            at = std::min(text.find('\n', at), text.size());
        } else if (text.compare(at, 2, "/*") == 0) {
            skip_to("*/");
        } else if (c == '"') {
            ++at;
            skip_to("\"");
        } else {
            size_t end = at + 1;
            while (is_word(c) && end < text.size() && is_word(text[end])) {
                ++end;
            }
            tokens.push_back({text.substr(at, end - at), line});
            at = end;
        }
    }
    return tokens;
}

uint32_t round_up(uint32_t value, uint32_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// Bytes of a type such as ".f32"; 0 for a word that is no type.
uint32_t type_bytes(std::string_view word) {
    static const std::map<std::string_view, uint32_t> sizes = {
        {".b8", 1},         {".u8", 1},     {".s8", 1},    {".b16", 2},    {".u16", 2},
        {".s16", 2},        {".f16", 2},    {".bf16", 2},  {".b32", 4},    {".u32", 4},
        {".s32", 4},        {".f32", 4},    {".b64", 8},   {".u64", 8},    {".s64", 8},
        {".f64", 8},        {".b128", 16},  {".f16x2", 4}, {".bf16x2", 4}, {".texref", 8},
        {".samplerref", 8}, {".surfref", 8}};
    const auto found = sizes.find(word);
    return found == sizes.end() ? 0 : found->second;
}

// One declaration: "[.align N] .type name[extent]...", with anything else in between.
struct Declaration {
    std::string name;
    uint64_t bytes = 0;
    uint32_t alignment = 1;
    bool open_ended = false; // "name[]"
};

class Reader {
  public:
    Reader(std::string_view text, Image &image) : tokens_(tokens_of(text)), image_(image) {}

    bool read(std::string &why) {
        while (at_ < tokens_.size() && problem_.empty()) {
            read_directive();
        }
        if (problem_.empty() && (image_.ptx_version == 0 || image_.target == 0)) {
            problem_ = "it has no .version or no .target";
        }
        why = problem_;
        return problem_.empty();
    }

  private:
    std::string_view word(size_t ahead = 0) const {
        return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : std::string_view();
    }

    void fail(const std::string &what) {
        const unsigned line = at_ < tokens_.size() ? tokens_[at_].line : 0;
        problem_ = "line " + std::to_string(line) + ": " + what;
    }

    void read_directive() {
        const std::string_view directive = word();
        ++at_;
        if (directive == ".version") {
            read_version();
        } else if (directive == ".target") {
            read_target();
        } else if (directive == ".visible" || directive == ".weak" || directive == ".common") {
            visible_ = true;
        } else if (directive == ".entry") {
            read_entry();
            end_statement();
        } else if (directive == ".func") {
            skip_to_body();
            skip_braces();
            end_statement();
        } else if (directive == ".global" || directive == ".const") {
            read_variable();
            end_statement();
        } else if (directive == ".shared") {
            const Declaration declaration = read_declaration();
            shared_[declaration.name] = declaration.open_ended ? 0 : declaration.bytes;
            skip_past(";");
            end_statement();
        } else if (directive == ".section" || directive == "@@DWARF") {
            while (at_ < tokens_.size() && word() != "{") {
                ++at_;
            }
            skip_braces();
        }
    }

    void end_statement() { visible_ = false; }

    void read_version() {
        const auto parts = split(std::string(word()), '.');
        const auto major = parts.size() == 2 ? to_number(parts[0]) : std::nullopt;
        const auto minor = parts.size() == 2 ? to_number(parts[1]) : std::nullopt;
        if (!major || !minor) {
            fail("bad .version");
            return;
        }
        image_.ptx_version = static_cast<unsigned>(*major * 10 + *minor);
    }

    void read_target() {
        const std::string target(word());
        const bool suffixed = !target.empty() && (target.back() == 'a' || target.back() == 'f');
        const size_t digits = target.size() - (suffixed ? 1 : 0);
        const auto number = target.compare(0, 3, "sm_") == 0 && digits > 3
                                ? to_number(target.substr(3, digits - 3))
                                : std::nullopt;
        if (!number) {
            fail("bad .target '" + target + "'");
            return;
        }
        image_.target = static_cast<unsigned>(*number);
        image_.target_suffix = suffixed ? target.back() : 0;
    }

    Declaration read_declaration() {
        Declaration declaration;
        uint32_t item = 0;
        while (at_ < tokens_.size() && (word()[0] == '.' || std::isdigit(word()[0]) != 0)) {
            if (word() == ".align") {
                const auto alignment = to_number(std::string(word(1)));
                declaration.alignment = static_cast<uint32_t>(alignment.value_or(1));
                ++at_;
            } else if (item == 0) {
                item = type_bytes(word());
            }
            ++at_;
        }
        declaration.name = std::string(word());
        declaration.bytes = item;
        declaration.alignment = std::max(declaration.alignment, std::max(item, 1U));
        ++at_;
        while (word() == "[") {
            if (word(1) == "]") {
                declaration.open_ended = true;
                at_ += 2;
            } else {
                declaration.bytes *= to_number(std::string(word(1))).value_or(0);
                at_ += 3;
            }
        }
        if (declaration.alignment == 0 ||
            (declaration.alignment & (declaration.alignment - 1)) != 0) {
            fail("alignment is no power of two");
            declaration.alignment = 1;
        }
        return declaration;
    }

    void read_variable() {
        const Declaration declaration = read_declaration();
        bool initialized = false;
        while (at_ < tokens_.size() && word() != ";") {
            const bool zero =
                word() == "=" || word() == "{" || word() == "}" || word() == "," || word() == "0";
            initialized = initialized || !zero;
            ++at_;
        }
        ++at_;
        if (visible_) {
            image_.variables.push_back({declaration.name, declaration.bytes, initialized});
        }
    }

    void read_entry() {
        ImageEntry entry;
        entry.kernel.entry = std::string(word());
        ++at_;
        if (word() == "(") {
            ++at_;
            read_parameters(entry.kernel);
        }
        while (at_ < tokens_.size() && word() != "{" && word() != ";") {
            if (word() == ".maxntid" || word() == ".reqntid") {
                entry.max_threads = read_extents();
            } else {
                ++at_;
            }
        }
        if (word() == ";") {
            ++at_;
            return;
        }
        entry.static_shared_bytes = static_cast<uint32_t>(read_body());
        image_.entries.push_back(std::move(entry));
    }

    void read_parameters(KernelDescription &kernel) {
        uint32_t offset = 0;
        while (at_ < tokens_.size() && word() != ")") {
            if (word() != ".param") {
                ++at_;
                continue;
            }
            ++at_;
            const Declaration parameter = read_declaration();
            if (parameter.bytes == 0 || parameter.bytes > UINT16_MAX) {
                fail("bad parameter '" + parameter.name + "'");
                return;
            }
            const uint32_t bytes = static_cast<uint32_t>(parameter.bytes);
            offset = round_up(offset, parameter.alignment);
            kernel.parameters.push_back({offset, bytes});
            offset += bytes;
        }
        ++at_;
        kernel.parameter_bytes = offset;
    }

    uint32_t read_extents() {
        uint64_t threads = 1;
        ++at_;
        for (auto extent = to_number(std::string(word())); extent;
             extent = to_number(std::string(word()))) {
            threads *= *extent;
            at_ += word(1) == "," ? 2 : 1;
        }
        return static_cast<uint32_t>(std::min<uint64_t>(threads, UINT32_MAX));
    }

    // Skips the body; returns the bytes of shared memory that it declares or names.
    uint64_t read_body() {
        uint64_t shared = 0;
        unsigned depth = 0;
        std::map<std::string, bool> counted;
        do {
            const std::string_view current = word();
            depth += current == "{" ? 1 : 0;
            depth -= current == "}" ? 1 : 0;
            ++at_;
            if (current == ".shared") {
                const Declaration declaration = read_declaration();
                shared = (shared + declaration.alignment - 1) / declaration.alignment *
                         declaration.alignment;
                shared += declaration.open_ended ? 0 : declaration.bytes;
            } else if (const auto named = shared_.find(std::string(current));
                       named != shared_.end() && !counted[named->first]) {
                counted[named->first] = true;
                shared += named->second;
            }
        } while (at_ < tokens_.size() && depth != 0);
        if (depth != 0) {
            fail("the text ends inside an entry");
        }
        return shared;
    }

    void skip_to_body() {
        while (at_ < tokens_.size() && word() != "{" && word() != ";") {
            ++at_;
        }
    }

    void skip_braces() {
        unsigned depth = 0;
        do {
            depth += word() == "{" ? 1 : 0;
            depth -= word() == "}" && depth != 0 ? 1 : 0;
            ++at_;
        } while (at_ < tokens_.size() && depth != 0);
    }

    void skip_past(std::string_view end) {
        while (at_ < tokens_.size() && word() != end) {
            ++at_;
        }
        ++at_;
    }

    const std::vector<Token> tokens_;
    Image &image_;
    size_t at_ = 0;
    bool visible_ = false;
    std::map<std::string, uint64_t> shared_;
    std::string problem_;
};

} // namespace

bool read_ptx(std::string_view text, Image &image, std::string &why) {
    image = Image();
    image.kind = Image::Kind::ptx;
    return Reader(text, image).read(why);
}

} // namespace sim
