import cython

from datastores.common.encode.row_updates cimport RowUpdates
from datastores.common.encode.updates cimport Updates
from datastores.common.encode.wire_bytes cimport copy_bytes, put_varint, varint_size
from datastores.postgres.decode.row_image cimport Image
from datastores.postgres.decode.table cimport Table

cdef int _INSERT
cdef int _UPDATE
cdef int _DELETE
cdef int _READ
cdef int _AFTER
cdef int _BEFORE
cdef int _V_BYTES
cdef int _V_TEXT
cdef int _V_BOOL
cdef int _NEW
cdef int _OLD
cdef int _OLD_KEY_TUPLE

@cython.final
cdef class Rows:
    cdef readonly Updates updates
    cdef RowUpdates _composed
    cdef Image _before
    cdef Image _after

    cpdef int insert(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table) except -1

    @cython.locals(after=Image, size=Py_ssize_t, i=Py_ssize_t, c=int)
    cpdef Py_ssize_t existing(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table, bint left_out) except -1

    @cython.locals(
        p="const unsigned char *", old=bint, after=Image, key="unsigned int[::1]", i=Py_ssize_t,
    )
    cpdef int update(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table) except -1

    @cython.locals(key="unsigned int[::1]", i=Py_ssize_t)
    cpdef int delete(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table) except -1

    @cython.locals(
        size=Py_ssize_t, entry=Py_ssize_t, whole=Py_ssize_t, large=bint, body=Py_ssize_t, at=Py_ssize_t, out=bytearray,
    )
    cpdef int message(
        self, unsigned int schema, unsigned int shard, bytes prefix, bytes content, bint transactional
    ) except -1

    cdef Py_ssize_t _put_value(self, Py_ssize_t at, unsigned char tag, bytes value, Py_ssize_t entry) except -1

    @cython.locals(p="const unsigned char *")
    cdef Py_ssize_t _new(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table) except -1

    @cython.locals(p="const unsigned char *", form=int)
    cdef Py_ssize_t _read_old(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table) except -1

    cdef int _end_of_row(self, Table table, Py_ssize_t at, Py_ssize_t end) except -1
