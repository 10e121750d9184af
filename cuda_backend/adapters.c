/* Adapters for slots whose CUDA function has another prototype. */
#include "slot_adapters.h"

#include <string.h>

#include "abi.h"
#include "hot_table.h"

/* -- launch_ex over cuLaunchKernelEx ------------------------------------------------------------ */

typedef CUresult (*cuda_launch_kernel_ex)(const CUlaunchConfig *config, CUfunction function,
                                          void **parameters, void **extra);

static cuda_launch_kernel_ex cuda_launch_ex_target;

static CUlaunchAttribute *cuda_attribute(CUlaunchAttribute *attributes, CUlaunchConfig *config,
                                         CUlaunchAttributeID id) {
    CUlaunchAttribute *attribute = &attributes[config->numAttrs++];
    memset(attribute, 0, sizeof(*attribute));
    attribute->id = id;
    return attribute;
}

static int cuda_launch_ex(const struct uhal_launch_config *wanted, void *function,
                          void **parameters, void **extra) {
    CUlaunchAttribute attributes[3];
    CUlaunchConfig config;
    const int on = 1;
    memset(&config, 0, sizeof(config));
    config.gridDimX = wanted->grid[0];
    config.gridDimY = wanted->grid[1];
    config.gridDimZ = wanted->grid[2];
    config.blockDimX = wanted->block[0];
    config.blockDimY = wanted->block[1];
    config.blockDimZ = wanted->block[2];
    config.sharedMemBytes = wanted->shared_bytes;
    config.hStream = (CUstream)wanted->stream;
    config.attrs = attributes;
    if (wanted->cluster[0] != 0) {
        memcpy(cuda_attribute(attributes, &config, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)->value,
               wanted->cluster, sizeof(wanted->cluster));
    }
    if (wanted->cooperative) {
        memcpy(cuda_attribute(attributes, &config, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)->value, &on,
               sizeof(on));
    }
    if (wanted->has_priority) {
        memcpy(cuda_attribute(attributes, &config, CU_LAUNCH_ATTRIBUTE_PRIORITY)->value,
               &wanted->priority, sizeof(wanted->priority));
    }
    return cuda_launch_ex_target(&config, (CUfunction)function, parameters, extra);
}

/* -- graph_update_kernel over cuGraphExecKernelNodeSetParams ------------------------------------ */

typedef CUresult (*cuda_graph_exec_kernel_node_set_params)(
    CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *parameters);

static cuda_graph_exec_kernel_node_set_params cuda_graph_update_kernel_target;

static int cuda_graph_update_kernel(void *executable, void *node, void *function,
                                    unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                    unsigned int block_x, unsigned int block_y,
                                    unsigned int block_z, unsigned int shared_bytes,
                                    void **parameters) {
    /* Every driver supports this structure: it is older than CUDA 12 and has all fields. */
    const CUDA_KERNEL_NODE_PARAMS_v1 launch = {
        .func = (CUfunction)function,
        .gridDimX = grid_x,
        .gridDimY = grid_y,
        .gridDimZ = grid_z,
        .blockDimX = block_x,
        .blockDimY = block_y,
        .blockDimZ = block_z,
        .sharedMemBytes = shared_bytes,
        .kernelParams = parameters,
    };
    return cuda_graph_update_kernel_target((CUgraphExec)executable, (CUgraphNode)node, &launch);
}

/* -- by name ------------------------------------------------------------------------------------ */

uhal_any_function uhal_slot_adapter(const char *name, uhal_any_function vendor) {
    UHAL_SLOT_ADAPTER(cuda_launch_ex, cuda_launch_ex_target)
    UHAL_SLOT_ADAPTER(cuda_graph_update_kernel, cuda_graph_update_kernel_target)
    return NULL;
}
