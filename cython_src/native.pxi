# C declarations for the lane: the hot table and the small headers beside this file.

from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t, UINT32_MAX,
)
from libc.stdlib cimport calloc, free as c_free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset
from libc.math cimport fabs, isfinite
from libc.float cimport FLT_MAX
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.long cimport PyLong_CheckExact
from cpython.exc cimport (
    PyErr_CheckSignals, PyErr_SetInterrupt, PyErr_SetObject, PyErr_WriteUnraisable,
)
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.pyport cimport PY_SSIZE_T_MAX
from cpython.pythread cimport PyThread_get_thread_ident
from cpython.unicode cimport PyUnicode_CheckExact
from cpython.pycapsule cimport (
    PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName,
)
cimport cython


include "hot_table.pxi"    # made of hot_table.h by the build (build_support/lane_slots.py)


cdef extern from *:
    """
    #define UHAL_SLOT_ROW(need, name, parameters) {#name, #need, #parameters},
    static const struct uhal_slot_row { const char *name; const char *need; const char *prototype; }
        uhal_slot_rows[] = { UHAL_SLOTS(UHAL_SLOT_ROW) };
    #undef UHAL_SLOT_ROW
    enum { UHAL_SLOT_COUNT = sizeof(uhal_slot_rows) / sizeof(uhal_slot_rows[0]) };
    /* Every slot is one function pointer and the slots come first, in the order of the list. */
    _Static_assert(offsetof(uhal_hot_table, not_ready) == UHAL_SLOT_COUNT * sizeof(void *),
                   "the hot table begins with its slots");
    """
    struct uhal_slot_row:
        const char *name
        const char *need
        const char *prototype
    const uhal_slot_row uhal_slot_rows[1]
    enum:
        UHAL_SLOT_COUNT


cdef extern from "device/state_word.h":
    enum:
        UHAL_STATE_LOST
        UHAL_STATE_CAPTURING
        UHAL_STATE_BLOCKING
        UHAL_STATE_MARKING
        UHAL_STATE_FORKED
        UHAL_STATE_CLOSED
        UHAL_STATE_BARRED
        UHAL_STATE_PROFILED
        UHAL_STATE_PYTHON
        UHAL_STATE_OBSERVED
        UHAL_STATE_WATCHED
        UHAL_STATE_REFUSES
        UHAL_STATE_DIVERTS
    ctypedef struct uhal_state:
        uint32_t word
    uhal_state *uhal_state_new()
    void uhal_state_delete(uhal_state *state)
    int uhal_state_watch_forks()
    unsigned int uhal_fork_count


cdef extern from "float_control.h":
    ctypedef struct uhal_float_control:
        pass
    uhal_float_control uhal_float_control_now()
    void uhal_float_control_set(uhal_float_control control)


cdef extern from "streams/awaiter.h":
    ctypedef int (*uhal_handle_call)(void *handle) noexcept nogil
    ctypedef struct uhal_awaiter:
        pass
    int uhal_look(uhal_handle_call query, void *handle, int not_ready) nogil
    int uhal_look_now_and_then(
        uhal_handle_call query, void *handle, int not_ready, uhal_go_on go_on, void *user_data
    ) nogil
    uhal_awaiter *uhal_awaiter_take()
    void uhal_awaiter_give(uhal_awaiter *awaiter)
    int uhal_awaiter_ended(uhal_awaiter *awaiter)
    int uhal_awaiter_wait(
        uhal_awaiter *awaiter, const uhal_hot_table *table, void *context, void *event,
        uhal_go_on go_on, void *user_data, int *status
    ) nogil


cdef extern from "streams/dispatcher.h":
    ctypedef struct uhal_callback:
        PyObject *function
        PyObject *arguments
    uhal_callback *uhal_callback_new(PyObject *function, PyObject *arguments)
    void uhal_callback_delete(uhal_callback *callback)
    void uhal_callback_post(void *user_data) noexcept nogil
    uhal_callback *uhal_callback_take() nogil
    void uhal_callback_reset()


