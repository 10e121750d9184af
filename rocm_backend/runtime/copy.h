/* Asynchronous copies in a stream's order. The copies wait for a mark behind the earlier work, and
 * a second mark waits for the copies. Any thread may call these functions.
 */
#ifndef UHAL_HSA_COPY_H
#define UHAL_HSA_COPY_H

#include "copy_list.h"
#include "stream.h"

/* One call of hsa_amd_memory_async_copy. */
typedef struct uhal_hsa_part {
    uint64_t destination;
    uint64_t source;
    size_t bytes;
    hsa_agent_t destination_agent;
    hsa_agent_t source_agent;
} uhal_hsa_part;

/* Objects that a copy owns from the call on, even if the call fails. Each may be NULL. */
typedef struct uhal_hsa_freight {
    uhal_hsa_piece *piece;
    void *pinned;
    uhal_hsa_device *peer;
} uhal_hsa_freight;

/* Submits copies; with `chained` each waits for its predecessor. With `kept` the caller holds the
 * copy until uhal_hsa_copy_drop. */
int uhal_hsa_copy_submit(uhal_hsa_stream *stream, const uhal_hsa_part *parts, uint32_t count,
                         int chained, uhal_hsa_freight freight, uhal_hsa_copy **kept);

/* Waits until every part is done. */
int uhal_hsa_copy_wait(uhal_hsa_copy *copy);

#endif
