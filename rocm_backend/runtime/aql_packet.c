/* The bytes of a launch: its arguments, including hidden arguments, and its packet. */
#include "aql.h"

#include <string.h>

static void put(unsigned char *memory, uint32_t offset, const void *value, size_t size) {
    memcpy(memory + offset, value, size);
}

static void put_u16(unsigned char *memory, uint32_t offset, uint32_t value) {
    const uint16_t narrow = (uint16_t)value;
    put(memory, offset, &narrow, sizeof narrow);
}

static void write_hidden(hsa_queue_t *queue, const uhal_aql_geometry *geometry,
                         const uhal_aql_hidden *hidden, unsigned char *memory) {
    switch (hidden->kind) {
    case UHAL_AQL_BLOCK_COUNT_X:
    case UHAL_AQL_BLOCK_COUNT_Y:
    case UHAL_AQL_BLOCK_COUNT_Z:
        put(memory, hidden->offset, &geometry->grid[hidden->kind - UHAL_AQL_BLOCK_COUNT_X], 4);
        break;
    case UHAL_AQL_BLOCK_SIZE_X:
    case UHAL_AQL_BLOCK_SIZE_Y:
    case UHAL_AQL_BLOCK_SIZE_Z:
        put_u16(memory, hidden->offset, geometry->block[hidden->kind - UHAL_AQL_BLOCK_SIZE_X]);
        break;
    case UHAL_AQL_GRID_DIMENSIONS:
        put_u16(memory, hidden->offset, UHAL_AQL_DIMENSIONS);
        break;
    case UHAL_AQL_DYNAMIC_GROUP_BYTES:
        put(memory, hidden->offset, &geometry->shared_bytes, 4);
        break;
    case UHAL_AQL_QUEUE:
        put(memory, hidden->offset, &queue, 8);
        break;
    }
}

static void write_arguments(const uhal_aql_kernel *kernel, const uhal_aql_geometry *geometry,
                            void *const *parameters, hsa_queue_t *queue, unsigned char *memory) {
    memset(memory, 0, kernel->kernarg_bytes);
    for (uint32_t i = 0; i < kernel->parameter_count; ++i)
        put(memory, kernel->parameters[i].offset, parameters[i], kernel->parameters[i].size);
    for (uint32_t i = 0; i < kernel->hidden_count; ++i)
        write_hidden(queue, geometry, &kernel->hidden[i], memory);
}

static int fits(const uhal_aql_kernel *kernel, const uhal_aql_geometry *geometry) {
    for (int axis = 0; axis < UHAL_AQL_DIMENSIONS; ++axis) {
        const uint64_t items = (uint64_t)geometry->grid[axis] * geometry->block[axis];
        if (items == 0 || items > UINT32_MAX || geometry->block[axis] > UINT16_MAX)
            return 0;
    }
    return geometry->shared_bytes <= UINT32_MAX - kernel->group_bytes;
}

int uhal_aql_write(const uhal_aql_kernel *kernel, const uhal_aql_geometry *geometry,
                   void *const *parameters, hsa_queue_t *queue, unsigned char *kernarg,
                   hsa_kernel_dispatch_packet_t *packet) {
    if (!fits(kernel, geometry))
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    const uint32_t *grid = geometry->grid;
    const uint32_t *block = geometry->block;
    write_arguments(kernel, geometry, parameters, queue, kernarg);
    *packet = (hsa_kernel_dispatch_packet_t){
        .workgroup_size_x = (uint16_t)block[0],
        .workgroup_size_y = (uint16_t)block[1],
        .workgroup_size_z = (uint16_t)block[2],
        .grid_size_x = grid[0] * block[0],
        .grid_size_y = grid[1] * block[1],
        .grid_size_z = grid[2] * block[2],
        .private_segment_size = kernel->private_bytes,
        .group_segment_size = kernel->group_bytes + geometry->shared_bytes,
        .kernel_object = kernel->object,
        .kernarg_address = kernarg,
    };
    return 0;
}

int uhal_aql_asks_for_queue(const uhal_aql_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->hidden_count; ++i)
        if (kernel->hidden[i].kind == UHAL_AQL_QUEUE)
            return 1;
    return 0;
}

void uhal_aql_name_queue(const uhal_aql_kernel *kernel, hsa_queue_t *queue,
                         unsigned char *kernarg) {
    for (uint32_t i = 0; i < kernel->hidden_count; ++i)
        if (kernel->hidden[i].kind == UHAL_AQL_QUEUE)
            put(kernarg, kernel->hidden[i].offset, &queue, sizeof queue);
}
