# Element types in the lane. uhal/dtypes.py defines the types. A look-up in uhal/dtypes.py takes
# half a microsecond, so the lane caches the answer for a name or a numpy dtype.

cdef dict elements = {}         # str or numpy.dtype → Element
cdef list element_dtypes = []   # Elements, one per uhal.dtypes.DType


@cython.final
@cython.no_gc
cdef class Element:
    """Element()\n--\n
    A dtype as the lane computes with it."""

    cdef object dtype
    cdef Py_ssize_t itemsize    # bytes


cdef Element element_of(object given):
    """The element type that `given` names; ArgumentTypeError for another name."""
    cdef Element element
    # str and dtype hash by value; a class derived from str may not, so its objects are not cached
    cdef bint lasting = PyUnicode_CheckExact(given) or _cnumpy.PyArray_DescrCheck(given)
    if lasting:
        found = elements.get(given)
        if found is not None:
            return <Element>found
    else:
        for element in element_dtypes:
            if element.dtype is given:
                return element
    element = new_element(given)
    if lasting:
        elements[given] = element
    return element


cdef Element new_element(object given):
    cdef Element element
    try:
        dtype = _dtypes.as_dtype(given)
    except TypeError as failure:
        raise _errors.ArgumentTypeError(f"dtype: {failure}") from None
    for element in element_dtypes:
        if element.dtype is dtype:
            return element
    element = Element.__new__(Element)
    element.dtype = dtype
    element.itemsize = dtype.itemsize
    element_dtypes.append(element)
    return element


cdef object _as_dtype(object given):
    return element_of(given).dtype
