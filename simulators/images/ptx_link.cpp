#include "ptx_link.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

namespace sim {

namespace {

// A statement outside of functions, with the blanks and comments before it.
struct Statement {
    std::string text;
    std::string name; // of the symbol; empty if the statement has none
    bool external = false;
    bool weak = false;
    bool shown = false; // visible to other modules
    bool defines = false;
};

struct Unit {
    unsigned version = 0; // 10 * major + minor
    unsigned target = 0;
    std::string version_text;
    std::string target_text;
    std::vector<Statement> statements;
};

bool in_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

// Splits a text into words, strings, comments and single characters.
class Scanner {
  public:
    explicit Scanner(std::string_view text) : text_(text) {}

    // The next piece; a word comes with the '.' or '%' before it. Empty at the end.
    std::string_view next() {
        const size_t start = at_;
        if (at_ >= text_.size()) {
            return {};
        }
        if (text_.compare(at_, 2, "//") == 0) {
            at_ = std::min(text_.find('\n', at_), text_.size());
        } else if (text_.compare(at_, 2, "/*") == 0) {
            skip_past("*/");
        } else if (text_[at_] == '"') {
            ++at_;
            skip_past("\"");
        } else {
            ++at_;
            const char first = text_[start];
            if (in_word(first) || first == '.' || first == '%') {
                while (at_ < text_.size() && in_word(text_[at_])) {
                    ++at_;
                }
            }
        }
        return text_.substr(start, at_ - start);
    }

    static bool is_blank(std::string_view piece) {
        return std::isspace(static_cast<unsigned char>(piece[0])) != 0 ||
               piece.compare(0, 2, "//") == 0 || piece.compare(0, 2, "/*") == 0;
    }

  private:
    void skip_past(std::string_view end) {
        const size_t found = text_.find(end, at_);
        at_ = found == std::string_view::npos ? text_.size() : found + end.size();
    }

    std::string_view text_;
    size_t at_ = 0;
};

bool is_space(std::string_view word) {
    return word == ".global" || word == ".const" || word == ".shared";
}

// Finds the symbol and linkage of a statement, from its words before the body or initial value.
void describe(const std::vector<std::string> &words, bool has_body, Statement &statement) {
    bool function = false;
    bool variable = false;
    unsigned depth = 0;
    for (const std::string &word : words) {
        statement.external = statement.external || word == ".extern";
        statement.weak = statement.weak || word == ".weak" || word == ".common";
        statement.shown = statement.shown || word == ".visible";
        function = function || word == ".func" || word == ".entry";
        variable = variable || is_space(word);
        depth += word == "(" ? 1 : 0;
        depth -= word == ")" ? 1 : 0;
        const bool name = depth == 0 && (in_word(word[0]) || word[0] == '%') &&
                          std::isdigit(static_cast<unsigned char>(word[0])) == 0;
        if (name && statement.name.empty() && (function || variable)) {
            statement.name = word;
        }
        if (word == "=") {
            break;
        }
    }
    statement.shown = statement.shown || statement.weak;
    statement.defines = function ? has_body : variable && !statement.external;
}

unsigned digits_of(const std::string &text) {
    unsigned number = 0;
    for (const char c : text) {
        number =
            std::isdigit(static_cast<unsigned char>(c)) != 0 ? number * 10 + (c - '0') : number;
    }
    return number;
}

class Splitter {
  public:
    explicit Splitter(const std::string &text) : scanner_(text) {}

    Unit split() {
        for (std::string_view piece = scanner_.next(); !piece.empty(); piece = scanner_.next()) {
            if (Scanner::is_blank(piece) && words_.empty()) {
                continue;
            }
            take(piece);
        }
        return std::move(unit_);
    }

  private:
    void take(std::string_view piece) {
        if (piece[0] == '\n' && !words_.empty() && ends_with_line(words_[0])) {
            end_line();
            return;
        }
        text_ += piece;
        if (Scanner::is_blank(piece)) {
            return;
        }
        depth_ += piece == "{" ? 1 : 0;
        if (depth_ == 0 || piece == "{") {
            initialized_ = initialized_ || piece == "=";
            words_.emplace_back(piece);
        }
        body_ = body_ || (piece == "{" && !initialized_);
        if (piece == "}") {
            depth_ -= depth_ == 0 ? 0 : 1;
        }
        const bool ended = depth_ == 0 && (piece == ";" || (piece == "}" && !initialized_));
        if (ended) {
            end();
        }
    }

    // These directives have no semicolon.
    static bool ends_with_line(const std::string &word) {
        return word == ".version" || word == ".target" || word == ".address_size" ||
               word == ".file" || word == "@" || word == ".loc";
    }

    void end_line() {
        if (words_[0] == ".version") {
            unit_.version_text = text_;
            unit_.version = digits_of(text_);
        } else if (words_[0] == ".target") {
            unit_.target_text = text_;
            unit_.target = words_.size() > 1 ? digits_of(words_[1]) : 0;
        } else if (words_[0] == ".file") {
            unit_.statements.push_back({text_, "", false, false, false, false});
        }
        forget();
    }

    void end() {
        if (words_[0] != ".section") {
            Statement statement;
            describe(words_, body_, statement);
            statement.text = text_;
            unit_.statements.push_back(std::move(statement));
        }
        forget();
    }

    void forget() {
        words_.clear();
        text_.clear();
        body_ = false;
        initialized_ = false;
    }

