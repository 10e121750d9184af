#include "counting.h"

#include <algorithm>

namespace null_driver {

uhal_null_counts counts;
uint32_t parameter_sizes[UHAL_NULL_PARAMETERS];
unsigned parameter_count = 0;

} // namespace null_driver

void uhal_null_expect(const uint32_t *sizes, unsigned count) {
    null_driver::parameter_count = std::min<unsigned>(count, UHAL_NULL_PARAMETERS);
    std::memcpy(null_driver::parameter_sizes, sizes, null_driver::parameter_count * sizeof *sizes);
}

uhal_null_counts uhal_null_take() {
    const uhal_null_counts taken = null_driver::counts;
    null_driver::counts = {};
    return taken;
}
