// Finds driver functions by name and version, as cuGetProcAddress does. Also tells which functions
// a driver of the simulated version does not have yet. functions.def lists them all.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "../engine/report.h"
#include "../engine/settings.h"
#include "call.h"
#include "unsimulated.h"

namespace cuda_sim {

namespace {

// Form of an entry point for which a null stream is the calling thread's own stream.
template <auto function> struct PerThread;

template <class... Arguments, CUresult (*function)(Arguments...)> struct PerThread<function> {
    static CUresult call(Arguments... arguments) {
        const PerThreadDefault scope;
        return function(arguments...);
    }
};

struct EntryPoint {
    const char *name;
    const char *symbol;
    unsigned since;
    void *function;   // null: not simulated
    void *per_thread; // null: no separate form
};

#define SIMULATED(name, symbol, since)                                                             \
    {#name, #symbol, since, reinterpret_cast<void *>(&symbol), nullptr},
#define PER_THREAD(name, symbol, since, suffix)                                                    \
    {#name, #symbol, since, reinterpret_cast<void *>(&symbol),                                     \
     reinterpret_cast<void *>(&PerThread<&symbol>::call)},
#define REFUSED(name, symbol, since, reason) {#name, #symbol, since, nullptr, nullptr},
#define REFUSED_PER_THREAD(name, symbol, since, suffix, reason)                                    \
    {#name, #symbol, since, nullptr, nullptr},
const EntryPoint entry_points[] = {
#include "functions.def"
};

void *function_of_entry(const EntryPoint &entry, bool per_thread) {
    if (entry.function == nullptr) {
        static const std::map<std::string, void *> refusing = [] {
            std::map<std::string, void *> all;
            for (const Unsimulated &one : unsimulated()) {
                all[one.symbol] = one.function;
            }
            return all;
        }();
        return refusing.at(entry.symbol);
    }
    return per_thread && entry.per_thread != nullptr ? entry.per_thread : entry.function;
}

// Functions hidden by name, to test programs on a driver that lacks these functions.
bool hidden(const std::string &symbol) {
    static const std::vector<std::string> symbols = sim::Settings::list("CUDA_HIDE", ',');
    return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

// The newest form up to `version`. `known` is set if the name exists in any version. A hidden form
// counts as a wrong name, even if there is an older form.
const EntryPoint *find(const char *name, unsigned version, bool &known) {
    const EntryPoint *found = nullptr;
    known = false;
    for (const EntryPoint &entry : entry_points) {
        if (std::strcmp(entry.name, name) != 0) {
            continue;
        }
        known = true;
        if (entry.since <= version && (found == nullptr || entry.since >= found->since)) {
            found = &entry;
        }
    }
    if (found != nullptr && hidden(found->symbol)) {
        known = false;
        return nullptr;
    }
    return found;
}

CUresult look_up(const char *symbol, void **function, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult &status) {
    const unsigned driver_version = Driver::get().version();
    const cuuint64_t all_flags =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (symbol == nullptr || function == nullptr || (flags & ~all_flags) != 0 || version < 0 ||
        static_cast<unsigned>(version) > driver_version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    bool known = false;
    const EntryPoint *entry = find(symbol, static_cast<unsigned>(version), known);
    *function = nullptr;
    if (entry == nullptr) {
        status = known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                       : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return CUDA_ERROR_NOT_FOUND;
    }
    *function =
        function_of_entry(*entry, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
    status = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}

} // namespace

unsigned since(const std::string &symbol) {
    static const std::map<std::string, unsigned> versions = [] {
        std::map<std::string, unsigned> all;
        for (const EntryPoint &entry : entry_points) {
            // A hidden function counts as a function of a later version.
            all[entry.symbol] = hidden(entry.symbol) ? UINT32_MAX : entry.since;
        }
        return all;
    }();
    const auto found = versions.find(symbol);
    return found == versions.end() ? 0 : found->second;
}

int refuse_unsimulated(const char *symbol, const char *reason) {
    return initialized(symbol, [&](Call &) {
        static std::set<std::string> told;
        if (told.insert(symbol).second) {
            sim::report(
                std::string("uhal simulator: a function that is not simulated\n  call      ") +
                symbol + "\n  what      " + reason + "\n");
        }
        return refuse(CUDA_ERROR_NOT_SUPPORTED, std::string(symbol) + ": " + reason);
    });
}

} // namespace cuda_sim

using namespace cuda_sim;

// The forms for a thread's own null stream, exported under their own symbols. A template derives
// each function's body from its type, and an ifunc exports the function under its C name.
extern "C" {
#define PER_THREAD(name, symbol, since, suffix)                                                    \
    static decltype(&symbol) find_##symbol##suffix() {                                             \
        return &PerThread<&symbol>::call;                                                          \
    }                                                                                              \
    __attribute__((visibility("default"),                                                          \
                   ifunc("find_" #symbol #suffix))) decltype(symbol) symbol##suffix;
#include "functions.def"
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags) {
    CUdriverProcAddressQueryResult status;
    return look_up(symbol, pfn, cudaVersion, flags, status);
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus) {
    if (since(__func__) > Driver::get().version()) {
        return CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
    }
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult result = look_up(symbol, pfn, cudaVersion, flags, status);
    if (symbolStatus != nullptr && result != CUDA_ERROR_INVALID_VALUE) {
        *symbolStatus = status;
    }
    // This form reports a missing function by the pointer and the status.
    return result == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : result;
}

// NVIDIA's libraries share undocumented tables of functions. NVRTC asks for a table and works
// without it.
CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId) {
    if (ppExportTable == nullptr || pExportTableId == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ppExportTable = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}
