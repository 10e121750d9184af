#include "ranges.h"

#include <inttypes.h>
#include <stdio.h>

static uhal_ranges ranges = UHAL_RANGES_OF(uhal_hsa_range);

hsa_status_t uhal_hsa_ranges_add(const uhal_hsa_range *range) {
    return uhal_ranges_add(&ranges, range) ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_OUT_OF_RESOURCES;
}

int uhal_hsa_ranges_remove(uint64_t start, uhal_hsa_range *removed) {
    return uhal_ranges_remove(&ranges, start, removed);
}

int uhal_hsa_ranges_find(uint64_t address, uhal_hsa_range *found) {
    return uhal_ranges_find(&ranges, address, found);
}

int uhal_hsa_ranges_next(const void *device, uint64_t *start, uhal_hsa_range *found) {
    pthread_mutex_lock(&ranges.lock);
    const uhal_hsa_range *one = NULL;
    size_t index = *start == 0 ? 0 : uhal_ranges_up_to(&ranges, *start - 1);
    for (; index < ranges.count; ++index) {
        one = (const uhal_hsa_range *)uhal_ranges_at(&ranges, index);
        if (one->device == device)
            break;
    }
    const int more = index < ranges.count;
    if (more) {
        *found = *one;
        *start = one->place.start + 1;
    }
    pthread_mutex_unlock(&ranges.lock);
    return more;
}

void uhal_hsa_ranges_let_in(uint64_t start, uint64_t peers) {
    pthread_mutex_lock(&ranges.lock);
    uhal_hsa_range *one = (uhal_hsa_range *)uhal_ranges_around(&ranges, start);
    if (one != NULL && one->place.start == start)
        one->peers |= peers;
    pthread_mutex_unlock(&ranges.lock);
}

void uhal_hsa_ranges_describe(uint64_t address, char *text, size_t bytes) {
    pthread_mutex_lock(&ranges.lock);
    const size_t after = uhal_ranges_up_to(&ranges, address);
    const uhal_range *below = after > 0 ? uhal_ranges_at(&ranges, after - 1) : NULL;
    const uhal_range *above = after < ranges.count ? uhal_ranges_at(&ranges, after) : NULL;
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
    pthread_mutex_unlock(&ranges.lock);
}
