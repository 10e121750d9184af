// What `dlsym` asks of the rest.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// The loader's own `dlsym`.
void *uhal_loader_lookup(void *handle, const char *name);

// Whether a function of this name may be replaced.
int uhal_is_replaced(const char *name);

// Ours, which will call `found`; `found` itself when it belongs to no library that we know.
void *uhal_replacement(void *found, const char *name);

#ifdef __cplusplus
}
#endif
