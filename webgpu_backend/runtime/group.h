/* Bind groups of a function, kept by the set of buffers that they bind. */
#ifndef UHAL_WG_GROUP_H
#define UHAL_WG_GROUP_H

#include "memory.h"

enum { UHAL_WG_MOST_BINDINGS = 30 };
/* Number of groups that a function keeps; a power of 2. A large language model multiplies by 600
 * matrices with one kernel. */
enum { UHAL_WG_KEPT_GROUPS = 1024 };

/* The part of a buffer that a kernel gets. */
typedef struct uhal_wg_binding {
    uhal_wg_buffer *buffer;
    uint64_t offset;
} uhal_wg_binding;

typedef struct uhal_wg_group {
    WGPUBindGroup group;
    uhal_wg_binding bindings[]; /* binding_count of the function */
} uhal_wg_group;

typedef struct uhal_wg_groups {
    uhal_wg_device *device;
    struct uhal_wg_groups *next; /* of the device's */
    WGPUBindGroupLayout layout;
    uint32_t binding_count;
    uint64_t uniform_bytes; /* of parameters in binding 0; 0 without that binding */
    uhal_wg_group **kept;
    uint32_t count;
    uint32_t capacity;
    uint32_t last;       /* place of the group found last */
    uint32_t next_place; /* place that is replaced next when all places are taken */
} uhal_wg_groups;

/* The caller holds the device's lock. A group lives at least until the next call; null: an error is
 * noted. */
void uhal_wg_open_groups(uhal_wg_groups *groups);
void uhal_wg_close_groups(uhal_wg_groups *groups);
WGPUBindGroup uhal_wg_group_with(uhal_wg_groups *groups, const uhal_wg_binding *bindings);
/* Drops the groups that bind a buffer, because it is being freed. */
void uhal_wg_forget_groups(uhal_wg_device *device, const uhal_wg_buffer *buffer);

#endif
