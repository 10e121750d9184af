#include "instruments.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "settings.h"

namespace sim {

namespace {

thread_local std::string last_words;

std::mutex faults_mutex;
std::map<int, std::string> faults; // words by code

} // namespace

Instruments::Instruments(std::string &complaint) {
    for (const std::string &item : Settings::list("FAIL", ',')) {
        const auto parts = split(item, ':');
        const auto nth = parts.size() == 3 ? to_number(parts[1]) : std::nullopt;
        const auto code = parts.size() == 3 ? to_number(parts[2]) : std::nullopt;
        if (!nth || !code) {
            complaint = "UHAL_SIM_FAIL=" + item + ": expected call:nth:code";
            return;
        }
        fail(parts[0], static_cast<unsigned>(*nth), static_cast<int>(*code));
    }
}

void Instruments::fail(const std::string &call, unsigned nth, int code) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (nth == 0 || code == 0) {
        planned_.erase(call);
    } else {
        planned_[call].push_back({nth, code});
    }
}

int Instruments::on_call(const char *call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = planned_.empty() ? planned_.end() : planned_.find(call);
    if (found == planned_.end()) {
        return 0;
    }
    std::vector<Failure> &failures = found->second;
    int code = 0;
    for (Failure &failure : failures) {
        if (--failure.remaining == 0) {
            code = failure.code;
        }
    }
    const auto done = [](const Failure &failure) { return failure.remaining == 0; };
    failures.erase(std::remove_if(failures.begin(), failures.end(), done), failures.end());
    if (failures.empty()) {
        planned_.erase(found);
    }
    return code;
}

void Instruments::say(const std::string &text) {
    last_words = text;
}

const std::string &Instruments::said() {
    return last_words;
}

void Instruments::say_fault(int code, const std::string &text) {
    const std::lock_guard<std::mutex> lock(faults_mutex);
    faults[code] = text;
}

std::string Instruments::fault_said(int code) {
    const std::lock_guard<std::mutex> lock(faults_mutex);
    const auto found = faults.find(code);
    return found == faults.end() ? std::string() : found->second;
}

} // namespace sim
