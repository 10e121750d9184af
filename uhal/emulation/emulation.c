/* Table of the emulated slots and the slots they build on. */
#include "emulation.h"

#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

uhal_hot_table uhal_base;

#define EMULATED(SLOT)                                                                             \
    SLOT(current)                                                                                  \
    SLOT(bind)                                                                                     \
    SLOT(host_alloc)                                                                               \
    SLOT(host_free)                                                                                \
    SLOT(memset_8)                                                                                 \
    SLOT(memset_16)                                                                                \
    SLOT(memset_32)                                                                                \
    SLOT(stream_create)                                                                            \
    SLOT(stream_destroy)                                                                           \
    SLOT(stream_synchronize)                                                                       \
    SLOT(stream_query)                                                                             \
    SLOT(stream_wait_event)                                                                        \
    SLOT(stream_callback)                                                                          \
    SLOT(event_create)                                                                             \
    SLOT(event_destroy)                                                                            \
    SLOT(event_record)                                                                             \
    SLOT(event_synchronize)                                                                        \
    SLOT(event_query)                                                                              \
    SLOT(event_elapsed)

/* Sets the library's codes, and its slots in the order of hot_table.h; a missing slot is null. */
EXPORTED void uhal_emulation_base(void *const *addresses, int not_ready, int out_of_memory) {
    memcpy(&uhal_base, addresses, offsetof(uhal_hot_table, not_ready));
    uhal_base.not_ready = not_ready;
    uhal_base.out_of_memory = out_of_memory;
}

/* The emulation of a slot; null if the slot has none. */
EXPORTED void *uhal_emulated_slot(const char *name) {
#define ANSWER(slot)                                                                               \
    if (strcmp(name, #slot) == 0)                                                                  \
        return (void *)uhal_emulated_##slot;
    EMULATED(ANSWER)
#undef ANSWER
    return NULL;
}
