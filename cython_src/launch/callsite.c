/* See callsite.h. Each version of CPython keeps the running frame in a different place. */
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000
/* 3.11 has no accessor for the frame it executes; its layout is fixed for the life of 3.11. */
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#include <frameobject.h>
#endif

#include "callsite.h"

PyObject *uhal_callsite(int *offset) {
#if PY_VERSION_HEX >= 0x030C0000
#if PY_VERSION_HEX >= 0x030D0000
    struct _PyInterpreterFrame *frame = PyThreadState_Get()->current_frame;
#else
    struct _PyInterpreterFrame *frame = PyThreadState_Get()->cframe->current_frame;
#endif
    if (frame == NULL) {
        return NULL;
    }
    PyObject *code = PyUnstable_InterpreterFrame_GetCode(frame); /* a new reference */
    if (code == NULL || !PyCode_Check(code)) {
        Py_XDECREF(code);
        return NULL;
    }
    *offset = PyUnstable_InterpreterFrame_GetLasti(frame);
    Py_DECREF(code); /* the frame still holds the code object */
    return code;
#elif PY_VERSION_HEX >= 0x030B0000
    _PyInterpreterFrame *frame = PyThreadState_Get()->cframe->current_frame;
    if (frame == NULL) {
        return NULL;
    }
    *offset = _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT);
    return (PyObject *)frame->f_code;
#else
    PyFrameObject *frame = PyEval_GetFrame();
    if (frame == NULL) {
        return NULL;
    }
    *offset = frame->f_lasti * (int)sizeof(_Py_CODEUNIT);
    return (PyObject *)frame->f_code;
#endif
}
