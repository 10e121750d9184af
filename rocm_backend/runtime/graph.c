#include "graph.h"

#include <stdlib.h>
#include <string.h>

uhal_hsa_graph *uhal_hsa_graph_new(uhal_hsa_device *device) {
    uhal_hsa_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return NULL;
    graph->device = device;
    atomic_fetch_add(&uhal_hsa.live[UHAL_HSA_KIND_GRAPH], 1);
    return graph;
}

void uhal_hsa_graph_delete(uhal_hsa_graph *graph) {
    if (graph == NULL)
        return;
    free(graph->steps);
    free(graph->launches);
    free(graph->packets);
    free(graph->arguments);
    free(graph);
    atomic_fetch_sub(&uhal_hsa.live[UHAL_HSA_KIND_GRAPH], 1);
}

/* Makes room for `wanted` elements; without memory the array is unchanged. */
static int grow(void **array, size_t *room, size_t wanted, size_t element) {
    if (wanted <= *room)
        return 1;
    const size_t grown_room = wanted > 2 * *room ? wanted : 2 * *room;
    void *grown = realloc(*array, grown_room * element);
    if (grown == NULL)
        return 0;
    *array = grown;
    *room = grown_room;
    return 1;
}

int uhal_hsa_graph_add_step(uhal_hsa_graph *graph, const uhal_hsa_step *step) {
    if (!grow((void **)&graph->steps, &graph->step_room, graph->step_count + 1, sizeof *step))
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    graph->steps[graph->step_count++] = *step;
    return 0;
}

/* Adds the newest launch to the last step, or to a new step. */
static int add_to_run(uhal_hsa_graph *graph) {
    uhal_hsa_step *last = graph->step_count > 0 ? &graph->steps[graph->step_count - 1] : NULL;
    if (last != NULL && last->kind == UHAL_HSA_STEP_LAUNCHES) {
        last->launch_count += 1;
        return 0;
    }
    const uhal_hsa_step run = {.kind = UHAL_HSA_STEP_LAUNCHES,
                               .first_launch = (uint32_t)graph->launch_count,
                               .launch_count = 1};
    return uhal_hsa_graph_add_step(graph, &run);
}

int uhal_hsa_graph_add_launch(uhal_hsa_graph *graph, const uhal_aql_kernel *kernel,
                              const uhal_aql_geometry *geometry, void *const *parameters,
                              hsa_queue_t *queue) {
    const uint32_t unit = UHAL_AQL_KERNARG_ALIGNMENT;
    const uint32_t bytes = (kernel->kernarg_bytes + unit - 1) / unit * unit;
    const size_t index = graph->launch_count;
    const size_t offset = graph->argument_bytes;
    if (!grow((void **)&graph->launches, &graph->launch_room, index + 1, sizeof *graph->launches) ||
        !grow((void **)&graph->packets, &graph->packet_room, index + 1, sizeof *graph->packets) ||
        !grow((void **)&graph->arguments, &graph->argument_room, offset + bytes, 1))
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    int status = uhal_aql_write(kernel, geometry, parameters, queue, graph->arguments + offset,
                                &graph->packets[index]);
    if (status == 0)
        status = add_to_run(graph);
    if (status != 0)
        return status;
    graph->launches[index] = (uhal_hsa_graph_launch){kernel, offset, bytes};
    graph->launch_count += 1;
    graph->argument_bytes += bytes;
    return 0;
}

/* -- for callers ------------------------------------------------------------------------------- */

uhalHsaResult uhalHsaGraphGetKernels(void *handle, void **nodes, size_t *count) {
    const uhal_hsa_graph *graph = handle;
    *count = graph->launch_count;
    /* Counted from 1, so that no handle is null. */
    for (size_t i = 0; nodes != NULL && i < graph->launch_count; ++i)
        nodes[i] = (void *)(uintptr_t)(i + 1);
    return 0;
}

uhalHsaResult uhalHsaGraphDestroy(void *graph) {
    uhal_hsa_graph_delete(graph);
    return 0;
}
