import cython

@cython.final
cdef class Sources:
    cdef readonly list names
    cdef dict _ordinals

    cpdef Py_ssize_t add(self, str name) except -1
    cpdef Py_ssize_t of_uuid(self, bytes uuid) except -1

    @cython.locals(key="unsigned long long")
    cpdef Py_ssize_t of_domain(self, unsigned long long domain, unsigned long long server_id) except -1
