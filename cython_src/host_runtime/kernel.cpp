#include "kernel.h"

namespace uhal_host {

namespace {

// Apart, so that launches without shared memory do not touch this much stack.
__attribute__((noinline)) void run_with_shared(const Launch &launch, uhal_block &block,
                                               uint64_t count) {
    alignas(64) unsigned char scratch[UHAL_HOST_MAX_SHARED_BYTES];
    block.dynamic_shared = scratch;
    launch.function->kernel->run(&block, count, launch.parameters);
}

} // namespace

void run_blocks(const Launch &launch, uint64_t first, uint64_t count) {
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
}

} // namespace uhal_host
