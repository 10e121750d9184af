#include "schedule.h"

#include <optional>

#include "settings.h"

namespace sim {

Schedule Schedule::parse(const std::string &text, std::string &complaint) {
    const std::string random = "random:";
    Schedule schedule;
    if (text.empty() || text == "eager") {
        return schedule;
    }
    if (text == "lazy") {
        schedule.kind_ = Kind::lazy;
        return schedule;
    }
    const bool is_random = text.compare(0, random.size(), random) == 0;
    const std::optional<uint64_t> seed =
        is_random ? to_number(text.substr(random.size())) : std::nullopt;
    if (!seed) {
        complaint = "UHAL_SIM_SCHEDULE=" + text + ": expected eager, lazy or random:<seed>";
        return schedule;
    }
    schedule.kind_ = Kind::random;
    schedule.random_.seed(*seed);
    return schedule;
}

unsigned Schedule::due_on_submit() {
    // Often 0 tasks, so that queues grow, and sometimes many at once.
    static constexpr unsigned steps[] = {0, 0, 0, 0, 1, 1, 2, 8};
    return steps[random_() % std::size(steps)];
}

size_t Schedule::choose(size_t count) {
    switch (kind_) {
    case Kind::eager:
        return 0;
    case Kind::lazy:
        return count - 1;
    case Kind::random:
        return random_() % count;
    }
    return 0;
}

} // namespace sim
