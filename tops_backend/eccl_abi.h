/* The part of Enflame's collective library that uhal calls, restated from its public header 3.1.0.
 * uhal/abi.py reads it; it keeps to the same subset of C as abi.h.
 */
#ifndef UHAL_ECCL_ABI_H
#define UHAL_ECCL_ABI_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct itopsStream_t *topsStream_t;
typedef struct ecclComm *ecclComm_t;

typedef struct ecclUniqueId {
    char internal[128];
} ecclUniqueId;

typedef enum ecclResult_t {
    ecclSuccess = 0,
    ecclUnhandledTopsError = 1,
    ecclSystemError = 2,
    ecclInternalError = 3,
    ecclInvalidArgument = 4,
    ecclInvalidUsage = 5,
    ecclRemoteError = 6,
    ecclInProgress = 7
} ecclResult_t;

typedef enum ecclRedOp_t {
    ecclSum = 0,
    ecclProd = 1,
    ecclMax = 2,
    ecclMin = 3,
    ecclAvg = 4
} ecclRedOp_t;

typedef enum ecclDataType_t {
    ecclInt8 = 0,
    ecclUint8 = 1,
    ecclInt32 = 2,
    ecclUint32 = 3,
    ecclInt64 = 4,
    ecclUint64 = 5,
    ecclFloat16 = 6,
    ecclFloat32 = 7,
    ecclFloat64 = 8,
    ecclBfloat16 = 9
} ecclDataType_t;

/* A version is 10000 * X + 100 * Y + Z. */
ecclResult_t ecclGetVersion(int *version);
ecclResult_t ecclGetUniqueId(ecclUniqueId *id);
ecclResult_t ecclCommInitRank(ecclComm_t *comm, int nranks, ecclUniqueId id, int rank);
ecclResult_t ecclCommDestroy(ecclComm_t comm);
ecclResult_t ecclCommAbort(ecclComm_t comm);
ecclResult_t ecclCommGetAsyncError(ecclComm_t comm, ecclResult_t *error);
const char *ecclGetErrorString(ecclResult_t result);
ecclResult_t ecclBroadcast(const void *send, void *recv, size_t count, ecclDataType_t type,
                           int root, ecclComm_t comm, topsStream_t stream);
ecclResult_t ecclAllReduce(const void *send, void *recv, size_t count, ecclDataType_t type,
                           ecclRedOp_t op, ecclComm_t comm, topsStream_t stream);
ecclResult_t ecclReduceScatter(const void *send, void *recv, size_t recvcount,
                               ecclDataType_t type, ecclRedOp_t op, ecclComm_t comm,
                               topsStream_t stream);
ecclResult_t ecclAllGather(const void *send, void *recv, size_t sendcount, ecclDataType_t type,
                           ecclComm_t comm, topsStream_t stream);
ecclResult_t ecclSend(const void *send, size_t count, ecclDataType_t type, int peer,
                      ecclComm_t comm, topsStream_t stream);
ecclResult_t ecclRecv(void *recv, size_t count, ecclDataType_t type, int peer, ecclComm_t comm,
                      topsStream_t stream);
ecclResult_t ecclGroupStart(void);
ecclResult_t ecclGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif
