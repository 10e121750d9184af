// One kernel launch: what to run, over which blocks, with which parameter values.
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

// Limits of a launch: current GPUs', so that kernels that run here fit on GPUs.
constexpr uint32_t max_grid[3] = {0x7FFFFFFF, 65535, 65535};
constexpr uint32_t max_block[3] = {1024, 1024, 64};

// A kernel of a loaded module. Lives as long as the module; handles point at it.
struct Function {
    const uhal_host_kernel *kernel = nullptr;
    Module *module = nullptr;
    std::vector<uint32_t> offsets; // of each parameter value in a copied block
    uint32_t parameter_bytes = 0;
    bool checked = false; // of a module that tells of its accesses

    // What a launch of `items` work-items will take on one thread; huge while nothing is known.
    double predict_nanoseconds(uint64_t items) const {
        const float rate = nanoseconds_per_item.load(std::memory_order_relaxed);
        return rate < 0 ? 1e18 : static_cast<double>(rate) * static_cast<double>(items);
    }

    // Slower than thought, or seen at a larger size, counts at once; faster only by and by. A wrong
    // guess on the slow side costs a queued launch, on the fast side a blocked caller. A thread that
    // was not running for a while is no slow kernel, so a guess does not grow by more than 4 at once.
    void learn(uint64_t items, double nanoseconds) {
        if (checked) {
            return; // never known, so that a launch is neither run by its caller nor shared out
        }
        const float old = nanoseconds_per_item.load(std::memory_order_relaxed);
        if (old < 0) {
            // Page faults and cold caches, not the kernel.
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
    uhal_block block; // blockIdx and dynamic_shared are set by whoever runs a piece of it
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

// A launch as a caller of abi.h states it.
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

// A code of abi.h: whether its geometry is one that a launch may ask for.
int check_launch(const Launch &launch);

// Runs blocks first … first + count - 1 of a launch in `stream` on this thread. Passes on what the kernel throws, and throws
// where a mapped file that it read was cut short. For a checked
// kernel, the range is the whole grid.
void run_blocks(const Launch &launch, const Stream &stream, uint64_t first, uint64_t count);

} // namespace uhal_host
