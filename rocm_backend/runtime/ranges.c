#include "ranges.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uhal_hsa_range *ranges; /* by address */
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

hsa_status_t uhal_hsa_ranges_add(const uhal_hsa_range *range) {
    hsa_status_t status = HSA_STATUS_SUCCESS;
    pthread_mutex_lock(&lock);
    if (count == room) {
        const size_t wanted = room == 0 ? 64 : 2 * room;
        uhal_hsa_range *grown = realloc(ranges, wanted * sizeof *grown);
        if (grown == NULL) {
            status = HSA_STATUS_ERROR_OUT_OF_RESOURCES;
        } else {
            ranges = grown;
            room = wanted;
        }
    }
    if (status == HSA_STATUS_SUCCESS) {
        const size_t index = up_to(range->start);
        memmove(ranges + index + 1, ranges + index, (count - index) * sizeof *ranges);
        ranges[index] = *range;
        count += 1;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int uhal_hsa_ranges_remove(uint64_t start, uhal_hsa_range *removed) {
    pthread_mutex_lock(&lock);
    const size_t after = up_to(start);
    const int found = after > 0 && ranges[after - 1].start == start;
    if (found) {
        *removed = ranges[after - 1];
        memmove(ranges + after - 1, ranges + after, (count - after) * sizeof *ranges);
        count -= 1;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int uhal_hsa_ranges_find(uint64_t address, uhal_hsa_range *found) {
    pthread_mutex_lock(&lock);
    const size_t after = up_to(address);
    const int inside = after > 0 && address - ranges[after - 1].start < ranges[after - 1].bytes;
    if (inside)
        *found = ranges[after - 1];
    pthread_mutex_unlock(&lock);
    return inside;
}

int uhal_hsa_ranges_next(const void *device, uint64_t *start, uhal_hsa_range *found) {
    pthread_mutex_lock(&lock);
    size_t index = *start == 0 ? 0 : up_to(*start - 1);
    while (index < count && ranges[index].device != device)
        index += 1;
    const int more = index < count;
    if (more) {
        *found = ranges[index];
        *start = found->start + 1;
    }
    pthread_mutex_unlock(&lock);
    return more;
}

void uhal_hsa_ranges_let_in(uint64_t start, uint64_t peers) {
    pthread_mutex_lock(&lock);
    const size_t after = up_to(start);
    if (after > 0 && ranges[after - 1].start == start)
        ranges[after - 1].peers |= peers;
    pthread_mutex_unlock(&lock);
}

void uhal_hsa_ranges_describe(uint64_t address, char *text, size_t bytes) {
    pthread_mutex_lock(&lock);
    const size_t after = up_to(address);
    const uhal_hsa_range *below = after > 0 ? &ranges[after - 1] : NULL;
    const uhal_hsa_range *above = after < count ? &ranges[after] : NULL;
    const uint64_t past = below != NULL ? address - below->start : 0;
    if (below != NULL && past < below->bytes)
        snprintf(text, bytes, "byte %" PRIu64 " of an allocation of %zu bytes", past, below->bytes);
    else if (below != NULL && (above == NULL || past - below->bytes < above->start - address))
        snprintf(text, bytes, "%" PRIu64 " bytes past the end of an allocation of %zu bytes",
                 past - below->bytes, below->bytes);
    else if (above != NULL)
        snprintf(text, bytes, "%" PRIu64 " bytes in front of an allocation of %zu bytes",
                 above->start - address, above->bytes);
    else
        snprintf(text, bytes, "there are no allocations");
    pthread_mutex_unlock(&lock);
}
