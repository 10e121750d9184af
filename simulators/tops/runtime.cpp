#include "runtime.h"

#include <algorithm>

#include "../engine/settings.h"

namespace tops_sim {

namespace {

using sim::Settings;

constexpr unsigned most_devices = 16;
// Large enough for tests, and small enough to be exhausted quickly. The system allocates a page at
// its first access.
constexpr uint64_t default_memory = uint64_t{4} << 30;

} // namespace

Runtime &Runtime::get() {
    static Runtime *const runtime = new Runtime;
    return *runtime;
}

Runtime::Runtime()
    : readings(complaint_), instruments(complaint_),
      scheduler(sim::Schedule::parse(Settings::text("SCHEDULE"), complaint_)) {
    add_devices();
}

void Runtime::add_devices() {
    const uint64_t count = Settings::number("TOPS_DEVICES", 0, most_devices, 1, complaint_);
    const uint64_t bytes =
        Settings::number("TOPS_MEMORY", 1 << 20, uint64_t{1} << 37, default_memory, complaint_);
    std::vector<std::string> products = Settings::list("TOPS_PROFILE", ',');
    if (products.empty()) {
        products.push_back("S60");
    }
    for (uint64_t ordinal = 0; ordinal < count; ++ordinal) {
        const std::string &product = products[std::min<size_t>(ordinal, products.size() - 1)];
        const Profile *profile = find_profile(product);
        if (profile == nullptr) {
            complaint_ = "UHAL_SIM_TOPS_PROFILE=" + product + ": expected " + profile_names();
            return;
        }
        devices.push_back(
            std::make_unique<DeviceState>(static_cast<int>(ordinal), bytes, *profile));
        DeviceState &device = *devices.back();
        device.null_stream = make_stream(device, Stream::Kind::null);
        device.null_stream->implicit = true;
        device.pool = std::make_shared<Pool>();
        device.pool->device = &device;
        pools.add(device.pool);
    }
}

DeviceState *Runtime::device(int ordinal) {
    const bool known = ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size();
    return known ? devices[static_cast<size_t>(ordinal)].get() : nullptr;
}

std::shared_ptr<Stream> Runtime::make_stream(DeviceState &device, Stream::Kind kind) {
    const auto stream = std::make_shared<Stream>();
    stream->kind = kind;
    stream->device = &device;
    stream->queue = std::make_shared<sim::Queue>(device.device);
    if (kind == Stream::Kind::blocking) {
        auto &blocking = device.blocking;
        // Queues of destroyed streams stay until they are empty.
        blocking.erase(std::remove_if(blocking.begin(), blocking.end(),
                                      [](const auto &queue) {
                                          return queue.use_count() == 1 && queue->empty();
                                      }),
                       blocking.end());
        blocking.push_back(stream->queue);
    }
    return stream;
}

unsigned Runtime::sips(const Profile &profile) const {
    return readings.sips != 0 ? readings.sips : profile.sips;
}

unsigned Runtime::block_threads(const Profile &profile) const {
    return readings.block_threads != 0 ? readings.block_threads : sips(profile);
}

long Runtime::live(const std::string &kind) {
    const sim::Lock lock(scheduler.mutex);
    const auto count = [](size_t size) { return static_cast<long>(size); };
    if (kind == "allocation") {
        size_t allocations = 0;
        for (const auto &device : devices) {
            allocations += device->device.memory.allocations();
        }
        return count(allocations);
    }
    const std::map<std::string, size_t> sizes = {
        {"stream", streams.size()},         {"event", events.size()},
        {"module", modules.size()},         {"function", functions.size()},
        {"pinned", host_memory.size()},     {"graph", graphs.size()},
        {"graph_exec", graph_execs.size()},
    };
    const auto found = sizes.find(kind);
    return found == sizes.end() ? -1 : count(found->second);
}

} // namespace tops_sim
