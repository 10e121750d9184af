#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace sim {

namespace {

constexpr uint64_t page = 4096;
// Address range of a device without a capacity: it reaches memory of the program.
constexpr uint64_t unlimited_span = uint64_t{1} << 36;
constexpr size_t most_freed = 256;
// The least alignment that drivers promise. Each allocation ends less than this many bytes before
// the end of a page, so a kernel that runs past the end soon meets unmapped memory.
constexpr uint64_t alignment = 256;
// NaN in every float format and -1 in every integer, so reads of it are noticeable.
constexpr int pattern = 0xFF;
// Larger allocations are not filled, because filling would take too long.
constexpr uint64_t largest_fill = uint64_t{64} << 20;

uint64_t round_up(uint64_t value, uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

uint64_t page_of(uint64_t address) {
    return address / page * page;
}

char *reserve_range(uint64_t bytes) {
    void *range =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range == MAP_FAILED ? nullptr : static_cast<char *>(range);
}

// Space for millions of small allocations, each of which takes two pages.
constexpr uint64_t least_span = uint64_t{1} << 35;

// Address range of a device: twice its memory, so that stale addresses stay invalid for a while.
// With larger ranges, a test process with many drivers would run out of addresses.
uint64_t span_for(uint64_t capacity) {
    return capacity == UINT64_MAX ? unlimited_span
                                  : std::max(round_up(2 * capacity, page), least_span);
}

// Bytes for devices that have no addresses yet.
uint64_t waiting_bytes = 0;

} // namespace

// A window, and the part of it that devices have taken.
struct DeviceMemory::Reservation {
    explicit Reservation(uint64_t for_bytes)
        : bytes(for_bytes), addresses(reserve_range(bytes)), view(reserve_range(bytes)) {}

    const uint64_t bytes;
    uint64_t taken = 0;
    char *const addresses;
    char *const view;
};

DeviceMemory::DeviceMemory(uint64_t capacity) : capacity_(capacity), span_(span_for(capacity)) {
    waiting_bytes += span_;
}

Window DeviceMemory::window() const {
    if (reservation_ == nullptr) {
        return {0, 0, 0};
    }
    const uint64_t base = reinterpret_cast<uint64_t>(reservation_->addresses);
    const uint64_t view = reinterpret_cast<uint64_t>(reservation_->view);
    return {base, reservation_->bytes, view - base};
}

bool DeviceMemory::open() {
    if (base_ != 0) {
        return true;
    }
    descriptor_ = memfd_create("uhal-simulated-device", MFD_CLOEXEC);
    if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(span_)) != 0) {
        return false;
    }
    // Never destroyed: a driver cannot know when its program is done.
    static Reservation *newest = nullptr;
    if (newest == nullptr || newest->taken == newest->bytes) {
        newest = new Reservation(waiting_bytes);
    }
    if (newest->addresses == nullptr || newest->view == nullptr) {
        return false;
    }
    base_ = reinterpret_cast<uint64_t>(newest->addresses) + newest->taken;
    view_ = newest->view + newest->taken;
    reservation_ = newest;
    newest->taken += span_;
    waiting_bytes -= span_;
    // The first page is never allocated, so that an offset used as an address faults.
    next_ = page;
    return true;
}

bool DeviceMemory::find_room(uint64_t bytes, uint64_t &offset) const {
    if (next_ + bytes + page <= span_) {
        offset = next_;
        return true;
    }
    // Addresses are reused only after the whole range was used, so stale addresses stay invalid.
    uint64_t free_from = page;
    for (const auto &[address, allocation] : allocations_) {
        const uint64_t first = page_of(address) - base_;
        if (first >= free_from + bytes + page) {
            break;
        }
        free_from = round_up(address + allocation.bytes, page) - base_ + page;
    }
    offset = free_from;
    return free_from + bytes + page <= span_;
}

