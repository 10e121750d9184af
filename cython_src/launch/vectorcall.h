/* Calling conventions that Cython lacks: vectorcall on extension types, and the docstring of the
 * only function that parses its own keywords.
 */
#ifndef UHAL_VECTORCALL_H
#define UHAL_VECTORCALL_H

#include <Python.h>

typedef PyObject *(*uhal_vectorcall)(PyObject *, PyObject **, size_t, PyObject *);

/* Make instances callable through the vectorcall pointer at `offset`. */
static inline void uhal_enable_vectorcall(PyObject *type_object, Py_ssize_t offset) {
    PyTypeObject *type = (PyTypeObject *)type_object;
    type->tp_vectorcall_offset = offset;
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    type->tp_call = PyVectorcall_Call;
    PyType_Modified(type);
}

/* Let instances serve as methods: an instance that is an attribute of a class gets the object as
 * first argument, without a bound method. The instance's `__get__` must do the same. */
static inline void uhal_make_methods(PyObject *type_object) {
    PyTypeObject *type = (PyTypeObject *)type_object;
    type->tp_flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
    PyType_Modified(type);
}

/* Add attributes to an extension type, except names that the type already has. */
static inline int uhal_add_attributes(PyObject *type_object, PyObject *attributes) {
    PyTypeObject *type = (PyTypeObject *)type_object;
    if (PyDict_Merge(type->tp_dict, attributes, 0) != 0) {
        return -1;
    }
    PyType_Modified(type);
    return 0;
}

/* Let only C make objects of a class: Python gets `refuse` in place of the class's own function. */
static inline void uhal_refuse_new(PyObject *type_object, newfunc refuse) {
    PyTypeObject *type = (PyTypeObject *)type_object;
    type->tp_new = refuse;
    type->tp_vectorcall = NULL;
    PyType_Modified(type);
}

#define uhal_tuple_items(tuple) (((PyTupleObject *)(tuple))->ob_item)

static const char uhal_launch_doc[] =
    "launch(function, grid=None, block=None, args=(), shared=0, stream=None, *, config=None)\n"
    "--\n\n"
    "Check the arguments and enqueue one kernel launch.\n\n"
    "Nothing native is called before the last check has passed.\n\n"
    "grid and block are an int or a tuple of one to three, in blocks and threads; shared is\n"
    "dynamic shared memory in bytes; stream defaults to the device's own. config, a\n"
    "LaunchConfig, stands for all three of grid, block and shared; an empty one launches\n"
    "nothing.\n\n"
    "Raises ArgumentTypeError (count, kind, dtype), ArgumentValueError (range, geometry) or\n"
    "InvalidHandleError (closed or foreign objects). Any thread may launch.";

#endif
