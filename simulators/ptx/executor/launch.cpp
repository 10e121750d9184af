#include "launch.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <sstream>

#include "../../engine/printed.h"
#include "../../engine/reach.h"
#include "../../engine/report.h"
#include "counts.h"
#include "kernels.h"
#include "source_lines.h"

namespace sim {

namespace {

// A vector access to the last parameter may read past the parameter.
constexpr size_t parameter_padding = 16;

Status status_of(int outcome) {
    switch (outcome) {
    case UPTX_OK:
        return Status::ok;
    case UPTX_ILLEGAL_ADDRESS:
        return Status::illegal_address;
    case UPTX_MISALIGNED_ADDRESS:
        return Status::misaligned_address;
    // A device never recovers from these operations; its watchdog ends them.
    case UPTX_DEADLOCK:
    case UPTX_TIMEOUT:
        return Status::launch_timeout;
    case UPTX_ASSERTION:
        return Status::assertion_failed;
    default:
        return Status::launch_failed;
    }
}

const char *title_of(int outcome) {
    static const char *const titles[] = {
        "no fault",
        "illegal address",
        "trap",
        "deadlock",
        "divergent barrier",
        "wrong mask of a warp operation",
        "timeout",
        "no memory",
        "misaligned address",
        "race on shared memory",
        "read of uninitialized shared memory",
        "assertion",
        "call of no function",
    };
    return titles[outcome];
}

std::string triple(const uint32_t *values) {
    return "(" + std::to_string(values[0]) + ", " + std::to_string(values[1]) + ", " +
           std::to_string(values[2]) + ")";
}

std::string hexadecimal(uint64_t value) {
    std::ostringstream text;
    text << "0x" << std::hex << value;
    return text.str();
}

std::string nearest_report(const uptx_fault &fault, const Reach &reach) {
    const uptx_range &range = fault.range;
    const std::string extent = reach.names[range.tag] + " of " + std::to_string(range.bytes) +
                               " bytes at " + hexadecimal(range.address);
    if (fault.distance < 0) {
        return "the access is " + std::to_string(-fault.distance) + " bytes before " + extent;
    }
    const uint64_t distance = static_cast<uint64_t>(fault.distance);
    if (distance >= range.bytes) {
        return "the access is " + std::to_string(distance - range.bytes) +
               " bytes past the end of " + extent;
    }
    return "the access is at byte " + std::to_string(distance) + " of " + extent;
}

} // namespace

std::string text_line_report(const std::string &text_file, unsigned line) {
    if (line == 0) {
        return "";
    }
    const std::vector<std::string> lines = lines_of(text_file);
    const std::string text = line <= lines.size() ? lines[line - 1] : "";
    const size_t start = std::min(text.find_first_not_of(" \t"), text.size());
    return "  PTX       line " + std::to_string(line) + " of " + text_file + "\n            " +
           text.substr(start) + "\n";
}

TranslatedKernel::TranslatedKernel(void *opened)
    : code(static_cast<const uptx_kernel *>(dlsym(opened, "uptx_kernel"))),
      counted(static_cast<const uptx_counted *>(dlsym(opened, "uptx_counted"))), library_(opened) {}

TranslatedKernel &TranslatedKernel::operator=(TranslatedKernel &&other) noexcept {
    std::swap(code, other.code);
    std::swap(counted, other.counted);
    std::swap(library_, other.library_);
    return *this;
}

TranslatedKernel::~TranslatedKernel() {
    if (library_ != nullptr) {
        dlclose(library_);
    }
}

PtxExecutable::PtxExecutable(TranslatedKernel kernel, TranslatedKernel counting, std::string entry,
                             std::string text_file, uint64_t area, const PtxSettings &settings)
    : kernel_(std::move(kernel)), counting_(std::move(counting)), entry_(std::move(entry)),
      text_file_(std::move(text_file)), area_(area), settings_(settings) {}

std::function<Outcome()> PtxExecutable::prepare(const LaunchShape &shape,
                                                const std::vector<unsigned char> &parameters,
                                                const AddressMap &map) const {
    std::vector<unsigned char> padded = parameters;
    padded.resize(parameters.size() + parameter_padding);
    return [this, shape, padded = std::move(padded), reach = map.reach()] {
        return run(shape, padded, reach.get());
    };
}

Outcome PtxExecutable::run(const LaunchShape &shape, const std::vector<unsigned char> &parameters,
                           const Reach *reach) const {
    static std::atomic<uint64_t> launches{0};
    uptx_launch launch = {};
    std::copy(shape.grid.begin(), shape.grid.end(), launch.grid);
    std::copy(shape.block.begin(), shape.block.end(), launch.threads);
    launch.dynamic_shared_bytes = shape.shared_bytes;
    launch.seed = settings_.seed + launches.fetch_add(1);
    launch.milliseconds = settings_.milliseconds;
    launch.cooperative = shape.cooperative ? 1 : 0;
    launch.parameters = parameters.data();
    launch.window_base = reach->window.base;
    launch.window_span = reach->window.bytes;
    launch.window_delta = reach->window.delta;
    launch.variables = area_;
    launch.ranges = reach->ranges.data();
    launch.range_count = reach->ranges.size();
    launch.print = [](const char *text, uint64_t bytes) { print_later(stdout, text, bytes); };
    std::vector<std::string> lines;
    if (settings_.traced.wanted) {
        lines = lines_of(text_file_);
        trace_launch(launch, settings_.traced, lines);
    }
    CountsOfLaunch counts{settings_.counts_file, entry_, text_file_};
    const uptx_counting counting = {counting_.code, counting_.counted, settings_.counts_every,
                                    write_counts, &counts};
    launch.counting = counting_.code != nullptr ? &counting : nullptr;
    const int outcome = uptx_run(kernel_.code, &launch);
    return outcome == UPTX_OK ? Outcome{Status::ok, 0, ""} : explain(outcome, launch, reach);
}

Outcome PtxExecutable::explain(int outcome, const uptx_launch &launch, const Reach *reach) const {
    const uptx_fault &fault = launch.fault;
    const std::string again = "UHAL_SIM_SEED=" + std::to_string(settings_.seed);
    std::ostringstream text;
    text << "uhal simulator: " << title_of(outcome) << '\n'
         << "  kernel    " << entry_ << ", grid " << triple(launch.grid) << ", block "
         << triple(launch.threads) << ", " << launch.dynamic_shared_bytes
         << " bytes of dynamic shared memory\n"
         << "  what      " << launch.message << '\n';
    if (fault.has_range != 0) {
        text << "  where     " << nearest_report(fault, *reach) << '\n';
    }
    const std::vector<std::string> lines = lines_of(text_file_);
    text << source_report(lines, fault.line, "source    ")
         << source_report(lines, fault.other_line, "other     ")
         << text_line_report(text_file_, fault.line) << "  again     " << again << '\n';
    report(text.str());
    const std::string source = source_location(lines, fault.line);
    const std::string hint = report_hint();
    if (outcome == UPTX_ASSERTION) {
        const std::string words = entry_ + ": " + launch.message + "\n";
        print_later(stderr, words.data(), words.size());
    }
    return {status_of(outcome), fault.address,
            "stopped" + (source.empty() ? "" : " at " + source) + ": " + launch.message + " (" +
                again + (hint.empty() ? "" : "; " + hint) + ")"};
}

} // namespace sim