Status DeviceMemory::insert(uint64_t bytes, Allocation &allocation) {
    const uint64_t padded = round_up(bytes, alignment);
    const uint64_t pages = round_up(padded, page);
    uint64_t offset = 0;
    if (pages < bytes || pages > span_ || !open() || !find_room(pages, offset)) {
        return Status::out_of_memory;
    }
    // One page between neighbours stays unmapped.
    next_ = std::max(next_, offset + pages + page);
    allocation.address = base_ + offset + pages - padded;
    allocation.bytes = bytes;
    allocation.serial = ++serial_;
    ++generation_;
    forget_freed(allocation.address, padded);
    return Status::ok;
}

void DeviceMemory::forget_freed(uint64_t address, uint64_t bytes) {
    const auto overlaps = [&](const FreedRange &range) {
        return range.address < address + bytes && address < range.address + range.bytes;
    };
    freed_.erase(std::remove_if(freed_.begin(), freed_.end(), overlaps), freed_.end());
}

Status DeviceMemory::map(uint64_t address, uint64_t bytes) {
    const uint64_t first = page_of(address) - base_;
    const uint64_t pages = round_up(address + bytes, page) - page_of(address);
    void *mapped = mmap(view_ + first, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        descriptor_, static_cast<off_t>(first));
    return mapped == MAP_FAILED ? Status::out_of_memory : Status::ok;
}

void DeviceMemory::unmap(uint64_t address, uint64_t bytes) {
    const uint64_t first = page_of(address) - base_;
    const uint64_t pages = round_up(address + bytes, page) - page_of(address);
    mmap(view_ + first, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
              static_cast<off_t>(pages));
}

Status DeviceMemory::reserve(uint64_t bytes, uint64_t &address) {
    const uint64_t cost = round_up(bytes, alignment);
    if (cost < bytes || cost > capacity_ - used_) {
        return Status::out_of_memory;
    }
    Allocation allocation = {};
    const Status status = insert(bytes, allocation);
    if (status != Status::ok) {
        return status;
    }
    allocation.state = AllocationState::reserved;
    allocation.view = view_ + (allocation.address - base_);
    used_ += cost;
    address = allocation.address;
    allocations_.emplace(address, allocation);
    return Status::ok;
}

Status DeviceMemory::commit(uint64_t address) {
    Allocation &allocation = allocations_.at(address);
    if (map(address, allocation.bytes) != Status::ok) {
        return Status::out_of_memory;
    }
    allocation.mapped = true;
    ++generation_;
    std::memset(allocation.view, pattern, std::min(allocation.bytes, largest_fill));
    if (allocation.state == AllocationState::reserved) {
        allocation.state = AllocationState::live;
    }
    return Status::ok;
}

Status DeviceMemory::allocate(uint64_t bytes, uint64_t &address) {
    Status status = reserve(bytes, address);
    if (status != Status::ok) {
        return status;
    }
    status = commit(address);
    if (status != Status::ok) {
        release(address);
    }
    return status;
}

Status DeviceMemory::borrow(char *memory, uint64_t bytes, uint64_t &address) {
    Allocation allocation = {};
    const Status status = insert(bytes, allocation);
    if (status != Status::ok) {
        return status;
    }
    allocation.state = AllocationState::live;
    allocation.borrowed = true;
    allocation.mapped = true;
    allocation.view = memory;
    address = allocation.address;
    allocations_.emplace(address, allocation);
    return Status::ok;
}

Status DeviceMemory::allocate_area(uint64_t bytes, const std::vector<AreaPart> &parts,
                                   uint64_t &area) {
    Allocation whole = {};
    Status status = insert(bytes, whole);
    if (status == Status::ok) {
        status = map(whole.address, bytes);
    }
    if (status != Status::ok) {
        return status;
    }
    area = whole.address;
    areas_.emplace(area, bytes);
    for (const AreaPart &part : parts) {
        Allocation allocation = whole;
        allocation.address = area + part.offset;
        allocation.bytes = part.bytes;
        allocation.state = AllocationState::live;
        allocation.borrowed = true;
        allocation.mapped = true;
        allocation.view = view_ + (allocation.address - base_);
        allocation.read_only = part.read_only;
        allocation.name = part.name;
        allocation.serial = ++serial_;
        if (part.bytes != 0) {
            allocations_.emplace(allocation.address, allocation);
        }
    }
    return Status::ok;
}

