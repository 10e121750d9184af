#include "kernel.h"

#include "abi.h"
#include "check.h"
#include "crash.h"
#include "missing_page.h"

namespace uhal_host {

namespace {

// A separate function, so that launches without shared memory do not touch this much stack.
__attribute__((noinline)) void run_with_shared(const Launch &launch, uhal_block &block,
                                               uint64_t count) {
    alignas(64) unsigned char scratch[UHAL_HOST_MAX_SHARED_BYTES];
    block.dynamic_shared = scratch;
    launch.function->kernel->run(&block, count, launch.parameters);
}

} // namespace

int check_launch(const Launch &launch) {
    const auto &grid = launch.block.gridDim;
    const auto &block = launch.block.blockDim;
    // Checks each axis first: the product may wrap around to a valid number.
    if (launch.blocks == 0 || grid.x > max_grid[0] || grid.y > max_grid[1] ||
        grid.z > max_grid[2] || block.x > max_block[0] || block.y > max_block[1] ||
        block.z > max_block[2] || launch.block.dynamic_shared_bytes > UHAL_HOST_MAX_SHARED_BYTES) {
        return UHAL_HOST_ERROR_INVALID_VALUE;
    }
    const uint64_t threads = launch.threads();
    if (threads == 0 || threads > UHAL_HOST_MAX_THREADS) {
        return UHAL_HOST_ERROR_INVALID_VALUE;
    }
    return threads > launch.function->kernel->max_threads ? UHAL_HOST_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                          : UHAL_HOST_SUCCESS;
}

void run_blocks(const Launch &launch, const Stream &stream, uint64_t first, uint64_t count) {
    const Running told(launch, stream);
    page_was_missing = false;
    if (launch.function->checked) {
        run_checked(launch);
        require_pages();
        return;
    }
    uhal_block block = launch.block;
    if (first == 0) {
        block.blockIdx = {0, 0, 0};
    } else {
        const uint64_t row = first / block.gridDim.x;
        block.blockIdx.x = static_cast<uint32_t>(first % block.gridDim.x);
        block.blockIdx.y = static_cast<uint32_t>(row % block.gridDim.y);
        block.blockIdx.z = static_cast<uint32_t>(row / block.gridDim.y);
    }
    block.dynamic_shared = nullptr;
    if (block.dynamic_shared_bytes != 0) {
        run_with_shared(launch, block, count);
    } else {
        launch.function->kernel->run(&block, count, launch.parameters);
    }
    require_pages();
}

} // namespace uhal_host
