// Reads a program's code for the driver: PTX, a cubin, a fatbin.
#pragma once

#include "call.h"

namespace cuda_sim {

// Size of an image in bytes, from its headers; 0 when it is no image.
size_t image_bytes(const void *image);

// "sm_90a", say.
std::string target_name(const sim::Image &image);

// Reads the part of `data` that fits the device and this driver. If no part fits, `why` has the
// reason.
CUresult read_image(Driver &driver, const Profile &profile, const void *data, sim::Image &image,
                    std::string &why);

// Reads a file and appends zeros: headers are read before their length is known, and PTX ends with
// a zero byte. Returns false if the file cannot be read.
bool read_file(const char *path, std::vector<char> &bytes);

} // namespace cuda_sim
