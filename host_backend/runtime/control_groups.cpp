#include "control_groups.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <sstream>

namespace uhal_host {

namespace {

// The first line of a control file as up to two numbers; "max" and negative numbers are no limit.
int read_numbers(const std::string &path, uint64_t (&numbers)[2]) {
    std::ifstream file(path);
    std::string word;
    int count = 0;
    while (count < 2 && file >> word) {
        const bool unlimited = word == "max" || word[0] == '-';
        numbers[count++] = unlimited ? UINT64_MAX : strtoull(word.c_str(), nullptr, 10);
    }
    return count;
}

bool read_first(const std::string &path, uint64_t &number) {
    uint64_t numbers[2];
    if (read_numbers(path, numbers) < 1) {
        return false;
    }
    number = numbers[0];
    return true;
}

unsigned cores_of(const std::string &group) {
    uint64_t numbers[2]; // microseconds of processor time in each period, and the period
    if (read_numbers(group + "/cpu.max", numbers) != 2 &&
        !(read_first(group + "/cpu.cfs_quota_us", numbers[0]) &&
          read_first(group + "/cpu.cfs_period_us", numbers[1]))) {
        return UINT_MAX;
    }
    if (numbers[0] == UINT64_MAX || numbers[1] == 0 || numbers[1] == UINT64_MAX) {
        return UINT_MAX;
    }
    const uint64_t cores = numbers[0] / numbers[1] + (numbers[0] % numbers[1] != 0 ? 1 : 0);
    return static_cast<unsigned>(std::clamp<uint64_t>(cores, 1, UINT_MAX));
}

uint64_t memory_of(const std::string &group, uint64_t &used) {
    uint64_t limit = UINT64_MAX;
    used = 0;
    if (read_first(group + "/memory.max", limit)) {
        read_first(group + "/memory.current", used);
    } else if (read_first(group + "/memory.limit_in_bytes", limit)) {
        read_first(group + "/memory.usage_in_bytes", used);
    }
    return limit;
}

// Whether a comma-separated list has this word.
bool lists(const std::string &words, const char *wanted) {
    std::istringstream list(words);
    for (std::string word; std::getline(list, word, ',');) {
        if (word == wanted) {
            return true;
        }
    }
    return false;
}

} // namespace

template <class Visit> void ControlGroups::each(const char *controller, const Visit &visit) const {
    const std::string mounts = root_ + "/sys/fs/cgroup";
    const auto walk = [&](const std::string &mount, const std::string &path) {
        visit(mount);
        std::istringstream names(path);
        std::string folder = mount;
        for (std::string name; std::getline(names, name, '/');) {
            if (name == "..") { // outside the groups that this process can see
                return;
            }
            if (!name.empty()) {
                visit(folder += '/' + name);
            }
        }
    };
    // Version 1 mounts a controller under its name or with others, as `cpu,cpuacct`.
    const auto walk_each = [&](const std::string &path) {
        DIR *const folder = opendir(mounts.c_str());
        if (folder == nullptr) {
            return;
        }
        while (const dirent *const entry = readdir(folder)) {
            if (lists(entry->d_name, controller)) {
                walk(mounts + '/' + entry->d_name, path);
            }
        }
        closedir(folder);
    };
    std::ifstream groups(root_ + "/proc/self/cgroup");
    std::string number;
    std::string controllers;
    std::string path;
    bool any = false;
    while (std::getline(groups, number, ':') && std::getline(groups, controllers, ':') &&
           std::getline(groups, path)) {
        if (controllers.empty()) { // version 2, alone or beside version 1
            walk(mounts, path);
            walk(mounts + "/unified", path);
            any = true;
        } else if (lists(controllers, controller)) {
            walk_each(path);
            any = true;
        }
    }
    if (!any) { // without /proc the outermost groups can still be read
        walk(mounts, "");
        walk_each("");
    }
}

unsigned ControlGroups::cores() const {
    unsigned least = UINT_MAX;
    each("cpu", [&](const std::string &group) { least = std::min(least, cores_of(group)); });
    return least;
}

uint64_t ControlGroups::memory() const {
    uint64_t least = UINT64_MAX;
    each("memory", [&](const std::string &group) {
        uint64_t used;
        least = std::min(least, memory_of(group, used));
    });
    return least;
}

uint64_t ControlGroups::memory_left() const {
    uint64_t least = UINT64_MAX;
    each("memory", [&](const std::string &group) {
        uint64_t used;
        const uint64_t limit = memory_of(group, used);
        least = std::min(least, limit > used ? limit - used : 0);
    });
    return least;
}

} // namespace uhal_host
