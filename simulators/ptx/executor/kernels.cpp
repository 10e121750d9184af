#include "kernels.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "../../engine/reach.h"
#include "../../engine/report.h"
#include "../../engine/settings.h"
#include "../runtime/ptx.h"
#include "cache.h"
#include "counts.h"
#include "launch.h"
#include "sha256.h"
#include "source_lines.h"

namespace sim {

namespace {

using Kind = TranslatorAnswer::Kind;

constexpr uint64_t default_launch_seconds = 60;

int digit(char c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

std::vector<std::vector<std::string>> read_lines(const std::string &path) {
    std::vector<std::vector<std::string>> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        lines.push_back(split(line, ' '));
    }
    return lines;
}

uint64_t number_in(const std::string &word) {
    return std::strtoull(word.c_str(), nullptr, 10);
}

} // namespace

PtxSettings::PtxSettings(std::string &complaint) {
    const std::string wanted = Settings::text("CHECK");
    if (wanted == "0" || wanted == "strict") {
        check = wanted == "0" ? "off" : wanted;
    } else if (!wanted.empty() && wanted != "1" && wanted != "count") {
        complaint = "UHAL_SIM_CHECK=" + wanted + ": expected 0, 1, strict or count";
    }
    if (wanted == "count") {
        counts_file = Settings::text("COUNTS");
        if (!can_append(counts_file)) {
            complaint = "UHAL_SIM_CHECK=count: expected in UHAL_SIM_COUNTS a file that can be "
                        "written, got '" +
                        counts_file + "'";
        }
    }
    counts_every = Settings::number("COUNT_EVERY", 0, UINT32_MAX, 0, complaint);
    const std::string thread = Settings::text("TRACE");
    if (!thread.empty()) {
        if (!TracedThread::parse(thread, traced)) {
            complaint = "UHAL_SIM_TRACE=" + thread + ": expected block:thread, as in 0,0,0:5,0,0";
        } else if (check != "on" || wanted == "count") {
            complaint = "UHAL_SIM_TRACE goes with UHAL_SIM_CHECK=1 only, got " + wanted;
        }
        check = "trace";
    }
    const uint64_t drawn = std::random_device()();
    seed = Settings::number("SEED", 0, UINT64_MAX, drawn, complaint);
    milliseconds =
        1000 * Settings::number("LAUNCH_SECONDS", 0, 86400, default_launch_seconds, complaint);
    Settings::number("TRANSLATION_SECONDS", 1, 86400, 1, complaint);
}

PtxModule::PtxModule(std::string text_file, std::string digest, DeviceMemory &memory,
                     const PtxSettings &settings, Translator &translator)
    : text_file_(std::move(text_file)), digest_(std::move(digest)), memory_(memory),
      settings_(settings), translator_(translator) {}

Status PtxModule::lay_out(const std::string &description_file) {
    const auto lines = read_lines(description_file);
    uint64_t bytes = 0;
    for (const auto &words : lines) {
        if (words.size() == 2 && words[0] == "area") {
            bytes = number_in(words[1]);
        } else if (words.size() == 5 && words[0] == "variable") {
            variables_.push_back(
                {words[4], number_in(words[2]), number_in(words[3]), words[1] == "const"});
        }
    }
    if (bytes == 0) {
        return Status::ok;
    }
    const Status status = memory_.allocate_area(bytes, variables_, area_);
    if (status == Status::ok) {
        fill(lines);
    }
    return status;
}

void PtxModule::fill(const std::vector<std::vector<std::string>> &lines) {
    char *view = memory_.view(area_);
    for (const auto &words : lines) {
        const bool data = words.size() == 3 && words[0] == "data";
        const bool reference = words.size() == 4 && words[0] == "reference";
        for (size_t at = 0; data && at + 1 < words[2].size(); at += 2) {
            view[number_in(words[1]) + at / 2] =
                static_cast<char>(digit(words[2][at]) << 4 | digit(words[2][at + 1]));
        }
        uint64_t address = 0;
        uint64_t bytes = 0;
        if (reference && variable(words[2], address, bytes)) {
            address += number_in(words[3]);
            std::memcpy(view + number_in(words[1]), &address, sizeof address);
        }
    }
}

bool PtxModule::variable(const std::string &name, uint64_t &address, uint64_t &bytes) const {
    const auto found = std::find_if(variables_.begin(), variables_.end(),
                                    [&](const AreaPart &part) { return part.name == name; });
    if (found == variables_.end()) {
        return false;
    }
    address = area_ + found->offset;
    bytes = found->bytes;
    return true;
}

void PtxModule::release() {
    if (area_ != 0) {
        memory_.release_area(area_);
        area_ = 0;
    }
}

void *PtxModule::open_library(const KernelDescription &description, const std::string &check,
                              TranslatorAnswer &problem) {
    std::string why;
    const PtxCache *cache = PtxCache::get(why);
    const std::string path = cache->library_file(digest_, description.entry, check);
    const bool found = PtxCache::usable(path, why);
    void *library = found ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library != nullptr) {
        return library;
    }
    if (why.empty() && !PtxCache::usable(text_file_, why) && why.empty()) {
        why = text_file_ + " was deleted since the module was loaded; load it again";
    }
    if (!why.empty()) {
        problem = {Kind::unavailable, 0, why};
        return nullptr;
    }
    problem = translator_.translate(text_file_, description.entry, check, path);
    if (problem.kind != Kind::done) {
        return nullptr;
    }
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        problem = {Kind::failed, 0, dlerror()};
    }
    return library;
}

