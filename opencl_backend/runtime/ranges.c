#include "ranges.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uhal_cl_range *ranges; /* by address */
static size_t count;
static size_t room;

/* How many ranges start at or below the address. The lock is held. */
static size_t up_to(uint64_t address) {
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int uhal_cl_ranges_add(const uhal_cl_range *range) {
    int status = 0;
    pthread_mutex_lock(&lock);
    if (count == room) {
        const size_t wanted = room == 0 ? 64 : 2 * room;
        uhal_cl_range *grown = realloc(ranges, wanted * sizeof *grown);
        if (grown == NULL) {
            status = CL_OUT_OF_HOST_MEMORY;
        } else {
            ranges = grown;
            room = wanted;
        }
    }
    if (status == 0) {
        const size_t place = up_to(range->start);
        memmove(ranges + place + 1, ranges + place, (count - place) * sizeof *ranges);
        ranges[place] = *range;
        count += 1;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

bool uhal_cl_ranges_remove(uint64_t start, uhal_cl_range *removed) {
    pthread_mutex_lock(&lock);
    const size_t after = up_to(start);
    const bool found = after > 0 && ranges[after - 1].start == start;
    if (found) {
        *removed = ranges[after - 1];
        memmove(ranges + after - 1, ranges + after, (count - after) * sizeof *ranges);
        count -= 1;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool uhal_cl_ranges_pinned(const void *pointer, size_t bytes) {
    const uint64_t address = (uint64_t)(uintptr_t)pointer;
    pthread_mutex_lock(&lock);
    const size_t after = up_to(address);
    const uhal_cl_range *below = after > 0 ? &ranges[after - 1] : NULL;
    const bool found = below != NULL && below->pinned && address - below->start < below->bytes &&
                       bytes <= below->bytes - (address - below->start);
    pthread_mutex_unlock(&lock);
    return found;
}

void **uhal_cl_ranges_of(const uhal_cl_device *device, size_t *found) {
    pthread_mutex_lock(&lock);
    void **starts = count > 0 ? malloc(count * sizeof *starts) : NULL;
    *found = 0;
    for (size_t i = 0; starts != NULL && i < count; ++i)
        if (ranges[i].device == device && (!ranges[i].pinned || ranges[i].native))
            starts[(*found)++] = (void *)(uintptr_t)ranges[i].start;
    pthread_mutex_unlock(&lock);
    return starts;
}
