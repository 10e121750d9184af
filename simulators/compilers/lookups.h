// Functions that the replaced `dlsym` needs.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// The loader's own `dlsym`.
void *uhal_loader_lookup(void *handle, const char *name);

// Whether a function of this name may be replaced.
int uhal_is_replaced(const char *name);

// Returns our function, which calls `found`. Returns `found` itself if the library is unknown.
void *uhal_replacement(void *found, const char *name);

#ifdef __cplusplus
}
#endif
