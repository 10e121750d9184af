// Functions that programs link against and that are not simulated: they exist and refuse.
#include "call.h"

extern "C" {

__attribute__((visibility("default"))) CUresult uhal_sim_unsimulated(void);

CUresult uhal_sim_unsimulated() {
    return cuda_sim::refuse(CUDA_ERROR_NOT_SUPPORTED, "this function is not simulated");
}

// Callers pass what arguments they like: none is looked at.
#define UNSIMULATED(symbol)                                                                        \
    __attribute__((visibility("default"), alias("uhal_sim_unsimulated"))) CUresult symbol(void);

UNSIMULATED(cuArray3DCreate_v2)
UNSIMULATED(cuArray3DGetDescriptor_v2)
UNSIMULATED(cuArrayCreate_v2)
UNSIMULATED(cuArrayDestroy)
UNSIMULATED(cuArrayGetDescriptor_v2)
UNSIMULATED(cuFuncSetSharedSize)
UNSIMULATED(cuGraphicsMapResources)
UNSIMULATED(cuGraphicsResourceGetMappedPointer_v2)
UNSIMULATED(cuGraphicsSubResourceGetMappedArray)
UNSIMULATED(cuGraphicsUnmapResources)
UNSIMULATED(cuGraphicsUnregisterResource)
UNSIMULATED(cuLaunch)
UNSIMULATED(cuLaunchGrid)
UNSIMULATED(cuLaunchGridAsync)
UNSIMULATED(cuLinkAddData_v2)
UNSIMULATED(cuLinkAddFile_v2)
UNSIMULATED(cuLinkComplete)
UNSIMULATED(cuLinkCreate_v2)
UNSIMULATED(cuLinkDestroy)
UNSIMULATED(cuMemAllocManaged)
UNSIMULATED(cuMemcpy3DAsync_v2)
UNSIMULATED(cuMemcpy3DPeer)
UNSIMULATED(cuMemcpy3DPeerAsync)
UNSIMULATED(cuMemcpy3D_v2)
UNSIMULATED(cuMemcpyAtoA_v2)
UNSIMULATED(cuMemcpyAtoD_v2)
UNSIMULATED(cuMemcpyAtoH_v2)
UNSIMULATED(cuMemcpyDtoA_v2)
UNSIMULATED(cuMemcpyHtoA_v2)
UNSIMULATED(cuModuleGetSurfRef)
UNSIMULATED(cuModuleGetTexRef)
UNSIMULATED(cuParamSetSize)
UNSIMULATED(cuParamSetTexRef)
UNSIMULATED(cuParamSetf)
UNSIMULATED(cuParamSeti)
UNSIMULATED(cuParamSetv)
UNSIMULATED(cuProfilerInitialize)
UNSIMULATED(cuProfilerStart)
UNSIMULATED(cuProfilerStop)
UNSIMULATED(cuStreamAttachMemAsync)
UNSIMULATED(cuSurfRefGetArray)
UNSIMULATED(cuSurfRefSetArray)
UNSIMULATED(cuTexRefCreate)
UNSIMULATED(cuTexRefDestroy)
UNSIMULATED(cuTexRefGetAddressMode)
UNSIMULATED(cuTexRefGetAddress_v2)
UNSIMULATED(cuTexRefGetArray)
UNSIMULATED(cuTexRefGetFilterMode)
UNSIMULATED(cuTexRefGetFlags)
UNSIMULATED(cuTexRefGetFormat)
UNSIMULATED(cuTexRefSetAddress2D_v3)
UNSIMULATED(cuTexRefSetAddressMode)
UNSIMULATED(cuTexRefSetAddress_v2)
UNSIMULATED(cuTexRefSetArray)
UNSIMULATED(cuTexRefSetFilterMode)
UNSIMULATED(cuTexRefSetFlags)
UNSIMULATED(cuTexRefSetFormat)
}