cdef extern from "launch/callsite.h":
    PyObject *uhal_callsite(int *offset)


cdef extern from "launch/ledger.h":
    enum:
        UHAL_LEDGER_LENGTH
        UHAL_LEDGER_BYTES
    ctypedef struct uhal_launch_record:
        uint64_t ticket
        PyObject *kernel
        PyObject *code
        int instruction_offset
        unsigned int geometry[6]
        unsigned int shared_bytes
        unsigned int argument_bytes
        unsigned char arguments[1]
    ctypedef struct uhal_ledger:
        uint64_t count
        uhal_launch_record records[1]
    uhal_ledger *uhal_ledger_new()
    void uhal_ledger_delete(uhal_ledger *ledger)
    void uhal_ledger_write(uhal_ledger *ledger, uint64_t ticket, PyObject *kernel, PyObject *code,
                           int instruction_offset, const unsigned int *geometry,
                           unsigned int shared_bytes, const void *arguments,
                           size_t argument_bytes)


cdef extern from "launch/checked.h":
    enum: UHAL_CHECKED

cdef extern from "launch/compact_int.h":
    bint uhal_compact_int(PyObject *object, long long *value) noexcept

cdef extern from "launch/slot_maker.h":
    Py_ssize_t uhal_slot_offset(object attribute)
    object uhal_make_with_slots(
        object type, PyObject **values, const Py_ssize_t *offsets, Py_ssize_t count
    )


cdef extern from "launch/numpy_scalar.h":
    int uhal_numpy_scalar(PyObject *object, char code, void *out)


cdef extern from "launch/vectorcall.h":
    ctypedef PyObject *(*uhal_vectorcall)(PyObject *, PyObject **, size_t, PyObject *)
    void uhal_enable_vectorcall(object type, Py_ssize_t offset)
    Py_ssize_t PyVectorcall_NARGS(size_t flags)
    bint PyObject_TypeCheck(PyObject *object, PyTypeObject *type)
    void uhal_make_methods(object type)
    int uhal_add_attributes(object type, dict attributes) except -1
    ctypedef PyObject *(*newfunc)(PyTypeObject *, PyObject *, PyObject *) except NULL
    void uhal_refuse_new(object type, newfunc refuse)
    bint PyType_IsSubtype(PyTypeObject *type, PyTypeObject *base)
    bint Py_IS_TYPE(PyObject *object, PyTypeObject *type)
    PyTypeObject *Py_TYPE(PyObject *object)
    object PyMethod_New(object function, object instance)
    object PyObject_Vectorcall(object callee, PyObject **given, size_t flags, PyObject *keywords)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow)
    unsigned long long PyLong_AsUnsignedLongLong(object value) except? 0xFFFFFFFFFFFFFFFF
    double PyLong_AsDouble(object value) except? -1.0
    PyObject *Py_True
    PyObject *Py_False
    PyObject *Py_None
    PyTypeObject PyList_Type
    PyTypeObject PyLong_Type
    PyTypeObject PySlice_Type
    PyTypeObject PyTuple_Type
    ctypedef struct PySliceObject:
        PyObject *start
        PyObject *stop
        PyObject *step


cdef extern from "launch/vectorcall.h":
    const char *LAUNCH_DOC "uhal_launch_doc"
    PyObject **tuple_items "uhal_tuple_items"(object tuple)
    ctypedef PyObject *(*PyCFunction)(PyObject *, PyObject *)
    ctypedef struct PyMethodDef:
        const char *ml_name
        PyCFunction ml_meth
        int ml_flags
        const char *ml_doc
    int METH_FASTCALL
    int METH_KEYWORDS
    object PyCFunction_NewEx(PyMethodDef *method, PyObject *self, object module)


cdef extern from "Python.h":
    ctypedef struct PyCodeObject:
        PyObject *co_filename
    int Py_IsInitialized() nogil
    int PyBuffer_FillInfo(
        Py_buffer *view, object exporter, void *memory, Py_ssize_t bytes, int readonly, int flags
    ) except -1
