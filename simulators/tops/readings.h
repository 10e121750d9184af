// Undocumented behaviour of the runtime. Each field chooses one of two interpretations, by an
// environment variable, so that a client can be tested with both.
#pragma once

#include <string>

namespace tops_sim {

struct Readings {
    explicit Readings(std::string &complaint);

    // Bytes of topsModuleLaunchKernelEx's configuration: they depend on the type of localSmemBytes.
    unsigned launch_config = 72;
    // Place of the newer library's sipCount: at the structure's end, or in the middle.
    bool properties_grew_in_the_middle = false;
    // Whether topsDeviceProp_t has the SIPs of a cluster: the header says 0, Ubridge read 12.
    bool properties_tell_sips = true;
    // Whether kernelParams works; the published header calls kernelParams unimplemented.
    bool takes_kernel_parameters = true;
    // Whether a pointer is a handle that launches convert, or the device's own address.
    bool pointers_are_handles = true;
    // Whether only an image's buffer parameters are converted, or all pointers.
    bool converts_buffers_only = true;
    // Whether an error of the device stays for every later call.
    bool faults_stay = true;
    // Whether a bundle of several images loads the device's image, or just the first.
    bool chooses_in_bundles = true;
    // Whether memory can be allocated and freed in stream order.
    bool allocates_in_order = true;
    // Whether every attribute of a pointer is written as 8 bytes.
    bool wide_attributes = false;
    unsigned sips = 0;          // of a cluster, instead of the profile's
    unsigned block_threads = 0; // threads of a block, instead of the SIPs of a cluster
};

} // namespace tops_sim
