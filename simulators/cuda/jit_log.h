// Messages of the driver's compiler and linker to a program.
#pragma once

#include <string>

#include "driver_abi.h"

namespace cuda_sim {

// The JIT options of a load or link, which name the message buffers. The caller owns
// them.
class JitLog {
  public:
    JitLog() = default;
    JitLog(unsigned count, const CUjit_option *options, void **values);

    // Writes the text to the error log, and sets the sizes of both logs.
    void error(const std::string &text);
    void finish();

  private:
    struct Buffer {
        char *text = nullptr;
        size_t bytes = 0;
        void **size_value = nullptr; // where the driver reports how much it wrote
        std::string written;
    };

    static void store(Buffer &buffer);

    Buffer error_;
    Buffer information_;
};

} // namespace cuda_sim
