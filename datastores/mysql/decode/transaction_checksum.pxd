import cython

cdef int _HEADER
cdef int _CHECKSUM
cdef int _ROOM

@cython.final
cdef class TransactionChecksum:
    cdef bytearray _bytes
    cdef Py_ssize_t _used
    cdef Py_ssize_t _noted
    cdef unsigned int _checksum

    @cython.locals(p="const unsigned char *", b="unsigned char *", used=Py_ssize_t, noted=Py_ssize_t, i=Py_ssize_t)
    cpdef object note(self, bytes data, Py_ssize_t start, Py_ssize_t end, bint checked, bint inside)

    cpdef object begin(self)
    @cython.locals(b="unsigned char *", checksum="unsigned int")
    cpdef unsigned int end(self) except? 0
