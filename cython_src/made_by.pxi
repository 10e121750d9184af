# Classes whose objects only the lane makes: `__new__` alone would leave them half initialised.

cdef dict MADE_BY = {
    _Awaited: "an awaited stream or event is made by await",
    BoundLaunch: "a BoundLaunch is made by function[grid, block, shared, stream]",
    Passed: "Passed is made by Passed.operand, Passed.result and Passed.scratch",
    Plan: "a Plan is made by a capture: with stream.capture() as plan:",
    PlanSlot: "a PlanSlot is made by plan.slot(name, value)",
}


cdef PyObject *refuse_new(PyTypeObject *kind, PyObject *arguments, PyObject *keywords) except NULL:
    for base in (<object>kind).__mro__:
        if base in MADE_BY:
            raise _errors.ArgumentTypeError(MADE_BY[base])
    raise SystemError("a class that the lane does not know")


for _class in MADE_BY:
    uhal_refuse_new(_class, refuse_new)
