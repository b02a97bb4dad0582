import cython

from datastores.common.encode.wire_bytes cimport copy_bytes, put_varint, varint_size

cdef int _ENTRY_ROOM
cdef int _V_UNAVAILABLE
cdef Py_ssize_t _SHORT
cdef Py_ssize_t _KEPT_ROOM
cdef Py_ssize_t _KEPT_KEY

cdef class Entries:
    cdef readonly Py_ssize_t limit
    cdef public Py_ssize_t most
    cdef public Py_ssize_t used
    cdef public int absent
    cdef public bint too_large
    cdef public Py_ssize_t room
    cdef readonly bytearray out
    cdef readonly int capacity
    cdef object start_array
    cdef readonly bytearray present
    cdef readonly unsigned int[::1] starts

    cpdef int hold(self, int count) except -1
    cpdef int release(self) except -1
    cpdef int grow(self, Py_ssize_t used, Py_ssize_t need) except -1

    @cython.locals(k="const unsigned char *")
    cpdef bint fits(self, Py_ssize_t used, bytes keyed, int c, Py_ssize_t length) except -1

    @cython.locals(out=bytearray, o="unsigned char *", p="const unsigned char *", i=Py_ssize_t)
    cpdef Py_ssize_t put(self, Py_ssize_t used, unsigned char tag, bytes data, Py_ssize_t at, Py_ssize_t length) except -1

    @cython.locals(o="unsigned char *")
    cpdef Py_ssize_t unavailable(self, Py_ssize_t used) except -1

    cpdef Py_ssize_t leave_out(self, Py_ssize_t used) except -1
