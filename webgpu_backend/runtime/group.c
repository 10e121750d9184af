#include "group.h"

#include <stdlib.h>
#include <string.h>

static uint64_t bound_bytes(const uhal_wg_device *device, const uhal_wg_binding *one) {
    const uint64_t rest = one->buffer->bytes - one->offset;
    const uint64_t most = device->info.max_binding_bytes & ~(uint64_t)3;
    return rest < most ? rest : most;
}

static uhal_wg_group *make_group(uhal_wg_groups *groups, const uhal_wg_binding *bindings) {
    uhal_wg_device *device = groups->device;
    WGPUBindGroupEntry entries[UHAL_WG_MOST_BINDINGS + 1];
    memset(entries, 0, sizeof entries);
    size_t count = 0;
    if (groups->uniform_bytes > 0) {
        entries[count].buffer = device->uniforms;
        entries[count++].size = groups->uniform_bytes;
    }
    for (uint32_t i = 0; i < groups->binding_count; ++i) {
        WGPUBindGroupEntry *entry = &entries[count++];
        entry->binding = i + 1;
        entry->buffer = bindings[i].buffer->buffer;
        entry->offset = bindings[i].offset;
        entry->size = bound_bytes(device, &bindings[i]);
        atomic_store(&bindings[i].buffer->is_grouped, true);
    }
    const WGPUBindGroupDescriptor descriptor = {
        .layout = groups->layout, .entryCount = count, .entries = entries};
    const size_t bytes = groups->binding_count * sizeof *bindings;
    uhal_wg_group *made = malloc(sizeof *made + bytes);
    if (made == NULL) {
        uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
        return NULL;
    }
    device->group = NULL; /* the new group may have the address of a released group */
    uhal_wg_clear_error();
    made->group = uhal_wg.wgpu.wgpuDeviceCreateBindGroup(device->device, &descriptor);
    memcpy(made->bindings, bindings, bytes);
    if (uhal_wg_noted_error() != 0) {
        uhal_wg.wgpu.wgpuBindGroupRelease(made->group);
        free(made);
        return NULL;
    }
    return made;
}

static void release_group(uhal_wg_group *one) {
    uhal_wg.wgpu.wgpuBindGroupRelease(one->group);
    free(one);
}

static bool has_place(uhal_wg_groups *groups) {
    enum { LEAST = 4 };
    if (groups->count < groups->capacity || groups->capacity == UHAL_WG_KEPT_GROUPS)
        return true;
    const uint32_t capacity = groups->capacity == 0 ? LEAST : 2 * groups->capacity;
    uhal_wg_group **grown = realloc(groups->kept, capacity * sizeof(*grown));
    if (grown == NULL) {
        uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
        return false;
    }
    groups->kept = grown;
    groups->capacity = capacity;
    return true;
}

static bool binds(const uhal_wg_group *one, const uhal_wg_binding *bindings, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
        if (one->bindings[i].buffer != bindings[i].buffer ||
            one->bindings[i].offset != bindings[i].offset)
            return false;
    return true;
}

/* Starts at the last found group, because a launch often repeats. In each replay, the launches of a
   kernel take the groups in the same order. */
WGPUBindGroup uhal_wg_group_with(uhal_wg_groups *groups, const uhal_wg_binding *bindings) {
    for (uint32_t left = groups->count, i = groups->last; left > 0; --left, ++i) {
        if (i >= groups->count)
            i = 0;
        if (binds(groups->kept[i], bindings, groups->binding_count)) {
            groups->last = i;
            return groups->kept[i]->group;
        }
    }
    uhal_wg_group *made = has_place(groups) ? make_group(groups, bindings) : NULL;
    if (made == NULL)
        return NULL;
    if (groups->count < UHAL_WG_KEPT_GROUPS) {
        groups->last = groups->count++;
    } else {
        groups->last = groups->next_place++ % UHAL_WG_KEPT_GROUPS;
        release_group(groups->kept[groups->last]);
    }
    groups->kept[groups->last] = made;
    return made->group;
}

void uhal_wg_forget_groups(uhal_wg_device *device, const uhal_wg_buffer *buffer) {
    for (uhal_wg_groups *one = device->groups; one != NULL; one = one->next)
        for (uint32_t i = one->count; i-- > 0;) {
            bool has = false;
            for (uint32_t k = 0; k < one->binding_count && !has; ++k)
                has = one->kept[i]->bindings[k].buffer == buffer;
            if (!has)
                continue;
            release_group(one->kept[i]);
            one->kept[i] = one->kept[--one->count];
        }
}

void uhal_wg_open_groups(uhal_wg_groups *groups) {
    groups->next = groups->device->groups;
    groups->device->groups = groups;
}

void uhal_wg_close_groups(uhal_wg_groups *groups) {
    uhal_wg_groups **place = &groups->device->groups;
    while (*place != NULL && *place != groups)
        place = &(*place)->next;
    if (*place != NULL)
        *place = groups->next;
    for (uint32_t i = 0; i < groups->count; ++i)
        release_group(groups->kept[i]);
    free(groups->kept);
    groups->kept = NULL;
    groups->count = groups->capacity = 0;
}
