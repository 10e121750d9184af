/* The value of a one-digit Python int, the usual case, without a call. */
#ifndef UHAL_COMPACT_INT_H
#define UHAL_COMPACT_INT_H

#include <Python.h>
#if PY_VERSION_HEX < 0x030B0000
#include <longintrepr.h>
#endif

/* Returns 1 and sets `value`, or 0 for an int of more digits. `object` is exactly an int. */
static inline int uhal_compact_int(PyObject *object, long long *value) {
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Long_IsCompact((PyLongObject *)object)) {
        return 0;
    }
    *value = PyUnstable_Long_CompactValue((PyLongObject *)object);
#else
    Py_ssize_t size = Py_SIZE(object); /* digits, negative for a negative int */
    if (size < -1 || size > 1) {
        return 0;
    }
    *value = size * (long long)((PyLongObject *)object)->ob_digit[0];
#endif
    return 1;
}

#endif