    Scanner scanner_;
    Unit unit_;
    std::string text_;
    std::vector<std::string> words_;
    unsigned depth_ = 0;
    bool body_ = false;
    bool initialized_ = false;
};

// Renames the text's symbols, and adds an offset to its numbers of source files.
std::string rewritten(const std::string &text, const std::map<std::string, std::string> &names,
                      unsigned first_file) {
    std::string result;
    Scanner scanner(text);
    bool file_number = false;
    bool in_location = false;
    for (std::string_view piece = scanner.next(); !piece.empty(); piece = scanner.next()) {
        if (piece[0] == '\n') {
            in_location = false;
        }
        // The text after ", function_name" refers to sections that are dropped.
        if (in_location && piece == ",") {
            while (!piece.empty() && piece[0] != '\n') {
                piece = scanner.next();
            }
            in_location = false;
        }
        if (file_number && std::isdigit(static_cast<unsigned char>(piece[0])) != 0) {
            result += std::to_string(digits_of(std::string(piece)) + first_file);
            file_number = false;
            continue;
        }
        file_number = file_number || piece == ".file" || piece == ".loc";
        in_location = in_location || piece == ".loc";
        const auto renamed = names.find(std::string(piece));
        result += renamed == names.end() ? std::string(piece) : renamed->second;
    }
    return result;
}

unsigned last_file(const Unit &unit) {
    unsigned last = 0;
    for (const Statement &statement : unit.statements) {
        if (statement.text.compare(0, 5, ".file") == 0) {
            last =
                std::max(last, digits_of(statement.text.substr(5, statement.text.find('"') - 5)));
        }
    }
    return last;
}

class Linker {
  public:
    explicit Linker(std::vector<Unit> units) : units_(std::move(units)) {}

    bool link(std::string &linked, std::string &why) {
        make_names_unique();
        if (!choose_definitions(why)) {
            return false;
        }
        const auto newest =
            std::max_element(units_.begin(), units_.end(), [](const Unit &left, const Unit &right) {
                return left.version < right.version;
            });
        const auto target =
            std::max_element(units_.begin(), units_.end(), [](const Unit &left, const Unit &right) {
                return left.target < right.target;
            });
        linked = newest->version_text + "\n" + target->target_text + "\n.address_size 64\n\n";
        for (const Unit &unit : units_) {
            for (const Statement &statement : unit.statements) {
                linked += text_of(statement);
            }
        }
        return true;
    }

  private:
    static bool is_own(const Statement &statement) {
        return !statement.name.empty() && !statement.external && !statement.shown;
    }

    void make_names_unique() {
        std::set<std::string> taken;
        for (const Unit &unit : units_) {
            for (const Statement &statement : unit.statements) {
                if (!is_own(statement)) {
                    taken.insert(statement.name);
                }
            }
        }
        unsigned files = 0;
        for (Unit &unit : units_) {
            std::map<std::string, std::string> names;
            std::set<std::string> own;
            for (const Statement &statement : unit.statements) {
                if (is_own(statement) && own.insert(statement.name).second &&
                    !taken.insert(statement.name).second) {
                    names[statement.name] =
                        statement.name + "__linked_" + std::to_string(++renamed_);
                }
            }
            const unsigned used = last_file(unit);
            for (Statement &statement : unit.statements) {
                statement.text = rewritten(statement.text, names, files);
                const auto renamed = names.find(statement.name);
                statement.name = renamed == names.end() ? statement.name : renamed->second;
            }
            files += used;
        }
    }

    bool choose_definitions(std::string &why) {
        for (const Unit &unit : units_) {
            for (const Statement &statement : unit.statements) {
                if (!statement.defines || statement.name.empty()) {
                    continue;
                }
                const Statement *&chosen = definitions_[statement.name];
                if (chosen != nullptr && !chosen->weak && !statement.weak) {
                    why = "symbol " + statement.name + " is defined twice";
                    return false;
                }
                if (chosen == nullptr || (chosen->weak && !statement.weak)) {
                    chosen = &statement;
                }
            }
        }
        return true;
    }

    std::string text_of(const Statement &statement) {
        if (statement.name.empty()) {
            return statement.text + "\n";
        }
        const auto found = definitions_.find(statement.name);
        if (found == definitions_.end()) {
            // There are only declarations: the device library defines the symbol, or it is shared
            // memory sized at launch.
            return written_.insert(statement.name).second ? statement.text + "\n" : "";
        }
        const bool function = is_function(*found->second);
        if (&statement == found->second || (!function && !statement.defines)) {
            // A variable is needed before its use, so it moves to its first declaration.
            return written_.insert(statement.name).second ? found->second->text + "\n" : "";
        }
        if (statement.defines) {
            return "";
        }
        return written_.count(statement.name) != 0 || !declared_.insert(statement.name).second
                   ? ""
                   : declaration(statement, *found->second) + "\n";
    }

    static bool is_function(const Statement &statement) {
        return statement.text.find(".func") < statement.text.find('{') ||
               statement.text.find(".entry") < statement.text.find('{');
    }

    // `.extern .func f;` states that no definition follows. In the linked text a definition
    // follows.
    static std::string declaration(const Statement &statement, const Statement &definition) {
        std::string text = statement.text;
        const size_t linkage = text.find(".extern");
        const char *const own = definition.weak ? ".weak" : definition.shown ? ".visible" : "";
        return linkage == std::string::npos ? text
                                            : text.replace(linkage, std::strlen(".extern"), own);
    }

    std::vector<Unit> units_;
    unsigned renamed_ = 0;
    std::map<std::string, const Statement *> definitions_;
    std::set<std::string> written_;
    std::set<std::string> declared_;
};

} // namespace

bool link_ptx(const std::vector<std::string> &texts, std::string &linked, std::string &why) {
    if (texts.size() == 1) {
        linked = texts[0];
        return true;
    }
    std::vector<Unit> units;
    for (const std::string &text : texts) {
        units.push_back(Splitter(text).split());
    }
    return Linker(std::move(units)).link(linked, why);
}

} // namespace sim
