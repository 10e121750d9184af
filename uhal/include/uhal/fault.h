/* How a kernel tells that it was given an index out of bounds: a record that it writes and the host
 * reads after synchronizing. Plain C, the same bytes for the kernel and for whoever reads them.
 *
 * A module that reports defines a pointer `uhal_fault`, null until somebody stores the address of a
 * record there: memory of the host that the device reaches under that address, all zeros. Without a
 * record nothing is reported. The first faulty work-item writes the record, once; all skip the
 * element. To arm the channel again, set the whole record to zeros while nothing runs.
 */
#ifndef UHAL_FAULT_H
#define UHAL_FAULT_H

#include <stdint.h>

#define UHAL_FAULT_NONE 0
#define UHAL_FAULT_WRITING 1
#define UHAL_FAULT_WRITTEN 2
#define UHAL_FAULT_ENTRY_BYTES 32

struct uhal_fault_record {
    uint32_t state; /* UHAL_FAULT_…; the other fields count once it is UHAL_FAULT_WRITTEN */
    uint32_t reserved;
    uint64_t position; /* of the index in the array of indices, row-major */
    int64_t value;     /* the index */
    uint64_t bound;    /* indices are 0 … bound - 1 */
    char entry[UHAL_FAULT_ENTRY_BYTES]; /* the kernel, padded with zeros */
};

#endif
