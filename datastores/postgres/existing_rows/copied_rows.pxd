import cython

from datastores.common.encode.updates cimport Updates
from datastores.postgres.decode.rows cimport Rows
from datastores.postgres.decode.table cimport Table

cdef Py_ssize_t _SHORT
cdef Py_ssize_t _ROOM

@cython.locals(parts=list, field=bytes, size=Py_ssize_t)
cpdef bytes tuple_of(list fields)

@cython.final
cdef class CopiedRows:
    cdef readonly Py_ssize_t size
    cdef Table _table
    cdef bint _flagged
    cdef Rows _rows

    @cython.locals(
        rows=Rows, updates=Updates, taken=Py_ssize_t, line=bytes, fields=list, left_out=bint, data=bytes,
        key=Py_ssize_t, out=bytearray, at=Py_ssize_t, update=bytes,
    )
    cpdef Py_ssize_t add(self, list lines, dict found, Py_ssize_t room) except -1
