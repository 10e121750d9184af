/* A profile's record of an operation: written in place and never moved.
 *
 * The list of fields below is the only definition of a record: the struct and Python's columns are
 * expansions of this list. Times are nanoseconds of CLOCK_MONOTONIC; 0: not known.
 */
#ifndef UHAL_PROFILE_RECORDS_H
#define UHAL_PROFILE_RECORDS_H

#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* clang-format off */
#define UHAL_PROFILE_FIELDS(FIELD)                                                                 \
    FIELD(int64_t, "i8", host_begin)                                                               \
    FIELD(int64_t, "i8", host_end)                                                                 \
    FIELD(int64_t, "i8", device_begin)                                                             \
    FIELD(int64_t, "i8", device_end)                                                               \
    FIELD(uint64_t, "u8", stream)      /* its id; 0: none */                                       \
    FIELD(uint64_t, "u8", thread)                                                                  \
    FIELD(uint64_t, "u8", bytes)                                                                   \
    FIELD(uint64_t, "u8", address)     /* of the memory allocated or freed */                      \
    FIELD(uint32_t, "u4", what)        /* index in the session's subjects */                       \
    FIELD(uint32_t, "u4", range)       /* index in the session's ranges; 0: none */                \
    FIELD(uint32_t, "u4", parent)      /* number of the replay, from 1; 0: none */                 \
    FIELD(uint32_t, "u4", line)        /* index in the session's lines, set at the end */          \
    FIELD(uint32_t, "u4", grid_x)                                                                  \
    FIELD(uint32_t, "u4", grid_y)                                                                  \
    FIELD(uint32_t, "u4", grid_z)                                                                  \
    FIELD(uint32_t, "u4", block_x)                                                                 \
    FIELD(uint32_t, "u4", block_y)                                                                 \
    FIELD(uint32_t, "u4", block_z)                                                                 \
    FIELD(uint32_t, "u4", shared)                                                                  \
    FIELD(int32_t, "i4", instruction_offset)                                                       \
    FIELD(uint16_t, "u2", device)      /* index in the session's devices */                        \
    FIELD(uint8_t, "u1", kind)                                                                     \
    FIELD(uint8_t, "u1", state)
/* clang-format on */

enum {
    UHAL_PROFILE_LAUNCH,
    UHAL_PROFILE_H2D,
    UHAL_PROFILE_D2H,
    UHAL_PROFILE_D2D,
    UHAL_PROFILE_PEER,
    UHAL_PROFILE_FILL,
    UHAL_PROFILE_REPLAY,
    UHAL_PROFILE_WORK, /* another library's work in a named stream */
    UHAL_PROFILE_WAIT,
    UHAL_PROFILE_ALLOCATE,
    UHAL_PROFILE_FREE,
    UHAL_PROFILE_RANGE,
    UHAL_PROFILE_RESOLVE, /* the profiler queries the times of events */
    UHAL_PROFILE_KINDS
};

static const char *const uhal_profile_kind_names[UHAL_PROFILE_KINDS] = {
    "launch", "h2d",  "d2h",      "d2d",  "peer",  "fill",   "replay",
    "work",   "wait", "allocate", "free", "range", "resolve"};

enum {
    UHAL_PROFILE_OPEN = 0,   /* under way; at the profile's end: refused */
    UHAL_PROFILE_CLOSED = 1, /* it happened */
};

#define UHAL_PROFILE_FIELD(type, format, name) type name;
typedef struct uhal_profile_record {
    UHAL_PROFILE_FIELDS(UHAL_PROFILE_FIELD)
    PyObject *code; /* owned, may be null: the Python call site */
    void *begin;    /* events; null: no event, or its time is read already */
    void *end;
} uhal_profile_record;
#undef UHAL_PROFILE_FIELD

#define UHAL_PROFILE_COLUMN(type, format, name)                                                    \
    {#name, format, offsetof(uhal_profile_record, name)},
static const struct uhal_profile_column {
    const char *name;
    const char *format;
    size_t offset;
} uhal_profile_columns[] = {UHAL_PROFILE_FIELDS(UHAL_PROFILE_COLUMN)};
#undef UHAL_PROFILE_COLUMN
enum { UHAL_PROFILE_COLUMNS = sizeof(uhal_profile_columns) / sizeof(uhal_profile_columns[0]) };

enum { UHAL_PROFILE_CHUNK = 1024 };

typedef struct uhal_profile_chunk {
    struct uhal_profile_chunk *next;
    uint32_t count;
    uhal_profile_record records[UHAL_PROFILE_CHUNK];
} uhal_profile_chunk;

static inline int64_t uhal_profile_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
