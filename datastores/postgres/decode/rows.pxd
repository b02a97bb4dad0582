import cython

from datastores.common.encode.updates cimport Updates
from datastores.common.encode.wire_bytes cimport copy_bytes, put_varint, varint_size
from datastores.postgres.decode.row_image cimport Image
from datastores.postgres.decode.table cimport Table

cdef int _INSERT
cdef int _UPDATE
cdef int _DELETE
cdef int _READ
cdef int _KEY
cdef int _AFTER
cdef int _BEFORE
cdef int _OLD_KEY
cdef int _V_BYTES
cdef int _V_TEXT
cdef int _V_BOOL
cdef unsigned int _HASHED
cdef long long _LIMIT
cdef int _NEW
cdef int _OLD
cdef int _OLD_KEY_TUPLE

@cython.locals(
    a_start=Py_ssize_t, b_start=Py_ssize_t, size=Py_ssize_t, p="const unsigned char *", q="const unsigned char *",
    i=Py_ssize_t,
)
cdef bint _same_cell(Image a, Image b, int c) except -1

@cython.locals(end=Py_ssize_t, o="unsigned char *")
cdef Py_ssize_t _copy_cell(bytearray out, Py_ssize_t at, Image image, int c, unsigned char tag) except -1

@cython.final
cdef class Rows:
    cdef readonly Py_ssize_t max_update_bytes
    cdef readonly unsigned int hash_shards
    cdef readonly Updates updates
    cdef readonly Py_ssize_t too_large
    cdef Image _before
    cdef Image _after

    @cython.locals(shard="unsigned int")
    cpdef int insert(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table) except -1

    @cython.locals(after=Image, size=Py_ssize_t, i=Py_ssize_t, c=int)
    cpdef Py_ssize_t existing(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table, bint left_out) except -1

    @cython.locals(
        p="const unsigned char *", old=bint, after=Image, key="unsigned int[::1]", i=Py_ssize_t, shard="unsigned int",
        old_shard="unsigned int",
    )
    cpdef int update(self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table) except -1

    @cython.locals(key="unsigned int[::1]", i=Py_ssize_t, shard="unsigned int")
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
    cdef Image _current(self, int c, bint merged)

    @cython.locals(
        before=Image, after=Image, image=Image, key="unsigned int[::1]", changes_key=bint, old_key=bint,
        key_size=Py_ssize_t, old_key_size=Py_ssize_t, i=Py_ssize_t, c=int, patched=bint, values=Py_ssize_t, large=bint,
        body=Py_ssize_t, at=Py_ssize_t, out=bytearray,
    )
    cdef int _update(self, Table table, int op, bint with_before, bint with_after, bint merged, unsigned int shard) except -1

    @cython.locals(crc="unsigned int", i=Py_ssize_t, c=int, image=Image, out=bytearray, at=Py_ssize_t)
    cdef unsigned int _hash_shard(self, Table table, bint with_after, bint merged) except? 0
