import cython

from datastores.common.encode.wire_bytes cimport put_varint

cdef int _TRUNCATE
cdef Py_ssize_t _KEPT_ROOM
cdef Py_ssize_t _KEPT_ROWS

@cython.final
cdef class Updates:
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t used
    cdef readonly bytearray out
    cdef readonly object ends
    cdef readonly object schemas
    cdef readonly object shards
    cdef Py_ssize_t _room
    cdef Py_ssize_t _capacity
    cdef unsigned int[::1] _ends
    cdef unsigned int[::1] _schemas
    cdef unsigned int[::1] _shards

    cdef int _columns(self) except -1

    cpdef Py_ssize_t begin(self, Py_ssize_t body) except -1

    @cython.locals(n=Py_ssize_t)
    cpdef int end(self, Py_ssize_t at, unsigned int schema, unsigned int shard) except -1

    @cython.locals(at=Py_ssize_t)
    cpdef int truncate(self, unsigned int schema, unsigned int shard) except -1

    cpdef int back(self, Py_ssize_t count) except -1

    @cython.locals(n=Py_ssize_t, start=Py_ssize_t, i=Py_ssize_t)
    cpdef object drop(self, Py_ssize_t count)
