/* Executable graphs. Each executable graph has one lock, which a launch holds until its packets are
 * in the queue. */
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "fault.h"

/* One copy of packets and arguments. */
typedef struct version {
    struct version *next;
    hsa_kernel_dispatch_packet_t *packets;
    unsigned char *kernarg;
    const hsa_queue_t *named; /* the queue in hidden queue arguments */
    uhal_hsa_queue *queue;    /* of its last launch; NULL: never launched */
    uint64_t read_until;      /* nothing reads the version after this number of launches */
    uint32_t *stale;          /* launches that were changed later, in another version */
    uint32_t stale_count;
    unsigned char is_stale[]; /* of each launch */
} version;

typedef struct executable {
    uhal_hsa_device *device;
    uhal_hsa_step *steps;
    size_t step_count;
    uhal_hsa_graph_launch *launches;
    size_t launch_count;
    size_t argument_bytes;
    int asks_for_queue;  /* 1: a kernel has the hidden queue argument */
    atomic_uint holders; /* holders: the handle, and a queue whose launch outlives the handle */

    pthread_mutex_t lock; /* over the fields below */
    version *versions;
    version *newest;
    uhal_hsa_queue *queue; /* of the last launch; NULL: none yet */
    uint64_t upto;         /* its packets */
} executable;

/* -- versions ---------------------------------------------------------------------------------- */

static void delete_version(version *old) {
    free(old->packets);
    free(old->stale);
    if (old->kernarg != NULL)
        uhal_hsa.hsa.hsa_amd_memory_pool_free(old->kernarg);
    free(old);
}

