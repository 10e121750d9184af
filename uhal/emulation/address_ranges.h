/* A runtime's allocations by address. Libraries over drivers include this file; each has its own
 * record that begins with a `uhal_range`. Any thread may call every function. Results are copies,
 * because a record may be freed at once. */
#ifndef UHAL_ADDRESS_RANGES_H
#define UHAL_ADDRESS_RANGES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct uhal_range {
    uint64_t start;
    size_t bytes;
} uhal_range;

/* Ranges that do not overlap. */
typedef struct uhal_ranges {
    pthread_mutex_t lock;
    size_t record_bytes;
    unsigned char *records; /* by address */
    size_t count;
    size_t room;
} uhal_ranges;

#define UHAL_RANGES_OF(record) {.lock = PTHREAD_MUTEX_INITIALIZER, .record_bytes = sizeof(record)}

/* -- with the lock held ------------------------------------------------------------------------ */

static inline uhal_range *uhal_ranges_at(const uhal_ranges *ranges, size_t index) {
    return (uhal_range *)(ranges->records + index * ranges->record_bytes);
}

/* Number of ranges that begin at or below the address. */
static inline size_t uhal_ranges_up_to(const uhal_ranges *ranges, uint64_t address) {
    size_t low = 0;
    size_t high = ranges->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (uhal_ranges_at(ranges, middle)->start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The range that contains the address; null for none. */
static inline uhal_range *uhal_ranges_around(const uhal_ranges *ranges, uint64_t address) {
    const size_t after = uhal_ranges_up_to(ranges, address);
    uhal_range *below = after > 0 ? uhal_ranges_at(ranges, after - 1) : NULL;
    return below != NULL && address - below->start < below->bytes ? below : NULL;
}

/* -- without ----------------------------------------------------------------------------------- */

/* Returns false if there is no memory for the entry. */
static inline bool uhal_ranges_add(uhal_ranges *ranges, const void *record) {
    pthread_mutex_lock(&ranges->lock);
    bool fits = ranges->count < ranges->room;
    if (!fits) {
        const size_t wanted = ranges->room == 0 ? 64 : 2 * ranges->room;
        unsigned char *grown = realloc(ranges->records, wanted * ranges->record_bytes);
        if (grown != NULL) {
            ranges->records = grown;
            ranges->room = wanted;
            fits = true;
        }
    }
    if (fits) {
        const size_t index = uhal_ranges_up_to(ranges, ((const uhal_range *)record)->start);
        uhal_range *place = uhal_ranges_at(ranges, index);
        memmove(uhal_ranges_at(ranges, index + 1), place,
                (ranges->count - index) * ranges->record_bytes);
        memcpy(place, record, ranges->record_bytes);
        ranges->count += 1;
    }
    pthread_mutex_unlock(&ranges->lock);
    return fits;
}

/* Removes the range that begins at the address; false: no such range. */
static inline bool uhal_ranges_remove(uhal_ranges *ranges, uint64_t start, void *removed) {
    pthread_mutex_lock(&ranges->lock);
    const size_t after = uhal_ranges_up_to(ranges, start);
    const bool found = after > 0 && uhal_ranges_at(ranges, after - 1)->start == start;
    if (found) {
        uhal_range *place = uhal_ranges_at(ranges, after - 1);
        memcpy(removed, place, ranges->record_bytes);
        memmove(place, uhal_ranges_at(ranges, after),
                (ranges->count - after) * ranges->record_bytes);
        ranges->count -= 1;
    }
    pthread_mutex_unlock(&ranges->lock);
    return found;
}

/* Copies the range that contains the address; false: no such range. */
static inline bool uhal_ranges_find(uhal_ranges *ranges, uint64_t address, void *found) {
    pthread_mutex_lock(&ranges->lock);
    const uhal_range *around = uhal_ranges_around(ranges, address);
    if (around != NULL)
        memcpy(found, around, ranges->record_bytes);
    pthread_mutex_unlock(&ranges->lock);
    return around != NULL;
}

#endif
