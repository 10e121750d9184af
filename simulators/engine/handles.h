// Tables from handles to objects. A handle is never reused, so a stale handle is refused instead of
// naming another object.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

namespace sim {

template <class Handle, class Object> class Handles {
  public:
    // `kind` tells handles of different tables apart in a debugger.
    explicit Handles(uint64_t kind) : next_(kind << 32) {}

    Handle add(const std::shared_ptr<Object> &object) {
        next_ += step;
        object->handle = reinterpret_cast<Handle>(next_);
        objects_.emplace(next_, object);
        return object->handle;
    }

    std::shared_ptr<Object> find(Handle handle) const {
        const auto found = objects_.find(reinterpret_cast<uint64_t>(handle));
        return found == objects_.end() ? nullptr : found->second;
    }

    void remove(Handle handle) { objects_.erase(reinterpret_cast<uint64_t>(handle)); }

    size_t size() const { return objects_.size(); }

    const std::map<uint64_t, std::shared_ptr<Object>> &all() const { return objects_; }

  private:
    // Handles have at least the alignment of the structs that real handles point to.
    static constexpr uint64_t step = 64;

    uint64_t next_;
    std::map<uint64_t, std::shared_ptr<Object>> objects_;
};

} // namespace sim
