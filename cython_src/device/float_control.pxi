# The calling thread's arithmetic, which a library may change when it is loaded.


@cython.final
@cython.no_gc
cdef class KeptArithmetic:
    """KeptArithmetic()\n--\n
    Context manager that restores the thread's floating-point mode.

    Libraries compiled with `-ffast-math` make the thread that loads them flush tiny numbers to 0.
    """

    cdef uhal_float_control kept

    def __enter__(self):
        self.kept = uhal_float_control_now()

    def __exit__(self, *exception):
        uhal_float_control_set(self.kept)
