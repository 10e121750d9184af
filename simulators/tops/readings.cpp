#include "readings.h"

#include "../engine/settings.h"

namespace tops_sim {

namespace {

// True if the variable is `other`; false if the variable is `usual` or unset.
bool second(const std::string &name, const std::string &usual, const std::string &other,
            std::string &complaint) {
    const std::string text = sim::Settings::text(name);
    if (text.empty() || text == usual) {
        return false;
    }
    if (text != other) {
        complaint = "UHAL_SIM_" + name + "=" + text + ": expected " + usual + " or " + other;
    }
    return true;
}

} // namespace

Readings::Readings(std::string &complaint) {
    const auto other = [&](const char *name, const char *first, const char *then) {
        return second(name, first, then, complaint);
    };
    launch_config = other("TOPS_LAUNCH_CONFIG", "72", "64") ? 64 : 72;
    properties_grew_in_the_middle = other("TOPS_PROPERTIES", "end", "middle");
    properties_tell_sips = !other("TOPS_SIP_COUNT", "told", "zero");
    takes_kernel_parameters = !other("TOPS_PARAMETERS", "both", "extra");
    pointers_are_handles = !other("TOPS_POINTERS", "handles", "addresses");
    converts_buffers_only = !other("TOPS_CONVERTED", "buffers", "all");
    faults_stay = !other("TOPS_FAULTS", "stay", "once");
    chooses_in_bundles = !other("TOPS_BUNDLES", "choose", "first");
    allocates_in_order = !other("TOPS_MALLOC_ASYNC", "yes", "no");
    wide_attributes = other("TOPS_ATTRIBUTES", "exact", "wide");
    sips = static_cast<unsigned>(sim::Settings::number("TOPS_SIPS", 1, 1024, 0, complaint));
    block_threads =
        static_cast<unsigned>(sim::Settings::number("TOPS_BLOCK_THREADS", 1, 1024, 0, complaint));
}

} // namespace tops_sim
