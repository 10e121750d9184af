// Tables from handles to objects. A handle is never reused, so a stale handle is refused instead of
// naming another object.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

namespace hsa_sim {

// `Object` has a member `handle`, the runtime's struct of one number.
template <class Object> class Handles {
  public:
    // `kind` tells handles of different tables apart in a debugger.
    explicit Handles(uint64_t kind) : next_(kind << 32) {}

    void add(const std::shared_ptr<Object> &object) {
        next_ += step;
        object->handle.handle = next_;
        objects_.emplace(next_, object);
    }

    std::shared_ptr<Object> find(decltype(Object::handle) handle) const {
        const auto found = objects_.find(handle.handle);
        return found == objects_.end() ? nullptr : found->second;
    }

    void remove(decltype(Object::handle) handle) { objects_.erase(handle.handle); }
    void clear() { objects_.clear(); }
    std::shared_ptr<Object> any() const { return objects_.begin()->second; }
    size_t size() const { return objects_.size(); }

  private:
    // Handles have the alignment of the structs that a real runtime's handles point to.
    static constexpr uint64_t step = 64;

    uint64_t next_;
    std::unordered_map<uint64_t, std::shared_ptr<Object>> objects_;
};

} // namespace hsa_sim
