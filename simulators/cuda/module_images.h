// Reads a program's code for the driver: PTX, a cubin, a fatbin.
#pragma once

#include "call.h"

namespace cuda_sim {

// Bytes of an image whose length its own headers tell; 0 for something that is none.
size_t image_bytes(const void *image);

// "sm_90a", say.
std::string target_name(const sim::Image &image);

// What of `data` fits the device and this driver; with words in `why` when nothing does.
CUresult read_image(Driver &driver, const Profile &profile, const void *data, sim::Image &image,
                    std::string &why);

// A file's bytes, with zeros behind them: headers are read before their length is known, and PTX
// ends with a zero byte. False when it cannot be read.
bool read_file(const char *path, std::vector<char> &bytes);

} // namespace cuda_sim
