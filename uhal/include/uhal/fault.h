/* Report of an index out of bounds: a record that a kernel writes and the host reads after
 * synchronizing. Plain C, so that the kernel and its readers use the same bytes. A module that
 * reports defines a pointer `uhal_fault`, which is null until a caller stores the address of a
 * record. A record is zeroed host memory that the device reaches under its address. Without a
 * record nothing is reported. The first faulty work-item writes the record, once; every faulty
 * work-item skips its element. To arm the channel again, set its state to UHAL_FAULT_NONE. A kernel
 * of the host knows its stream. On the host each faulty stream writes its own record behind the
 * first record and marks the first record UHAL_FAULT_IN_STREAMS. `streams` of the first record
 * counts the other records. */
#ifndef UHAL_FAULT_H
#define UHAL_FAULT_H

#include <stdint.h>

#define UHAL_FAULT_NONE 0
#define UHAL_FAULT_WRITING 1
#define UHAL_FAULT_WRITTEN 2
#define UHAL_FAULT_IN_STREAMS 3
#define UHAL_FAULT_ENTRY_BYTES 32

struct uhal_fault_record {
    uint32_t state; /* UHAL_FAULT_…; UHAL_FAULT_WRITTEN makes the other fields valid */
    uint32_t streams;  /* number of uhal_stream_fault behind this record; kernels only read it */
    uint64_t position; /* position of the index in the array of indices, row-major */
    int64_t value;     /* the index */
    uint64_t bound;    /* indices are 0 … bound - 1 */
    char entry[UHAL_FAULT_ENTRY_BYTES]; /* the kernel, ended by a zero */
};

struct uhal_stream_fault {
    struct uhal_fault_record record;
    uint64_t stream; /* its native handle */
    uint64_t launch; /* number of earlier launches in the stream; a graph counts as one */
    uint64_t unused[6];
};

#endif
