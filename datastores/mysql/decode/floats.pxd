import cython

cdef double _ROUND
cdef double _SMALLEST
cdef double _LARGEST
cdef double _OVERFLOW
cdef int _EXACT

@cython.final
cdef class Singles:
    cdef bytearray _store
    cdef object _single_view
    cdef object _double_view
    cdef object _power_array
    cdef float[::1] _single
    cdef double[::1] _double
    cdef double[::1] _powers

    @cython.locals(store=bytearray, s="unsigned char *", p="const unsigned char *", o="unsigned char *", i=int, x=double,
                   size=double, result=double, power=double)
    cpdef Py_ssize_t put(self, bytearray out, Py_ssize_t at, bytes data, Py_ssize_t start) except -1

    @cython.locals(candidate=double)
    cdef double _slow(self, double x) except? -1
