/* A numpy scalar of exactly the parameter's type, read without a Python call. */
#ifndef UHAL_NUMPY_SCALAR_H
#define UHAL_NUMPY_SCALAR_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include <string.h>

#define UHAL_SCALAR(name)                                                                          \
    if (type == &Py##name##ArrType_Type) {                                                         \
        memcpy(out, &PyArrayScalar_VAL(object, name), sizeof(PyArrayScalar_VAL(object, name)));    \
        return 1;                                                                                  \
    }

/* Returns 1, with the bytes in `out`, if `object` is a numpy scalar of the dtype code
   (uhal/dtypes.py). */
static inline int uhal_numpy_scalar(PyObject *object, char code, void *out) {
    PyTypeObject *type = Py_TYPE(object);
    // clang-format off: a table, one line a type
    switch (code) {
    case '?':
        if (type == &PyBoolArrType_Type) {
            *(unsigned char *)out = PyArrayScalar_VAL(object, Bool) != 0;
            return 1;
        }
        return 0;
    case 'b': UHAL_SCALAR(Byte) return 0;
    case 'B': UHAL_SCALAR(UByte) return 0;
    case 'h': UHAL_SCALAR(Short) return 0;
    case 'H': UHAL_SCALAR(UShort) return 0;
    case 'i': UHAL_SCALAR(Int) return 0;
    case 'I': UHAL_SCALAR(UInt) return 0;
    /* if long and long long both have 64 bits, they are two numpy types with one meaning */
    case 'q': UHAL_SCALAR(LongLong) if (sizeof(long) == 8) { UHAL_SCALAR(Long) } return 0;
    case 'Q': UHAL_SCALAR(ULongLong) if (sizeof(long) == 8) { UHAL_SCALAR(ULong) } return 0;
    case 'n': UHAL_SCALAR(Int) UHAL_SCALAR(UInt) return 0;
    case 'N':
        UHAL_SCALAR(LongLong)
        UHAL_SCALAR(ULongLong)
        if (sizeof(long) == 8) { UHAL_SCALAR(Long) UHAL_SCALAR(ULong) }
        return 0;
    case 'e': UHAL_SCALAR(Half) return 0;
    case 'f': UHAL_SCALAR(Float) return 0;
    case 'd': UHAL_SCALAR(Double) return 0;
    default: return 0;
    }
    // clang-format on
}

#undef UHAL_SCALAR

#endif