void DeviceMemory::release_area(uint64_t area) {
    const uint64_t bytes = areas_.at(area);
    allocations_.erase(allocations_.lower_bound(area), allocations_.lower_bound(area + bytes));
    areas_.erase(area);
    unmap(area, bytes);
    ++generation_;
}

Status DeviceMemory::share(uint64_t address, SharedRange &range) const {
    const Allocation *allocation = find(address);
    if (allocation == nullptr || allocation->borrowed || allocation->stream_ordered) {
        return Status::illegal_address;
    }
    range.process = getpid();
    range.descriptor = descriptor_;
    range.offset = allocation->address - base_;
    range.bytes = allocation->bytes;
    range.serial = allocation->serial;
    return Status::ok;
}

Status DeviceMemory::import(const SharedRange &range, uint64_t &address) {
    const std::string path =
        "/proc/" + std::to_string(range.process) + "/fd/" + std::to_string(range.descriptor);
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    Allocation allocation = {};
    if (descriptor < 0 || insert(range.bytes, allocation) != Status::ok) {
        close(descriptor);
        return Status::illegal_address;
    }
    // In both processes, an allocation of this size has the same offset in its first page.
    const uint64_t first = page_of(allocation.address);
    const uint64_t bytes = round_up(allocation.address + range.bytes, page) - first;
    allocation.view = view_ + (allocation.address - base_);
    void *mapped =
        mmap(view_ + (first - base_), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             descriptor, static_cast<off_t>(page_of(range.offset)));
    close(descriptor);
    if (mapped == MAP_FAILED) {
        return Status::illegal_address;
    }
    allocation.state = AllocationState::live;
    allocation.borrowed = true;
    allocation.imported = true;
    allocation.mapped = true;
    address = allocation.address;
    allocations_.emplace(address, allocation);
    return Status::ok;
}

void DeviceMemory::release(uint64_t address) {
    const auto found = allocations_.find(address);
    const Allocation allocation = found->second;
    allocations_.erase(found);
    ++generation_;
    if (allocation.borrowed && !allocation.imported) {
        return;
    }
    unmap(address, allocation.bytes);
    freed_.push_back({address, allocation.bytes});
    if (freed_.size() > most_freed) {
        freed_.pop_front();
    }
    if (!allocation.imported) {
        used_ -= round_up(allocation.bytes, alignment);
    }
}

size_t DeviceMemory::allocations() const {
    return static_cast<size_t>(
        std::count_if(allocations_.begin(), allocations_.end(), [](const auto &entry) {
            return !entry.second.borrowed && entry.second.state != AllocationState::leaving;
        }));
}

Allocation *DeviceMemory::find(uint64_t address, uint64_t bytes) {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) {
        return nullptr;
    }
    Allocation &allocation = std::prev(after)->second;
    const uint64_t offset = address - allocation.address;
    const bool inside = offset < allocation.bytes && bytes <= allocation.bytes - offset;
    return inside ? &allocation : nullptr;
}

const Allocation *DeviceMemory::find(uint64_t address, uint64_t bytes) const {
    return const_cast<DeviceMemory *>(this)->find(address, bytes);
}

char *DeviceMemory::view(uint64_t address) const {
    const Allocation *allocation = find(address);
    if (allocation != nullptr && allocation->borrowed) {
        return allocation->view + (address - allocation->address);
    }
    return view_ + (address - base_);
}

uint64_t DeviceMemory::address_of(uint64_t viewed) const {
    const uint64_t offset = viewed - reinterpret_cast<uint64_t>(view_);
    return base_ != 0 && offset < span_ ? base_ + offset : 0;
}

} // namespace sim
