// Preloaded: replaces `dlsym`. A program that looks up one of the few functions that return machine
// code gets our function instead. All other lookups go to the loader unchanged.
//
// Libraries open NVRTC and nvJitLink by a full path of their own choice, so they would not find a
// replacement library of the same name in another folder. The opened library is still the user's
// library, with its own path, version and other functions.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "lookups.h"

#define SHOWN __attribute__((visibility("default")))

typedef void *Lookup(void *handle, const char *name);

static Lookup *loader_lookup(void) {
    static Lookup *found;
    // Symbol versions: the version since libc contains dlsym, then the first version of x86-64 and
    // of aarch64.
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t at = 0; found == NULL && at < sizeof versions / sizeof *versions; ++at) {
        found = (Lookup *)dlvsym(RTLD_NEXT, "dlsym", versions[at]);
    }
    return found;
}

void *uhal_loader_lookup(void *handle, const char *name) {
    return loader_lookup()(handle, name);
}

SHOWN void *dlsym(void *restrict handle, const char *restrict name) {
    if (!uhal_is_replaced(name)) {
        // A tail call, so that the loader sees our caller: RTLD_NEXT starts its search from there.
        return loader_lookup()(handle, name);
    }
    return uhal_replacement(uhal_loader_lookup(handle, name), name);
}
