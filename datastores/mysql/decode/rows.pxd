import cython

from datastores.common.encode.row_updates cimport RowTable, RowUpdates
from datastores.common.encode.updates cimport Updates
from datastores.mysql.decode.row_image cimport Image
from datastores.mysql.decode.columns cimport Columns

cdef int _INSERT
cdef int _UPDATE
cdef int _DELETE
cdef int _AFTER
cdef int _BEFORE
cdef unsigned int _HASHED
cdef long long _LIMIT
cdef Py_ssize_t _MOST

@cython.final
cdef class Table(RowTable):
    cdef readonly bytes body
    cdef readonly Columns columns
    cdef readonly int row_end
    cdef readonly tuple maybe

@cython.locals(p="const unsigned char *", n=int, i=int)
cdef int _bits(bytes data, int count) except -1

@cython.final
cdef class Rows:
    cdef readonly Py_ssize_t max_update_bytes
    cdef readonly Updates updates
    cdef RowUpdates _composed
    cdef Image _before
    cdef Image _after
    cdef readonly int op
    cdef readonly bint partial
    cdef readonly Columns columns
    cdef readonly bytes before_bits
    cdef readonly bytes after_bits
    cdef readonly int before_count
    cdef readonly int after_count
    cdef Table _table

    @cython.locals(updates=Updates, count=Py_ssize_t, too_large=Py_ssize_t, most=Py_ssize_t, row=Py_ssize_t)
    cpdef Py_ssize_t event(
        self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table, int op, bint extra, bint partial
    ) except -1

    @cython.locals(updates=Updates, count=Py_ssize_t, too_large=Py_ssize_t, row=Py_ssize_t)
    cpdef Py_ssize_t stretch(self, bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t most, bint last) except -1

    cdef int _undo(self, Py_ssize_t count, Py_ssize_t too_large) except -1

    @cython.locals(columns=Columns, image=Image, before=Image, bits=bytes, count=int, end=Py_ssize_t)
    cpdef object image(self, bytes data, bint after, bint left_out, bytes source)

    cpdef object row(self)
    cpdef Py_ssize_t before_used(self) except -1

    @cython.locals(p="const unsigned char *", columns=Columns, size=Py_ssize_t, count=int)
    cpdef Py_ssize_t open(
        self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table, int op, bint extra, bint partial
    ) except -1

    @cython.locals(op=int, before=Image, after=Image)
    cdef Py_ssize_t _one(self, bytes data, Py_ssize_t at, Py_ssize_t end) except -1

    cdef int _meant(self, Table table, int op) except -1

    @cython.locals(c=int, before=bint, after=bint)
    cdef int _current(self, Table table, int op) except -1

    cdef bint _lives(self, Table table, Image image, int c) except -1
    cdef bint _seems_current(self, Image image, bint given, int c) except -1
