#include "launch_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include <uhal/dtype_bytes.h>

#include "format.h"
#include "module.h"
#include "runtime.h"

namespace uhal_host {

namespace {

constexpr uintptr_t near_bytes = uintptr_t{1} << 24; // farther away an address is called wild

std::string element_of(const Argument &argument, uintptr_t address) {
    const intptr_t offset = static_cast<intptr_t>(address - argument.value);
    return format("%s[%td]", argument.name.c_str(),
                  offset / static_cast<intptr_t>(argument.element));
}

} // namespace

LaunchMemory::LaunchMemory(const Launch &launch) {
    auto &memory = launch.function->module->device().runtime.memory;
    memory.list(allocated_);
    memory.list_freed(freed_);
    std::sort(allocated_.begin(), allocated_.end());
    std::sort(freed_.begin(), freed_.end());
    read_arguments(launch);
}

void LaunchMemory::read_arguments(const Launch &launch) {
    const uhal_host_kernel &kernel = *launch.function->kernel;
    const auto names = parameter_names(kernel.parameter_text, kernel.parameter_count);
    for (uint32_t index = 0; index < kernel.parameter_count; ++index) {
        const uhal_host_parameter &parameter = kernel.parameters[index];
        if ((parameter.flags & UHAL_HOST_PARAMETER_POINTER) == 0) {
            continue;
        }
        uintptr_t value;
        memcpy(&value, launch.parameters[index], sizeof value);
        const Span *const own = find_allocation(value);
        const Span freed = own == nullptr ? span_with(freed_, value) : Span{};
        arguments_.push_back({index, names[index], value, uhal_dtype_bytes(parameter.dtype),
                              own != nullptr ? *own : freed});
        has_strangers_ = has_strangers_ || (own == nullptr && freed.end == 0 && value != 0);
    }
}

// The range that holds an address; empty if none does.
Span LaunchMemory::span_with(const Ranges &ranges, uintptr_t address) {
    const auto after =
        std::upper_bound(ranges.begin(), ranges.end(), address,
                         [](uintptr_t wanted, const auto &range) { return wanted < range.first; });
    if (after == ranges.begin()) {
        return {};
    }
    const auto &range = *std::prev(after);
    const Span found = {range.first, range.first + range.second};
    return found.holds(address) ? found : Span{};
}

const Span *LaunchMemory::find_allocation(uintptr_t address) {
    const Span found = span_with(allocated_, address);
    if (found.end == 0) {
        return nullptr;
    }
    last_ = found;
    return &last_;
}

// The argument whose memory is nearest.
const Argument *LaunchMemory::nearest(uintptr_t address, uintptr_t &distance) const {
    const Argument *found = nullptr;
    distance = ~uintptr_t{0};
    for (const Argument &one : arguments_) {
        const Span span = one.memory.end != 0 ? one.memory : Span{one.value, one.value};
        const uintptr_t away = address < span.start ? span.start - address
                               : address < span.end ? 0
                                                    : address - span.end;
        // If several arguments lie in one allocation, take the last argument that begins before
        // the address.
        const bool closer = away == distance && found != nullptr && one.value <= address &&
                            one.value > found->value;
        if (one.value != 0 && (away < distance || closer)) {
            distance = away;
            found = &one;
        }
    }
    return found;
}

std::string LaunchMemory::element(uintptr_t address) const {
    uintptr_t distance;
    const Argument *const argument = nearest(address, distance);
    return argument != nullptr && distance == 0 ? element_of(*argument, address)
                                                : format("address %#zx", size_t{address});
}

std::string LaunchMemory::outside(uintptr_t address) const {
    if (address < null_bytes) {
        std::string told = format(" at a null pointer (%#zx)", size_t{address});
        for (const Argument &one : arguments_) {
            told += one.value == 0 ? format(", as argument %u '%s' is", one.index, one.name.c_str())
                                   : "";
        }
        return told;
    }
    uintptr_t distance;
    const Argument *const argument = nearest(address, distance);
    if (argument == nullptr || distance > near_bytes) {
        return format(" at %#zx, which is no memory of the device", size_t{address});
    }
    const size_t size = argument->memory.end - argument->value;
    return format(" at %s, outside of argument %u '%s', whose memory has %zu elements of %zu "
                  "bytes from there",
                  element_of(*argument, address).c_str(), argument->index, argument->name.c_str(),
                  size / argument->element, argument->element);
}

} // namespace uhal_host
