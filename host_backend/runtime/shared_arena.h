// The shared memory of a checked block: variables with gaps between them, and a record of the
// bytes that were written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <uhal/host_module.h>

#include "launch_facts.h"

namespace uhal_host {

class SharedArena {
  public:
    SharedArena();

    // Forgets the variables of the previous block.
    void begin_block();

    // The memory of a variable; within a block, the same memory for the same `name` pointer. Null
    // if the variables are too large for a block.
    void *place(const char *name, size_t bytes);

    bool holds(uintptr_t address) const { return address - start_ < capacity; }

    // Returns whether one variable has all these bytes.
    bool has(uintptr_t address, size_t bytes) const;

    // Returns whether all bytes that an access reads were written before; notes the bytes that the
    // access writes.
    bool note(uintptr_t address, size_t bytes, bool reads, bool writes);

    // Describes an address, such as `tile[3]`.
    std::string element(uintptr_t address, size_t bytes) const;

    // Describes an address outside all variables by the variable next to it.
    std::string outside(uintptr_t address, size_t bytes) const;

  private:
    struct Variable {
        const char *name;
        Span memory;
    };

    static constexpr size_t gap = 256;
    static constexpr size_t capacity = UHAL_HOST_MAX_SHARED_BYTES + 64 * gap;

    const std::unique_ptr<unsigned char[]> memory_;
    uintptr_t start_;
    std::vector<uint8_t> written_; // a bit for each byte
    std::vector<Variable> variables_;
};

} // namespace uhal_host
