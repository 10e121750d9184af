/* The call site of the current launch: the caller's code object and instruction offset.
 *
 * No frame object is made: it would keep the caller's locals alive, with buffers that the caller no
 * longer needs.
 */
#ifndef UHAL_CALLSITE_H
#define UHAL_CALLSITE_H

#include <Python.h>

/* Borrowed code object of the innermost Python frame on this thread, null when there is none.
 * *offset is in bytes, as PyCode_Addr2Line takes it. */
PyObject *uhal_callsite(int *offset);

#endif
