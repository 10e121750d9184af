#include "counting.h"

#include <algorithm>

namespace null_driver {

uhal_null_counts counts;
uint32_t parameter_sizes[UHAL_NULL_PARAMETERS];
uint32_t parameter_offsets[UHAL_NULL_PARAMETERS];
unsigned parameter_count = 0;

} // namespace null_driver

void uhal_null_expect(const uint32_t *sizes, unsigned count) {
    null_driver::parameter_count = std::min<unsigned>(count, UHAL_NULL_PARAMETERS);
    uint32_t end = 0;
    for (unsigned i = 0; i < null_driver::parameter_count; ++i) {
        const uint32_t offset = (end + sizes[i] - 1) & ~(sizes[i] - 1);
        null_driver::parameter_sizes[i] = sizes[i];
        null_driver::parameter_offsets[i] = offset;
        end = offset + sizes[i];
    }
}

uhal_null_counts uhal_null_take() {
    const uhal_null_counts taken = null_driver::counts;
    null_driver::counts = {};
    return taken;
}
