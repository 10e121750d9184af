// The driver's functions that are not simulated. This file includes no header of the driver,
// because callers pass any arguments and the functions read none.
#include "unsimulated.h"

namespace {

#define REASON(reason, words) constexpr char reason[] = words;
#include "functions.def"

} // namespace

extern "C" {

#define REFUSED(name, symbol, since, reason)                                                       \
    __attribute__((visibility("default"))) int symbol() {                                          \
        return cuda_sim::refuse_unsimulated(#symbol, reason);                                      \
    }
#define REFUSED_PER_THREAD(name, symbol, since, suffix, reason)                                    \
    REFUSED(name, symbol, since, reason)                                                           \
    __attribute__((visibility("default"), alias(#symbol))) int symbol##suffix();
#include "functions.def"
}

const std::vector<cuda_sim::Unsimulated> &cuda_sim::unsimulated() {
    static const std::vector<Unsimulated> all = {
#define REFUSED(name, symbol, since, reason) {#symbol, reinterpret_cast<void *>(&symbol)},
#define REFUSED_PER_THREAD(name, symbol, since, suffix, reason) REFUSED(name, symbol, since, reason)
#include "functions.def"
    };
    return all;
}
