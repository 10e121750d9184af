#include "cache.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "../../engine/settings.h"
#include "sha256.h"

namespace sim {

namespace {

namespace files = std::filesystem;

std::string contents(const files::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string chosen_folder() {
    const std::string chosen = Settings::text("CACHE");
    if (!chosen.empty()) {
        return chosen;
    }
    const char *base = std::getenv("XDG_CACHE_HOME");
    const char *home = std::getenv("HOME");
    if (base != nullptr && *base != 0) {
        return std::string(base) + "/uhal/ptx";
    }
    return home == nullptr ? "" : std::string(home) + "/.cache/uhal/ptx";
}

// simulators/ptx, from simulators/build/libcuda.so.1
files::path translator_folder() {
    Dl_info here = {};
    if (dladdr(reinterpret_cast<void *>(&translator_folder), &here) == 0) {
        return {};
    }
    std::error_code ignored;
    const files::path library = files::canonical(here.dli_fname, ignored);
    return library.parent_path().parent_path() / "ptx";
}

std::string digest_of_sources(const files::path &folder, bool counts) {
    // Sources of the run time that every translated kernel depends on.
    std::vector<files::path> sources = {folder / "runtime" / "ptx.h",
                                        folder / "runtime" / "numerics.c"};
    if (counts) {
        sources.push_back(folder / "runtime" / "count.h");
    }
    std::error_code ignored;
    for (const auto &entry : files::directory_iterator(folder, ignored)) {
        const bool used = counts || entry.path().filename() != "count.py";
        if (used && entry.path().extension() == ".py") {
            sources.push_back(entry.path());
        }
    }
    std::sort(sources.begin(), sources.end());
    std::string all;
    for (const files::path &source : sources) {
        all += source.filename().string() + '\0' + contents(source) + '\0';
    }
    return sha256(all);
}

std::string describe_processor() {
    static const std::vector<std::string> telling = {"model name", "flags", "Features", "CPU part"};
    std::ifstream file("/proc/cpuinfo");
    std::string all;
    for (std::string line; std::getline(file, line) && !line.empty();) {
        const std::string key =
            line.substr(0, line.find_last_not_of("\t ", line.find(':') - 1) + 1);
        if (std::find(telling.begin(), telling.end(), key) != telling.end()) {
            all += line + '\n';
        }
    }
    return all;
}

} // namespace

namespace {

bool file_exists(const std::string &path) {
    return access(path.c_str(), R_OK) == 0;
}

// Same rule as _require_own in ../cache.py.
bool is_own(const std::string &path, const struct stat &found, std::string &why) {
    if (found.st_uid != geteuid()) {
        why = path + " belongs to user " + std::to_string(found.st_uid) + " and not to user " +
              std::to_string(geteuid());
    } else if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        why = path + " can be written by others; chmod go-w makes it yours";
    } else {
        return true;
    }
    why += ": translated kernels in it are not trusted. UHAL_SIM_CACHE names another folder";
    return false;
}

// Missing parent folders are made for this user alone, whatever the umask.
void make_private_folders(const files::path &folder) {
    std::error_code ignored;
    if (folder.has_relative_path() && !files::exists(folder, ignored)) {
        make_private_folders(folder.parent_path());
        if (mkdir(folder.c_str(), S_IRWXU) == 0) {
            files::permissions(folder, files::perms::owner_all, ignored);
        }
    }
}

// Opens a new file, to which nobody else can write, whatever the umask.
int open_new(const std::string &path) {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
}

bool write_all(int file, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(file, text.data(), text.size());
        if (written < 0 && errno != EINTR) {
            return false;
        }
        text.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
    }
    return true;
}

} // namespace

bool PtxCache::usable(const std::string &path, std::string &why) {
    struct stat found = {};
    if (lstat(path.c_str(), &found) != 0) {
        return false;
    }
    if (!S_ISREG(found.st_mode)) {
        why = path + " is no file: delete it";
        return false;
    }
    if (!is_own(path, found, why)) {
        return false;
    }
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
    return true;
}

const PtxCache *PtxCache::get(std::string &why) {
    static PtxCache cache;
    static std::string problem;
    static const bool opened = cache.open(problem);
    why = problem;
    return opened ? &cache : nullptr;
}

bool PtxCache::open(std::string &why) {
    const files::path beside = translator_folder();
    translator_ = (beside / "__main__.py").string();
    if (!file_exists(translator_)) {
        why = "the translator of PTX is not where it belongs: " + translator_;
        return false;
    }
    folder_ = chosen_folder();
    make_private_folders(folder_);
    if (folder_.empty() || access(folder_.c_str(), W_OK) != 0) {
        why = "no folder for translated kernels: '" + folder_ +
              "' cannot be written; UHAL_SIM_CACHE names another";
        return false;
    }
    if (folder_.find_first_of("\t\n") != std::string::npos) {
        why = "the folder for translated kernels has a tab or a line end in its name";
        return false;
    }
    struct stat found = {};
    if (stat(folder_.c_str(), &found) != 0 || !is_own(folder_, found, why)) {
        return false;
    }
    version_ = digest_of_sources(beside, false);
    counting_version_ = digest_of_sources(beside, true);
    processor_ = describe_processor();
    return true;
}

std::string PtxCache::keep_text(std::string_view text, const std::string &digest,
                                std::string &why) const {
    const std::string path = folder_ + "/" + digest.substr(0, 40) + ".ptx";
    if (usable(path, why)) {
        return path;
    }
    if (!why.empty()) {
        return "";
    }
    why = "the folder for translated kernels cannot be written";
    static std::atomic<unsigned> count{0};
    const std::string unfinished =
        path + "." + std::to_string(getpid()) + "-" + std::to_string(++count);
    const int file = open_new(unfinished);
    if (file < 0) {
        return "";
    }
    const bool written = write_all(file, text);
    std::error_code problem;
    if (close(file) == 0 && written) {
        files::rename(unfinished, path, problem);
        if (!problem) {
            why.clear();
            return path;
        }
    }
    unlink(unfinished.c_str());
    return "";
}

std::string PtxCache::description_file(const std::string &digest) const {
    return folder_ + "/" + sha256(digest + '\0' + version_).substr(0, 40) + ".module";
}

std::string PtxCache::library_file(const std::string &digest, const std::string &entry,
                                   const std::string &check) const {
    const std::string &version = check == "count" ? counting_version_ : version_;
    const std::string made_of =
        digest + '\0' + entry + '\0' + check + '\0' + version + '\0' + processor_;
    return folder_ + "/" + sha256(made_of).substr(0, 40) + ".so";
}

} // namespace sim
