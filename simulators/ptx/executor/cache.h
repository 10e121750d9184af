// Folder of translated kernels, shared by processes: UHAL_SIM_CACHE, or a folder of the user.
//
// A file's name depends on everything that determines the file's bytes: the PTX, the kernel, its
// checks, the translator's sources, the processor. So a kernel is found without the translator.
// Files are renamed into place when they are complete. The folder may be deleted at any time; the
// translator removes the least recently used files (../cache.py).
//
// Libraries are code: only this user may be able to write to the folder, and to each file in it.
#pragma once

#include <string>
#include <string_view>

namespace sim {

class PtxCache {
  public:
    // Returns null, with a reason in `why`, if there is no such folder or no translator beside the
    // library.
    static const PtxCache *get(std::string &why);

    // The file with this text, written if missing; empty, with a reason in `why`, on failure.
    std::string keep_text(std::string_view text, const std::string &digest, std::string &why) const;

    // Whether a file of the folder exists; marks the file as used. False, with a reason in `why`,
    // if another user made the file or can change it.
    static bool usable(const std::string &path, std::string &why);

    // File names of a module's description, and of the library of one of its kernels.
    std::string description_file(const std::string &digest) const;
    std::string library_file(const std::string &digest, const std::string &entry,
                             const std::string &check) const;

    // simulators/ptx/__main__.py
    const std::string &translator() const { return translator_; }

  private:
    PtxCache() = default;
    bool open(std::string &why);

    std::string folder_;
    std::string translator_;
    std::string version_;          // digest of the translator's sources
    std::string counting_version_; // including sources that only counting kernels depend on
    std::string processor_;        // determines its instructions
};

} // namespace sim
