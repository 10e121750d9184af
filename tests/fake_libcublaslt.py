"""Builds a library with cuBLASLt's interface that multiplies on the CPU.

The library accesses the device's memory through the driver, in the given stream's order, and
follows the given descriptions. `FAKE_CUBLASLT` makes the library refuse a handle (`refuse`) or
return wrong results (`wrong`). With `none` the library has no algorithm; with `only aligned` it has
no algorithm for operands that are not aligned to 16 bytes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_SOURCE = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include "cublaslt_abi.h"

struct cublasLtContext { int unused; };
struct cublasLtMatmulDescOpaque { int transposed[2]; cublasComputeType_t compute; };
struct cublasLtMatrixLayoutOpaque {
    cudaDataType_t type; uint64_t rows, columns; int64_t pitch; int32_t batch; int64_t offset;
};
struct cublasLtMatmulPreferenceOpaque { uint32_t alignment[4]; uint64_t workspace; };

long fake_live, fake_products, fake_plans;
uint32_t fake_alignment[4];

static int told(const char *what) {
    const char *mode = getenv("FAKE_CUBLASLT");
    return mode && !strcmp(mode, what);
}
#define CREATE(target) (*(target) = calloc(1, sizeof **(target)), ++fake_live, 0)
#define DESTROY(target) (free(target), --fake_live, 0)

size_t cublasLtGetVersion(void) { return 130000; }
const char *cublasLtGetStatusString(cublasStatus_t status) { (void)status; return "fake"; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
    return told("refuse") ? CUBLAS_STATUS_NOT_INITIALIZED : CREATE(out);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return DESTROY(handle); }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    CREATE(out);
    (*out)->compute = compute;
    return (compute == CUBLAS_COMPUTE_64F) == (scale == CUDA_R_64F) ? 0 : 7;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t one) { return DESTROY(one); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t one, int attribute,
                                              const void *value, size_t size) {
    const int which = attribute - CUBLASLT_MATMUL_DESC_TRANSA;
    if (which < 0 || which > 1 || size != 4)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&one->transposed[which], value, 4);
    return 0;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t pitch) {
    CREATE(out);
    **out = (struct cublasLtMatrixLayoutOpaque){type, rows, columns, pitch, 1, 0};
    return pitch < (int64_t)rows ? CUBLAS_STATUS_INVALID_VALUE : 0;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t one) { return DESTROY(one); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t one, int attribute,
                                                const void *value, size_t size) {
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && size == 4)
        memcpy(&one->batch, value, 4);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && size == 8)
        memcpy(&one->offset, value, 8);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return 0;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    return CREATE(out);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t one) {
    return DESTROY(one);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t one, int attribute,
                                                    const void *value, size_t size) {
    const int which = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == 8)
        memcpy(&one->workspace, value, 8);
    else if (which >= 0 && which < 4 && size == 4)
        memcpy(&one->alignment[which], value, 4);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return 0;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t one, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t *out,
    int *count) {
    (void)handle, (void)one, (void)a, (void)b, (void)c, (void)d;
    *count = !told("none");
    if (told("only aligned") && preference->alignment[1] < 16)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (wanted < 1 || preference->workspace < 4096)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(fake_alignment, preference->alignment, sizeof fake_alignment);
    ++fake_plans;
    out->workspaceSize = 4096;
    out->algo.data[0] = 42;
    return 0;
}

static double get(const void *values, uint64_t index, cudaDataType_t type) {
    uint32_t bits;
    float single;
    switch (type) {
    case CUDA_R_64F: return ((const double *)values)[index];
    case CUDA_R_32F: return ((const float *)values)[index];
    case CUDA_R_16F: return ((const _Float16 *)values)[index];
    default:
        bits = (uint32_t)((const uint16_t *)values)[index] << 16;
        memcpy(&single, &bits, 4);
        return single;
    }
}
static void put(void *values, uint64_t index, cudaDataType_t type, double value) {
    const float single = value;
    uint32_t bits;
    switch (type) {
    case CUDA_R_64F: ((double *)values)[index] = value; return;
    case CUDA_R_32F: ((float *)values)[index] = single; return;
    case CUDA_R_16F: ((_Float16 *)values)[index] = (_Float16)value; return;
    default:
        memcpy(&bits, &single, 4);
        ((uint16_t *)values)[index] = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    }
}
static size_t width(cudaDataType_t type) {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}
static uint64_t extent(cublasLtMatrixLayout_t one) {
    return (one->batch - 1) * one->offset + (one->columns - 1) * one->pitch + one->rows;
}
static int (*from_device)(void *, uint64_t, size_t, void *);
static int (*to_device)(uint64_t, const void *, size_t, void *);
static int (*wait_for)(void *);

static void *fetched(uint64_t address, cublasLtMatrixLayout_t one, void *stream) {
    void *values = malloc(extent(one) * width(one->type));
    from_device(values, address, extent(one) * width(one->type), stream);
    return values;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t one, const void *alpha,
                              uint64_t a_at, cublasLtMatrixLayout_t a, uint64_t b_at,
                              cublasLtMatrixLayout_t b, const void *beta, uint64_t c_at,
                              cublasLtMatrixLayout_t c, uint64_t d_at, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, uint64_t workspace, size_t bytes,
                              cudaStream_t stream) {
    const int doubles = one->compute == CUBLAS_COMPUTE_64F;
    const double factor = doubles ? *(const double *)alpha : *(const float *)alpha;
    const double kept = doubles ? *(const double *)beta : *(const float *)beta;
    void *driver = dlopen(getenv("UHAL_CUDA_LIBRARY"), RTLD_NOW);
    const uint64_t depth = one->transposed[0] ? a->rows : a->columns;
    (void)handle, (void)c_at, (void)c;
    from_device = (int (*)(void *, uint64_t, size_t, void *))dlsym(driver, "cuMemcpyDtoHAsync_v2");
    to_device =
        (int (*)(uint64_t, const void *, size_t, void *))dlsym(driver, "cuMemcpyHtoDAsync_v2");
    wait_for = (int (*)(void *))dlsym(driver, "cuStreamSynchronize");
    if (kept != 0 || algo->data[0] != 42 || !workspace || bytes != 4096)
        return CUBLAS_STATUS_INVALID_VALUE;
    void *left = fetched(a_at, a, stream), *right = fetched(b_at, b, stream);
    void *result = fetched(d_at, d, stream);
    wait_for(stream);
    for (int32_t batch = 0; batch < d->batch; ++batch)
        for (uint64_t i = 0; i < d->rows; ++i)
            for (uint64_t j = 0; j < d->columns; ++j) {
                double sum = told("wrong");
                for (uint64_t l = 0; l < depth; ++l) {
                    const uint64_t x = one->transposed[0] ? i * a->pitch + l : l * a->pitch + i;
                    const uint64_t y = one->transposed[1] ? l * b->pitch + j : j * b->pitch + l;
                    sum += get(left, batch * a->offset + x, a->type) *
                           get(right, batch * b->offset + y, b->type);
                }
                put(result, batch * d->offset + j * d->pitch + i, d->type, factor * sum);
            }
    to_device(d_at, result, extent(d) * width(d->type), stream);
    wait_for(stream);
    free(left), free(right), free(result);
    ++fake_products;
    return 0;
}
"""


def build(folder: Path) -> Path:
    """Compile the library into a folder, with the prototypes of our header."""
    source, library = folder / "cublaslt.c", folder / "libcublasLt.so.13"
    source.write_text(_SOURCE, encoding="utf-8")
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        f"-I{ROOT / 'ubridge' / 'prepare' / 'matmul'}",
        str(source),
    ]
    subprocess.run([*command, "-o", str(library), "-ldl"], check=True)
    return library