static int make_version(executable *graph, const hsa_kernel_dispatch_packet_t *packets,
                        const unsigned char *arguments, version **made) {
    const size_t count = graph->launch_count;
    version *fresh = calloc(1, sizeof *fresh + count);
    if (fresh == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    fresh->packets = malloc((count + 1) * sizeof *packets);
    fresh->stale = malloc((count + 1) * sizeof *fresh->stale);
    int status = fresh->packets == NULL || fresh->stale == NULL
                     ? HSA_STATUS_ERROR_OUT_OF_RESOURCES
                     : (int)uhal_hsa_kernarg_allocate(
                           graph->device, graph->argument_bytes + UHAL_AQL_KERNARG_ALIGNMENT,
                           (void **)&fresh->kernarg);
    if (status != 0) {
        delete_version(fresh);
        return status;
    }
    if (count > 0) {
        memcpy(fresh->packets, packets, count * sizeof *packets);
        memcpy(fresh->kernarg, arguments, graph->argument_bytes);
    }
    for (size_t i = 0; i < count; ++i)
        fresh->packets[i].kernarg_address = fresh->kernarg + graph->launches[i].offset;
    fresh->next = graph->versions;
    graph->versions = fresh;
    *made = fresh;
    return 0;
}

/* Returns whether a launch may still read the version. */
static int in_use(const version *one) {
    return one->queue != NULL && uhal_hsa_queue_launches_done(one->queue) < one->read_until;
}

/* Copies later changes of the newest version into a version. */
static void catch_up(const executable *graph, version *behind) {
    const version *newest = graph->newest;
    for (; behind->stale_count > 0; behind->stale_count -= 1) {
        const uint32_t i = behind->stale[behind->stale_count - 1];
        const size_t offset = graph->launches[i].offset;
        behind->packets[i] = newest->packets[i];
        behind->packets[i].kernarg_address = behind->kernarg + offset;
        memcpy(behind->kernarg + offset, newest->kernarg + offset, graph->launches[i].room);
        behind->is_stale[i] = 0;
        behind->named = NULL;
    }
}

/* Makes the newest version writable. */
static int make_changeable(executable *graph) {
    if (!in_use(graph->newest))
        return 0;
    version *spare = graph->versions;
    while (spare != NULL && in_use(spare))
        spare = spare->next;
    if (spare != NULL) {
        catch_up(graph, spare);
    } else {
        const version *newest = graph->newest;
        const int status = make_version(graph, newest->packets, newest->kernarg, &spare);
        if (status != 0)
            return status;
    }
    graph->newest = spare;
    return 0;
}

/* -- life -------------------------------------------------------------------------------------- */

static void drop(void *object) {
    executable *graph = object;
    if (atomic_fetch_sub(&graph->holders, 1) != 1)
        return;
    while (graph->versions != NULL) {
        version *old = graph->versions;
        graph->versions = old->next;
        delete_version(old);
    }
    pthread_mutex_destroy(&graph->lock);
    free(graph->steps);
    free(graph->launches);
    free(graph);
}

uhalHsaResult uhalHsaGraphInstantiate(void **handle, void *recorded) {
    const uhal_hsa_graph *from = recorded;
    int status = uhal_hsa_check(from->device);
    if (status != 0)
        return status;
    executable *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    graph->device = from->device;
    graph->step_count = from->step_count;
    graph->launch_count = from->launch_count;
    graph->argument_bytes = from->argument_bytes;
    graph->steps = malloc((from->step_count + 1) * sizeof *graph->steps);
    graph->launches = malloc((from->launch_count + 1) * sizeof *graph->launches);
    atomic_init(&graph->holders, 1);
    pthread_mutex_init(&graph->lock, NULL);
    if (graph->steps == NULL || graph->launches == NULL) {
        drop(graph);
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    if (from->step_count > 0)
        memcpy(graph->steps, from->steps, from->step_count * sizeof *graph->steps);
    if (from->launch_count > 0)
        memcpy(graph->launches, from->launches, from->launch_count * sizeof *graph->launches);
    for (size_t i = 0; i < from->launch_count; ++i)
        graph->asks_for_queue |= uhal_aql_asks_for_queue(from->launches[i].kernel);
    status = make_version(graph, from->packets, from->arguments, &graph->newest);
    if (status != 0) {
        drop(graph);
        return status;
    }
    atomic_fetch_add(&uhal_hsa.live[UHAL_HSA_KIND_GRAPH_EXEC], 1);
    *handle = graph;
    return 0;
}

/* A launch of the graph may be pending. Then the queue releases the graph after this launch. */
uhalHsaResult uhalHsaGraphExecDestroy(void *handle) {
    executable *graph = handle;
    if (graph->queue != NULL && uhal_hsa_queue_completed(graph->queue) < graph->upto) {
        atomic_fetch_add(&graph->holders, 1);
        uhal_hsa_queue_hold(graph->queue, graph->upto, drop, graph);
    }
    atomic_fetch_sub(&uhal_hsa.live[UHAL_HSA_KIND_GRAPH_EXEC], 1);
    drop(graph);
    return 0;
}

/* -- launch and change ------------------------------------------------------------------------- */

/* Orders the stream behind the last launch. */
static int wait_for_last(const executable *graph, uhal_hsa_stream *stream) {
    uhal_hsa_mark *mark;
    if (graph->queue == NULL)
        return 0;
    if (graph->queue == stream->queue) {
        uhal_hsa_stream_advance(stream, graph->upto);
        return 0;
    }
    const int status = uhal_hsa_queue_cover(graph->queue, graph->upto, &mark);
    return status != 0 ? status : uhal_hsa_stream_await(stream, mark);
}

/* Sets the hidden queue arguments to this queue. */
static int name_queue(executable *graph, hsa_queue_t *queue) {
    if (!graph->asks_for_queue || graph->newest->named == queue)
        return 0;
    const int status = make_changeable(graph);
    if (status != 0)
        return status;
    version *newest = graph->newest;
    for (size_t i = 0; i < graph->launch_count; ++i)
        uhal_aql_name_queue(graph->launches[i].kernel, queue,
                            newest->kernarg + graph->launches[i].offset);
    newest->named = queue;
    return 0;
}

/* Submits the packets of one step. Sets `before` and `behind` to the queue's launch counts before
 * the step's first launch and after its last launch. */
static int submit(const executable *graph, const uhal_hsa_step *step, uhal_hsa_stream *stream,
                  uint64_t *before, uint64_t *behind) {
    uhal_hsa_queue *queue = stream->queue;
    uhal_aql_position position;
    switch (step->kind) {
    case UHAL_HSA_STEP_COPY_IN:
        return uhalHsaMemcpyHtoDAsync(step->destination, (void *)(uintptr_t)step->source,
                                      step->count, stream);
    case UHAL_HSA_STEP_COPY_OUT:
        return uhalHsaMemcpyDtoHAsync((void *)(uintptr_t)step->destination, step->source,
                                      step->count, stream);
    case UHAL_HSA_STEP_COPY:
        return uhalHsaMemcpyDtoDAsync(step->destination, step->source, step->count, stream);
    case UHAL_HSA_STEP_FILL:
        if (step->width == 1)
            return uhalHsaMemsetD8Async(step->destination, (unsigned char)step->value, step->count,
                                        stream);
        if (step->width == 2)
            return uhalHsaMemsetD16Async(step->destination, (unsigned short)step->value,
                                         step->count, stream);
        return uhalHsaMemsetD32Async(step->destination, step->value, step->count, stream);
    case UHAL_HSA_STEP_LAUNCHES:
        break;
    }
    const int status = uhal_aql_replay(&queue->writer, graph->newest->packets + step->first_launch,
                                       step->launch_count, queue->progress, &position);
    if (status != 0)
        return uhal_hsa_told(queue->device, status);
    *before = position.launch;
    *behind = position.launch + 1;
    uhal_hsa_stream_advance(stream, position.index + 1);
    return 0;
}

static int launch(executable *graph, uhal_hsa_stream *stream) {
    uhal_hsa_queue *queue = stream->queue;
    int status = wait_for_last(graph, stream);
    if (status == 0)
        status = name_queue(graph, queue->native);
    if (status != 0)
        return status;
    /* A graph without kernels is done when the launches before it are done. */
    uint64_t first = uhal_aql_launches(&queue->writer);
    uint64_t behind = first;
    int launched = 0;
    for (size_t i = 0; i < graph->step_count && status == 0; ++i) {
        uint64_t before = first;
        status = submit(graph, &graph->steps[i], stream, &before, &behind);
        if (graph->steps[i].kind == UHAL_HSA_STEP_LAUNCHES && !launched) {
            first = before;
            launched = 1;
        }
    }
    /* Note this also after a partial failure, because the device still reads the submitted
     * packets. */
    graph->queue = queue;
    graph->upto = atomic_load(&stream->upto);
    graph->newest->queue = queue;
    graph->newest->read_until = behind;
    uhal_hsa_stream_count(stream, first, behind);
    return status;
}

uhalHsaResult uhalHsaGraphLaunch(void *handle, void *into) {
    executable *graph = handle;
    uhal_hsa_stream *stream = into;
    int status = uhal_hsa_check(graph->device);
    if (status != 0)
        return status;
    if (stream->queue->device != graph->device)
        return HSA_STATUS_ERROR_INVALID_AGENT;
    if (uhal_hsa_capturing(stream))
        return uhal_hsa_capture_refuse(stream, "the launch of a graph");
    pthread_mutex_lock(&graph->lock);
    status = launch(graph, stream);
    pthread_mutex_unlock(&graph->lock);
    return status;
}

static int change(executable *graph, uint32_t i, const uhal_aql_kernel *kernel,
                  const uhal_aql_geometry *geometry, void *const *parameters) {
    uhal_hsa_graph_launch *changed = &graph->launches[i];
    if (kernel->kernarg_bytes > changed->room)
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    int status = make_changeable(graph);
    if (status != 0)
        return status;
    version *newest = graph->newest;
    hsa_queue_t *queue = (hsa_queue_t *)(uintptr_t)newest->named;
    status = uhal_aql_write(kernel, geometry, parameters, queue, newest->kernarg + changed->offset,
                            &newest->packets[i]);
    if (status != 0)
        return status;
    changed->kernel = kernel;
    if (!graph->asks_for_queue && uhal_aql_asks_for_queue(kernel)) {
        graph->asks_for_queue = 1;
        newest->named = NULL;
    }
    for (version *other = graph->versions; other != NULL; other = other->next)
        if (other != newest && !other->is_stale[i]) {
            other->is_stale[i] = 1;
            other->stale[other->stale_count++] = i;
        }
    return 0;
}

uhalHsaResult uhalHsaGraphExecKernelNodeSetParams(void *handle, void *node, void *function,
                                                  unsigned int grid_x, unsigned int grid_y,
                                                  unsigned int grid_z, unsigned int block_x,
                                                  unsigned int block_y, unsigned int block_z,
                                                  unsigned int shared_bytes, void **parameters) {
    executable *graph = handle;
    const uhal_hsa_kernel *kernel = function;
    const uhal_aql_geometry geometry = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    int status = uhal_hsa_check(graph->device);
    if (status != 0)
        return status;
    pthread_mutex_lock(&graph->lock);
    status = change(graph, (uint32_t)((uintptr_t)node - 1), &kernel->aql, &geometry, parameters);
    pthread_mutex_unlock(&graph->lock);
    return status;
}
