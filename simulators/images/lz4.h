// Decodes one LZ4 block into a buffer of exactly its decompressed size.
#pragma once

#include <vector>

#include "image.h"

namespace sim {

bool decompress_lz4(const Bytes &block, std::vector<unsigned char> &content);

} // namespace sim
