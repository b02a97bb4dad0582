import cython

from wormhole.wire.values cimport check, gather, known, named, values

cdef unsigned int _KEY
cdef unsigned int _AFTER
cdef unsigned int _BEFORE
cdef unsigned int _OLD_KEY
cdef unsigned int _KEY_END

cdef class Batch:
    cdef readonly object body
    cdef readonly str shard
    cdef readonly object epoch
    cdef readonly bint replayed
    cdef readonly object schema_of
    cdef readonly object generation
    cdef object _only
    cdef object _transaction
    cdef Py_ssize_t _tx

    @cython.locals(data=bytes, spans="const long long[::1]", i=Py_ssize_t)
    cpdef list updates(self)

    cpdef object table_of(self, Py_ssize_t ordinal)

    @cython.locals(tx=Py_ssize_t)
    cpdef object transaction_of(self, Py_ssize_t ordinal)

cdef class Update:
    cdef Batch _batch
    cdef Py_ssize_t _ordinal
    cdef bytes _data
    cdef Py_ssize_t _begin
    cdef Py_ssize_t _end
    cdef long long _head

    cdef bint _check(self) except -1
    cdef tuple _values(self, unsigned int field)
    @cython.locals(names=tuple)
    cdef dict _named(self, unsigned int field)
    cdef bytes _bytes(self)

@cython.locals(
    update=Update, batch=Batch, first=Py_ssize_t, many=bint, end=Py_ssize_t, at=Py_ssize_t, ordinal=Py_ssize_t,
)
cpdef tuple stretch(object updates, Py_ssize_t begin)

@cython.locals(update=Update, batch=Batch, keys=list, rows=list, heads=set)
cpdef tuple by_column(list updates)

@cython.locals(update=Update)
cdef Update _update(Batch batch, Py_ssize_t ordinal, bytes data, Py_ssize_t begin, Py_ssize_t end)
