#include "printed.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace sim {

namespace {

std::mutex mutex;
std::vector<std::pair<FILE *, std::string>> kept;

} // namespace

void print_later(FILE *stream, const char *text, uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (kept.empty() || kept.back().first != stream) {
        kept.emplace_back(stream, "");
    }
    kept.back().second.append(text, bytes);
}

void print_now() {
    std::vector<std::pair<FILE *, std::string>> texts;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        texts.swap(kept);
    }
    for (const auto &[stream, text] : texts) {
        fwrite(text.data(), 1, text.size(), stream);
        fflush(stream);
    }
}

} // namespace sim
