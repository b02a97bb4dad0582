import cython

from datastores.common.encode.entries cimport Entries
from datastores.common.encode.updates cimport Updates
from datastores.common.encode.wire_bytes cimport copy_bytes

cdef int _INSERT
cdef int _UPDATE
cdef int _DELETE
cdef int _KEY
cdef int _AFTER
cdef int _OLD_KEY
cdef int _V_BYTES
cdef unsigned int _HASHED
cdef Py_ssize_t _SHORT
cdef long long _LIMIT

cdef class RowTable:
    cdef readonly str name
    cdef readonly int count
    cdef readonly unsigned int[::1] key
    cdef readonly unsigned int schema
    cdef readonly unsigned int shard

@cython.locals(
    a_start=Py_ssize_t, b_start=Py_ssize_t, size=Py_ssize_t, p="const unsigned char *", q="const unsigned char *",
    i=Py_ssize_t,
)
cdef bint _same_cell(Entries a, Entries b, int c) except -1

@cython.locals(start=Py_ssize_t, size=Py_ssize_t, o="unsigned char *", p="const unsigned char *", i=Py_ssize_t)
cdef Py_ssize_t _copy_cell(bytearray out, Py_ssize_t at, Entries image, int c, unsigned char tag) except -1

@cython.final
cdef class RowUpdates:
    cdef readonly Py_ssize_t max_update_bytes
    cdef readonly unsigned int hash_shards
    cdef readonly Updates updates
    cdef public Py_ssize_t too_large
    cdef Entries _before
    cdef Entries _after

    @cython.locals(with_after=bint, shard="unsigned int", old_shard="unsigned int")
    cpdef int change(self, RowTable table, int op, bint merged) except -1

    @cython.locals(
        before=Entries, after=Entries, image=Entries, key="unsigned int[::1]", changes_key=bint, old_key=bint,
        key_size=Py_ssize_t, old_key_size=Py_ssize_t, i=Py_ssize_t, c=int, patched=bint, values=Py_ssize_t, large=bint,
        body=Py_ssize_t, at=Py_ssize_t, out=bytearray,
    )
    cpdef int add(
        self, RowTable table, int op, bint with_before, bint with_after, bint merged, unsigned int shard
    ) except -1

    cdef Entries _current(self, int c, bint merged)

    @cython.locals(crc="unsigned int", i=Py_ssize_t, c=int, image=Entries, out=bytearray, at=Py_ssize_t)
    cdef unsigned int _hash_shard(self, RowTable table, bint with_after, bint merged) except? 0
