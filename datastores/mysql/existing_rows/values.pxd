import cython

cdef bytes _READ
cdef bytes _KEY
cdef bytes _AFTER
cdef bytes _TOO_LARGE
cdef bytes _LEFT_OUT
cdef bytes _NULL
cdef Py_ssize_t _SHORT
cdef tuple _TEXT_HEADS
cdef tuple _BYTES_HEADS
cdef dict _SMALL

cpdef bytes _integer(bytes raw)

@cython.locals(sign=bytes, digits=bytes, text=bytes)
cpdef bytes _decimal(bytes raw)

@cython.locals(size=Py_ssize_t)
cpdef bytes _plain(bytes raw)

@cython.locals(size=Py_ssize_t)
cpdef bytes _bytes(bytes raw)

cpdef bytes _utf8(bytes raw)

cdef class RowEncoder:
    cdef tuple _entries
    cdef Py_ssize_t _columns
    cdef tuple _key
    cdef Py_ssize_t _most
    cdef bint _flagged
    cdef Py_ssize_t _single
    cdef readonly Py_ssize_t size

    @cython.locals(
        entries=tuple, columns=Py_ssize_t, taken=Py_ssize_t, row=list, cells=list, i=Py_ssize_t, key=bytes, after=bytes,
        update=bytes, column=Py_ssize_t,
    )
    cpdef Py_ssize_t add(self, list rows, dict found, dict raw_keys, Py_ssize_t room) except -1
