/* DLPack's C structures, restated from its specification (dmlc/dlpack, version 1.1; the exchange
 * table is of 1.3).
 */
#ifndef UHAL_DLPACK_H
#define UHAL_DLPACK_H

#include <stdint.h>

enum { UHAL_DLPACK_MAJOR = 1, UHAL_DLPACK_MINOR = 1 };
enum { UHAL_DLPACK_READ_ONLY = 1, UHAL_DLPACK_COPIED = 2 };

typedef struct {
    int32_t device_type;
    int32_t device_id;
} uhal_dl_device;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} uhal_dl_dtype;

typedef struct {
    void *data;
    uhal_dl_device device;
    int32_t ndim;
    uhal_dl_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; null: C order */
    uint64_t byte_offset;
} uhal_dl_tensor;

typedef struct uhal_dl_managed {
    uhal_dl_tensor tensor;
    void *manager;
    void (*deleter)(struct uhal_dl_managed *self);
} uhal_dl_managed;

typedef struct uhal_dl_versioned {
    struct {
        uint32_t major;
        uint32_t minor;
    } version;
    void *manager;
    void (*deleter)(struct uhal_dl_versioned *self);
    uint64_t flags;
    uhal_dl_tensor tensor;
} uhal_dl_versioned;

/* The value of a type's `__dlpack_c_exchange_api__`: exchange without a capsule or Python call. The
 * object arguments are PyObject *; a result other than 0 has set a Python exception. */
typedef struct uhal_dl_exchange {
    struct {
        uint32_t major;
        uint32_t minor;
    } version;
    struct uhal_dl_exchange *previous; /* the exchange of an older major version */
    void *allocate;
    int (*take)(void *object, uhal_dl_versioned **out);
    int (*give)(uhal_dl_versioned *tensor, void **object);
    int (*look)(void *object, uhal_dl_tensor *out); /* owns nothing; may be null */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
} uhal_dl_exchange;

#endif