TranslatedKernel PtxModule::open(const KernelDescription &description, const std::string &check,
                                 TranslatorAnswer &problem) {
    void *library = open_library(description, check, problem);
    if (library == nullptr) {
        std::ostringstream text;
        text << "uhal simulator: kernel " << description.entry << " cannot be executed\n"
             << "  reason    " << problem.words << '\n'
             << source_report(lines_of(text_file_), problem.line, "source    ")
             << text_line_report(text_file_, problem.line);
        report(text.str());
        return {};
    }
    TranslatedKernel kernel(library);
    if (kernel.code == nullptr || kernel.code->abi != UPTX_ABI ||
        kernel.code->parameter_bytes != description.parameter_bytes) {
        problem = {Kind::failed, 0,
                   "the translated library of " + description.entry + " does not fit this driver"};
        return {};
    }
    return kernel;
}

std::unique_ptr<Executable> PtxModule::kernel(const KernelDescription &description,
                                              TranslatorAnswer &problem) {
    const bool counts = !settings_.counts_file.empty();
    TranslatedKernel counting;
    if (counts) {
        counting = open(description, "count", problem);
        if (counting.code == nullptr) {
            return nullptr;
        }
    }
    // If every block is counted, only the counting code is needed.
    const bool counts_all = counts && settings_.counts_every == 1;
    TranslatedKernel kernel = open(description, counts_all ? "count" : settings_.check, problem);
    if (kernel.code == nullptr) {
        return nullptr;
    }
    return std::make_unique<PtxExecutable>(std::move(kernel), std::move(counting),
                                           description.entry, text_file_, area_, settings_);
}

std::unique_ptr<PtxModule> PtxKernels::load(std::string_view text, DeviceMemory &memory,
                                            TranslatorAnswer &problem) {
    std::string why;
    const PtxCache *cache = PtxCache::get(why);
    if (cache == nullptr) {
        problem = {Kind::unavailable, 0, why};
        return nullptr;
    }
    const std::string digest = sha256(text);
    const std::string text_file = cache->keep_text(text, digest, why);
    if (text_file.empty()) {
        problem = {Kind::unavailable, 0, why};
        return nullptr;
    }
    const std::string description = cache->description_file(digest);
    if (!PtxCache::usable(description, why)) {
        if (!why.empty()) {
            problem = {Kind::unavailable, 0, why};
            return nullptr;
        }
        problem = translator_.describe(text_file, description);
        if (problem.kind != Kind::done && problem.kind != Kind::unsupported) {
            return nullptr;
        }
    }
    auto module = std::make_unique<PtxModule>(text_file, digest, memory, settings_, translator_);
    // A valid but unsupported text has no description; its kernels report the reason at their first
    // use.
    if (module->lay_out(description) != Status::ok) {
        problem = {Kind::failed, 0, "the module's variables do not fit into the device's memory"};
        return nullptr;
    }
    problem = {};
    return module;
}

} // namespace sim
