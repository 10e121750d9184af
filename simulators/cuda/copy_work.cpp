#include "copy_work.h"

#include <cstring>

namespace cuda_sim {

namespace {

uint64_t covered(const Side &side, const Extent &extent) {
    return side.slice * (extent.depth - 1) + side.pitch * (extent.height - 1) + extent.width;
}

void copy_rows(char *destination, const Side &to, const char *source, const Side &from,
               const Extent &extent) {
    for (uint64_t slice = 0; slice < extent.depth; ++slice) {
        for (uint64_t row = 0; row < extent.height; ++row) {
            std::memmove(destination + slice * to.slice + row * to.pitch,
                         source + slice * from.slice + row * from.pitch, extent.width);
        }
    }
}

} // namespace

Side device_side(uint64_t address) {
    Side side;
    side.address = address;
    return side;
}

Side host_side(const void *pointer) {
    return device_side(reinterpret_cast<uint64_t>(pointer));
}

bool locate(Driver &driver, Side &side, const Extent &extent) {
    side.info = info_of(driver, side.address, covered(side, extent));
    return side.info.kind != AddressInfo::Kind::invalid && side.address != 0 &&
           (extent.height == 1 || side.pitch >= extent.width) &&
           (extent.depth == 1 || side.slice >= side.pitch * extent.height);
}

void read_now(Side &side, const Extent &extent) {
    Side packed;
    packed.pitch = extent.width;
    packed.slice = extent.width * extent.height;
    packed.staged = std::make_shared<std::vector<char>>(packed.slice * extent.depth);
    copy_rows(packed.staged->data(), packed, reinterpret_cast<const char *>(side.address), side,
              extent);
    packed.address = side.address;
    packed.info = side.info;
    side = packed;
}

std::function<sim::Status()> copy_work(Side destination, Side source, Extent extent,
                                       DeviceState &device) {
    return [=, &device] {
        Driver &driver = Driver::get();
        char *to = nullptr;
        const char *from = nullptr;
        {
            const sim::Lock lock(driver.scheduler.mutex);
            to = view_of(driver, destination.address, covered(destination, extent),
                         destination.info.kind);
            from = source.staged != nullptr
                       ? source.staged->data()
                       : view_of(driver, source.address, covered(source, extent), source.info.kind);
        }
        sim::Status status = sim::Status::illegal_address;
        if (to != nullptr && from != nullptr) {
            status =
                sim::run_guarded([&] { copy_rows(to, destination, from, source, extent); }).status;
        }
        if (status != sim::Status::ok) {
            const sim::Lock lock(driver.scheduler.mutex);
            device.device.fault_text = "a copy reached memory that is gone";
        }
        return status;
    };
}

} // namespace cuda_sim
