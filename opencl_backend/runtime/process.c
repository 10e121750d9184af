#include "process.h"

#include <string.h>

uhal_cl_process uhal_cl = {.pinned = UHAL_RANGES_OF(uhal_cl_memory)};

static _Thread_local uhal_cl_device *current;

uhal_cl_device *uhal_cl_current(void) { return current; }

#define FUNCTION_NAME(name) #name,
static const char *const FUNCTION_NAMES[] = {UHAL_CL_FUNCTIONS(FUNCTION_NAME)};
#undef FUNCTION_NAME

enum { FUNCTION_COUNT = sizeof FUNCTION_NAMES / sizeof *FUNCTION_NAMES };

_Static_assert(sizeof(uhal_cl_functions) == FUNCTION_COUNT * sizeof(void *), "addresses only");

uhalClResult uhalClVersion(int *version) {
    *version = UHAL_CL_VERSION;
    return 0;
}

uhalClResult uhalClFunctionName(const char **name, unsigned int index) {
    if (index >= FUNCTION_COUNT)
        return CL_INVALID_VALUE;
    *name = FUNCTION_NAMES[index];
    return 0;
}

uhalClResult uhalClOpen(void *const *functions, unsigned int count) {
    if (count != FUNCTION_COUNT)
        return CL_INVALID_VALUE;
    memcpy(&uhal_cl.cl, functions, sizeof uhal_cl.cl);
    return 0;
}

uhalClResult uhalClLiveCount(uhalClKind kind, size_t *count) {
    *count = atomic_load(&uhal_cl.live[kind]);
    return 0;
}

uhalClResult uhalClCtxGetCurrent(void **context) {
    *context = current;
    return 0;
}

uhalClResult uhalClCtxSetCurrent(void *context) {
    current = context;
    return 0;
}
