#include "jit_log.h"

#include <algorithm>
#include <cstring>

namespace cuda_sim {

JitLog::JitLog(unsigned count, const CUjit_option *options, void **values) {
    for (unsigned index = 0; index < count; ++index) {
        void *&value = values[index];
        switch (options[index]) {
        case CU_JIT_ERROR_LOG_BUFFER:
            error_.text = static_cast<char *>(value);
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            error_.bytes = static_cast<unsigned>(reinterpret_cast<uint64_t>(value));
            error_.size_value = &value;
            break;
        case CU_JIT_INFO_LOG_BUFFER:
            information_.text = static_cast<char *>(value);
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            information_.bytes = static_cast<unsigned>(reinterpret_cast<uint64_t>(value));
            information_.size_value = &value;
            break;
        default:
            break;
        }
    }
}

void JitLog::error(const std::string &text) {
    error_.written = text;
}

void JitLog::finish() {
    store(error_);
    store(information_);
}

void JitLog::store(Buffer &buffer) {
    if (buffer.size_value == nullptr) {
        return;
    }
    size_t written = 0;
    if (buffer.text != nullptr && buffer.bytes != 0) {
        written = std::min(buffer.written.size(), buffer.bytes - 1);
        std::memcpy(buffer.text, buffer.written.data(), written);
        buffer.text[written] = 0;
    }
    *buffer.size_value = reinterpret_cast<void *>(written);
}

} // namespace cuda_sim
