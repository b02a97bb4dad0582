import cython

cdef int _KEPT

@cython.final
cdef class Transactions:
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t ended
    cdef readonly Py_ssize_t passed
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _passed_capacity
    cdef readonly object sources
    cdef readonly object numbers
    cdef readonly object offsets
    cdef readonly object times
    cdef readonly object ends
    cdef readonly object passed_sources
    cdef readonly object passed_numbers
    cdef unsigned int[::1] _sources
    cdef unsigned long long[::1] _numbers
    cdef unsigned long long[::1] _offsets
    cdef long long[::1] _times
    cdef unsigned int[::1] _ends
    cdef unsigned int[::1] _passed_sources
    cdef unsigned long long[::1] _passed_numbers

    cdef int _columns(self) except -1
    cdef int _passed_columns(self) except -1

    @cython.locals(n=Py_ssize_t)
    cpdef object add(self, unsigned int source, unsigned long long number, unsigned long long offset, long long time)

    cpdef object end(self, unsigned int updates)

    @cython.locals(n=Py_ssize_t)
    cpdef object passes(self, unsigned int source, unsigned long long number)

    cpdef object clear(self)
    cpdef object take_passed(self)
