// Reductions of every dtype: in rank order, so that all ranks get the same bits.
#pragma once

#include <cstddef>
#include <vector>

#include "abi.h"

namespace nccl_sim {

// Bytes of an element; 0 for an unknown type.
size_t bytes_of(ncclDataType_t type);

// Name of a type, as in messages.
const char *name_of(ncclDataType_t type);

// Reduces `count` elements of each operand, beginning at element `offset`.
void reduce(const std::vector<const char *> &operands, size_t offset, size_t count,
            ncclDataType_t type, ncclRedOp_t op, char *result);

} // namespace nccl_sim
