/* Graphs: work recorded once and launched as a whole, as often as asked.
 *
 * A graph is a list of steps in the recorded order: runs of launches, and copies and fills between
 * runs. Launches are kept as packets with their arguments. An executable graph owns the memory from
 * which the device reads arguments. A launch of the graph writes each run into the queue at once,
 * and a graph of only kernels rings one doorbell. A change never writes arguments that a launch may
 * still read: it writes another copy of packets and arguments. The graph keeps this copy, so that
 * no caller waits.
 */
#ifndef UHAL_HSA_GRAPH_H
#define UHAL_HSA_GRAPH_H

#include "module.h"
#include "stream.h"

typedef enum uhal_hsa_step_kind {
    UHAL_HSA_STEP_LAUNCHES,
    UHAL_HSA_STEP_COPY_IN, /* from pinned memory */
    UHAL_HSA_STEP_COPY_OUT,
    UHAL_HSA_STEP_COPY,
    UHAL_HSA_STEP_FILL
} uhal_hsa_step_kind;

typedef struct uhal_hsa_step {
    uhal_hsa_step_kind kind;
    uint32_t first_launch;
    uint32_t launch_count;
    uint64_t destination;
    uint64_t source;
    size_t count;   /* bytes; elements of a fill */
    uint32_t value; /* of a fill */
    uint32_t width; /* bytes of an element */
} uhal_hsa_step;

/* Where a launch has its arguments. */
typedef struct uhal_hsa_graph_launch {
    const uhal_aql_kernel *kernel;
    size_t offset; /* into the graph's arguments, aligned */
    uint32_t room; /* bytes */
} uhal_hsa_graph_launch;

typedef struct uhal_hsa_graph {
    uhal_hsa_device *device;
    uhal_hsa_step *steps;
    uhal_hsa_graph_launch *launches;
    hsa_kernel_dispatch_packet_t *packets; /* of the launches, without addresses of arguments */
    unsigned char *arguments;
    size_t step_count, step_room;
    size_t launch_count, launch_room;
    size_t packet_room;
    size_t argument_bytes, argument_room;
} uhal_hsa_graph;

uhal_hsa_graph *uhal_hsa_graph_new(uhal_hsa_device *device);
void uhal_hsa_graph_delete(uhal_hsa_graph *graph);

/* These functions add a step at the end. A kernel with the hidden queue argument gets `queue`. */
int uhal_hsa_graph_add_launch(uhal_hsa_graph *graph, const uhal_aql_kernel *kernel,
                              const uhal_aql_geometry *geometry, void *const *parameters,
                              hsa_queue_t *queue);
int uhal_hsa_graph_add_step(uhal_hsa_graph *graph, const uhal_hsa_step *step);

#endif
