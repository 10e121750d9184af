// One kernel launch: the kernel, its blocks, and its parameter values.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include <uhal/host_module.h>

namespace uhal_host {

class Module;
class Stream;

// Launch limits of current GPUs, so that kernels that run here fit on GPUs.
constexpr uint32_t max_grid[3] = {0x7FFFFFFF, 65535, 65535};
constexpr uint32_t max_block[3] = {1024, 1024, 64};

// A kernel of a loaded module. It lives as long as the module, and handles point to it.
struct Function {
    const uhal_host_kernel *kernel = nullptr;
    Module *module = nullptr;
    std::vector<uint32_t> offsets; // of each parameter value in a copied block
    uint32_t parameter_bytes = 0;
    bool checked = false; // its module reports its accesses

    // Predicted time of a launch of `items` work-items on one thread; huge while unknown.
    double predict_nanoseconds(uint64_t items) const {
        const float rate = nanoseconds_per_item.load(std::memory_order_relaxed);
        return rate < 0 ? 1e18 : static_cast<double>(rate) * static_cast<double>(items);
    }

    // A slower or larger launch replaces the estimate at once; a faster launch lowers it gradually.
    // If the estimate is too high, a short launch is queued; if it is too low, a long launch blocks
    // its caller. A launch may be slow because its thread was preempted. So a launch raises the
    // estimate at most fourfold, unless it is larger than the last measured launch.
    void learn(uint64_t items, double nanoseconds) {
        if (checked) {
            return; // an unknown function's launches are neither run by their callers nor shared
        }
        const float old = nanoseconds_per_item.load(std::memory_order_relaxed);
        if (old < 0) {
            // The first run includes page faults and cold caches.
            constexpr double first_run_nanoseconds = 20'000;
            nanoseconds = std::max(0.0, nanoseconds - first_run_nanoseconds);
        }
        const float sample = static_cast<float>(nanoseconds / static_cast<double>(items));
        const bool larger = items > learned_items.load(std::memory_order_relaxed);
        if (old < 0 || sample > old || larger) {
            const bool credible = old <= 0 || larger || sample < 4 * old;
            learned_items.store(items, std::memory_order_relaxed);
            nanoseconds_per_item.store(credible ? sample : 4 * old, std::memory_order_relaxed);
        } else {
            nanoseconds_per_item.store(old + (sample - old) / 4, std::memory_order_relaxed);
        }
    }

    // Whether to time a launch of this expected duration. Only a few very short launches are timed:
    // reading the clock and updating the estimate cost a tenth of such a launch.
    bool is_timed_now(double nanoseconds) {
        constexpr double very_short_nanoseconds = 1'000;
        if (nanoseconds >= very_short_nanoseconds) {
            return true;
        }
        const uint32_t before = short_launches.load(std::memory_order_relaxed);
        short_launches.store(before + 1, std::memory_order_relaxed);
        return before % 8 == 0;
    }

    std::atomic<uint32_t> short_launches{0};
    std::atomic<float> nanoseconds_per_item{-1};
    std::atomic<uint64_t> learned_items{0};
};

struct Launch {
    Function *function;
    uhal_block block; // blockIdx and dynamic_shared are set by each thread that runs a part of it
    uint64_t blocks;
    uint64_t first; // blocks before this one have run
    void *const *parameters;

    uint64_t threads() const {
        return uint64_t{block.blockDim.x} * block.blockDim.y * block.blockDim.z;
    }
    bool has_geometry_of(const Launch &other) const {
        return memcmp(&block.blockDim, &other.block.blockDim, sizeof block.blockDim) == 0 &&
               memcmp(&block.gridDim, &other.block.gridDim, sizeof block.gridDim) == 0 &&
               block.dynamic_shared_bytes == other.block.dynamic_shared_bytes;
    }
};

// Makes a launch from the arguments of a function of abi.h.
inline Launch make_launch(void *function, uhal_dim3 grid, uhal_dim3 block, uint32_t shared_bytes,
                          void *const *parameters) {
    Launch launch;
    launch.function = static_cast<Function *>(function);
    launch.block.blockDim = block;
    launch.block.gridDim = grid;
    launch.block.dynamic_shared_bytes = shared_bytes;
    launch.blocks = uint64_t{grid.x} * grid.y * grid.z;
    launch.first = 0;
    launch.parameters = parameters;
    return launch;
}

// Checks the geometry of a launch; returns a code of abi.h.
int check_launch(const Launch &launch);

// Runs blocks first … first + count - 1 of a launch in `stream` on this thread. Passes on the
// kernel's exceptions, and throws if the kernel read a truncated part of a mapped file. For a
// checked kernel, the range is the whole grid.
void run_blocks(const Launch &launch, const Stream &stream, uint64_t first, uint64_t count);

} // namespace uhal_host
