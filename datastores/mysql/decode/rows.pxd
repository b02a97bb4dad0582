import cython

from datastores.mysql.decode.row_image cimport Image, put_varint
from datastores.mysql.decode.columns cimport Columns

cdef int _INSERT
cdef int _UPDATE
cdef int _DELETE
cdef int _TRUNCATE
cdef int _KEY
cdef int _AFTER
cdef int _BEFORE
cdef int _OLD_KEY
cdef int _V_BYTES
cdef unsigned int _HASHED
cdef long long _LIMIT
cdef int _COPIED
cdef int _SLICED
cdef Py_ssize_t _MOST
cdef int _KEPT_ROOM
cdef int _KEPT_ROWS

@cython.final
cdef class Table:
    cdef readonly bytes body
    cdef readonly Columns columns
    cdef readonly int count
    cdef readonly str name
    cdef readonly unsigned int schema
    cdef readonly unsigned int shard
    cdef readonly unsigned int[::1] key
    cdef readonly int row_end
    cdef readonly tuple maybe

@cython.locals(o="unsigned char *", s="const unsigned char *", i=Py_ssize_t)
cdef Py_ssize_t _copy(bytearray out, Py_ssize_t at, bytearray source, Py_ssize_t start, Py_ssize_t end) except -1

@cython.locals(a_start=Py_ssize_t, b_start=Py_ssize_t, size=Py_ssize_t, p="const unsigned char *", q="const unsigned char *", i=Py_ssize_t)
cdef bint _same_cell(Image a, Image b, int c) except -1

@cython.locals(end=Py_ssize_t, o="unsigned char *")
cdef Py_ssize_t _copy_cell(bytearray out, Py_ssize_t at, Image image, int c, unsigned char tag) except -1

@cython.locals(p="const unsigned char *", n=int, i=int)
cdef int _bits(bytes data, int count) except -1

@cython.final
cdef class Rows:
    cdef readonly Py_ssize_t max_update_bytes
    cdef readonly Py_ssize_t hash_shards
    cdef readonly Py_ssize_t updates
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t too_large
    cdef Image _before
    cdef Image _after
    cdef Py_ssize_t _room
    cdef readonly bytearray out
    cdef Py_ssize_t _capacity
    cdef readonly object ends
    cdef readonly object schemas
    cdef readonly object shards
    cdef unsigned int[::1] _ends
    cdef unsigned int[::1] _schemas
    cdef unsigned int[::1] _shards

    cdef readonly int op
    cdef readonly bint partial
    cdef readonly Columns columns
    cdef readonly bytes before_bits
    cdef readonly bytes after_bits
    cdef readonly int before_count
    cdef readonly int after_count
    cdef Table _table

    cdef int _columns(self) except -1

    @cython.locals(updates=Py_ssize_t, used=Py_ssize_t, too_large=Py_ssize_t, most=Py_ssize_t, row=Py_ssize_t)
    cpdef Py_ssize_t event(
        self, bytes data, Py_ssize_t at, Py_ssize_t end, Table table, int op, bint extra, bint partial
    ) except -1

    @cython.locals(updates=Py_ssize_t, used=Py_ssize_t, too_large=Py_ssize_t, row=Py_ssize_t)
    cpdef Py_ssize_t stretch(self, bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t most, bint last) except -1

    cdef int _undo(self, Py_ssize_t updates, Py_ssize_t used, Py_ssize_t too_large) except -1

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

    @cython.locals(n=Py_ssize_t, out=bytearray)
    cpdef object truncate(self, unsigned int schema, unsigned int shard)

    @cython.locals(c=int, before=bint, after=bint)
    cdef int _current(self, Table table, int op) except -1

    cdef bint _lives(self, Table table, Image image, int c) except -1
    cdef bint _seems_current(self, Image image, bint given, int c) except -1

    @cython.locals(shard="unsigned int", old_shard="unsigned int", with_after=bint)
    cdef int _row(self, Table table, int op) except -1

    @cython.locals(
        before=Image, after=Image, key="unsigned int[::1]", old_key=bint, key_size=Py_ssize_t, old_key_size=Py_ssize_t,
        i=Py_ssize_t, c=int, patched=bint, values=Py_ssize_t, large=bint, body=Py_ssize_t, at=Py_ssize_t, out=bytearray, image=Image,
    )
    cdef int _update(self, Table table, int op, bint with_before, bint with_after, bint merged, unsigned int shard) except -1

    @cython.locals(before=Image, after=Image, image=Image, size=Py_ssize_t, c=int)
    cdef Py_ssize_t _patched_size(self, Table table) except -1

    @cython.locals(before=Image, after=Image, c=int)
    cdef Py_ssize_t _put_patched(self, Table table, Py_ssize_t at) except -1

    @cython.locals(crc="unsigned int", i=Py_ssize_t, c=int, image=Image, out=bytearray, at=Py_ssize_t)
    cdef unsigned int _hash_shard(self, Table table, bint with_after, bint merged) except? 0

    cdef Py_ssize_t _begin(self, Py_ssize_t body) except -1

    @cython.locals(n=Py_ssize_t)
    cdef int _end(self, unsigned int schema, unsigned int shard) except -1

    cpdef object back(self, Py_ssize_t updates)

    @cython.locals(n=Py_ssize_t, start=Py_ssize_t, i=Py_ssize_t)
    cpdef object drop(self, Py_ssize_t updates)
