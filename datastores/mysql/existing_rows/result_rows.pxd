import cython

cdef int _HEAD
cdef int _WHOLE
cdef int _NULL
cdef int _TWO_BYTES
cdef int _THREE_BYTES
cdef int _END
cdef int _ERROR
cdef int _END_SIZE

cdef class ResultRows:
    cdef object _receive
    cdef Py_ssize_t _count
    cdef bytes _buffer
    cdef Py_ssize_t _at
    cdef list _begun
    cdef bytes _error
    cdef bint _ended

    @cython.locals(rows=list, parts=list, size=Py_ssize_t, need=Py_ssize_t)
    cpdef list take(self)

    @cython.locals(
        data=bytes, p="const unsigned char *", at=Py_ssize_t, end=Py_ssize_t, need=Py_ssize_t, length=Py_ssize_t,
        start=Py_ssize_t, whole=bytes,
    )
    cdef Py_ssize_t _walk(self, list rows) except -1

    @cython.locals(p="const unsigned char *", first=int)
    cdef int _add(self, list rows, bytes data, Py_ssize_t start, Py_ssize_t end) except -1

@cython.locals(p="const unsigned char *", row=list, begin=Py_ssize_t, size="long long", width=int, i=int)
cpdef list split_row(bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t count)
