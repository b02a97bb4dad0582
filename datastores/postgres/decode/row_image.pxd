import cython

from datastores.common.encode.entries cimport Entries
from datastores.common.encode.wire_bytes cimport is_ascii, put_varint, valid_utf8, varint_size
from datastores.postgres.decode.table cimport Table

cdef int BOOL
cdef int BYTES
cdef int DECIMAL
cdef int DOUBLE
cdef int INT
cdef int TEXT
cdef int _ENTRY_ROOM
cdef int _V_BYTES
cdef int _V_TEXT
cdef int _V_INT
cdef int _V_UINT
cdef int _V_DOUBLE
cdef int _V_BOOL
cdef int _V_DECIMAL
cdef int _V_NULL
cdef int _NULL
cdef int _UNCHANGED
cdef int _VALUE
cdef int _BINARY
cdef long long _LIMIT
cdef Py_ssize_t _SHOWN
cdef Py_ssize_t _DIGITS
cdef unsigned long long _LARGEST
cdef bytes _HEX

@cython.final
cdef class Image(Entries):
    cdef object _double_array
    cdef object _double_byte_view
    cdef double[::1] _double
    cdef unsigned char[::1] _double_bytes

    @cython.locals(
        p="const unsigned char *", kinds="const unsigned char *", identity="const unsigned char *",
        starts="unsigned int[::1]", here="unsigned char *", count=int, used=Py_ssize_t, out=bytearray,
        o="unsigned char *", c=int, form=int, length=Py_ssize_t, kind=int,
    )
    cpdef Py_ssize_t read(
        self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table, unsigned char tag, bint key_only
    ) except -1

    @cython.locals(
        p="const unsigned char *", o="unsigned char *", end=Py_ssize_t, begin=Py_ssize_t, negative=bint,
        n="unsigned long long", stop=Py_ssize_t,
    )
    cdef Py_ssize_t _int(self, Py_ssize_t used, Table table, int c, bytes data, Py_ssize_t at, Py_ssize_t length) except -1

    @cython.locals(raw=bytes, n="unsigned long long", o="unsigned char *", stop=Py_ssize_t)
    cdef Py_ssize_t _uint(self, Py_ssize_t used, Table table, int c, bytes data, Py_ssize_t at, Py_ssize_t length) except -1

    @cython.locals(o="unsigned char *", i=int)
    cdef Py_ssize_t _float(self, Py_ssize_t used, Table table, int c, bytes data, Py_ssize_t at, Py_ssize_t length) except -1

    @cython.locals(p="const unsigned char *", digits=Py_ssize_t, points=int, tag=int, i=Py_ssize_t)
    cdef Py_ssize_t _decimal(
        self, Py_ssize_t used, Table table, int c, bytes data, Py_ssize_t at, Py_ssize_t length
    ) except -1

    @cython.locals(tag=int, converted=bytes)
    cdef Py_ssize_t _string(
        self, Py_ssize_t used, Table table, int c, bytes data, Py_ssize_t at, Py_ssize_t length
    ) except -1

    @cython.locals(
        p="const unsigned char *", h="const unsigned char *", size=Py_ssize_t, out=bytearray, o="unsigned char *",
        wrong=int, high=int, low=int, place=Py_ssize_t, i=Py_ssize_t,
    )
    cdef Py_ssize_t _hex(self, Py_ssize_t used, Table table, int c, bytes data, Py_ssize_t at, Py_ssize_t length) except -1
