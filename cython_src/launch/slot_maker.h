/* Objects of Python classes with __slots__, made and filled without asking Python. */
#ifndef UHAL_SLOT_MAKER_H
#define UHAL_SLOT_MAKER_H

#include <Python.h>
#include <structmember.h>

/* The offset of a slot in an object; -1 for a class attribute that is not a slot. */
static inline Py_ssize_t uhal_slot_offset(PyObject *attribute) {
    if (!Py_IS_TYPE(attribute, &PyMemberDescr_Type))
        return -1;
    PyMemberDef *member = ((PyMemberDescrObject *)attribute)->d_member;
    return member->type == T_OBJECT_EX && !(member->flags & READONLY) ? member->offset : -1;
}

/* A new object with `count` slots set, or NULL with an exception. */
static inline PyObject *uhal_make_with_slots(PyObject *type_object, PyObject **values,
                                             const Py_ssize_t *offsets, Py_ssize_t count) {
    PyTypeObject *type = (PyTypeObject *)type_object;
    PyObject *made = type->tp_alloc(type, 0);
    if (made == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < count; ++index) {
        Py_INCREF(values[index]);
        *(PyObject **)((char *)made + offsets[index]) = values[index];
    }
    return made;
}

#endif
