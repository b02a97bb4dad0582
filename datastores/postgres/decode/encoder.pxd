import cython

from datastores.common.encode.transactions cimport Transactions
from datastores.common.encode.updates cimport Updates
from datastores.postgres.decode.rows cimport Rows
from datastores.postgres.decode.table cimport Table

cdef int _COMMIT
cdef int _LOG_DATA
cdef Py_ssize_t _HEADER
cdef int _BEGIN
cdef int _END
cdef int _INSERT
cdef int _UPDATE
cdef int _DELETE
cdef int _RELATION
cdef int _TYPE
cdef int _ORIGIN
cdef int _TRUNCATE
cdef int _MESSAGE
cdef Py_ssize_t _BEGIN_BYTES
cdef Py_ssize_t _END_BYTES
cdef long long _EPOCH_US
cdef long long _LIMIT
cdef unsigned long long _LOWER_HALF
cdef unsigned long long _NEVER

cdef class Encoder:
    cdef readonly object tables
    cdef readonly Rows rows
    cdef readonly Transactions transactions
    cdef public bint suppress
    cdef public unsigned long long place
    cdef readonly bint in_transaction
    cdef readonly unsigned long long commit
    cdef readonly unsigned long long tx_begin
    cdef readonly long long committed_at_us
    cdef readonly unsigned long long last_commit
    cdef readonly unsigned long long last_end
    cdef public long long last_committed_at_us
    cdef readonly unsigned int last_checksum
    cdef public long long log_bytes
    cdef readonly Py_ssize_t first_index
    cdef readonly object ended_ids
    cdef readonly object ended_at
    cdef unsigned int _id
    cdef Py_ssize_t _next_first_index
    cdef Py_ssize_t _tx_first
    cdef Py_ssize_t _tx_taken
    cdef unsigned int _checksum
    cdef dict _known
    cdef dict _relations
    cdef dict _names
    cdef unsigned long long _names_from
    cdef object _messages
    cdef Table _table
    cdef long long _table_id

    @cython.locals(p="const unsigned char *", size=Py_ssize_t, kind=int)
    cpdef int add(self, bytes data) except -1

    @cython.locals(count=Py_ssize_t, message=bytes)
    cpdef Py_ssize_t add_all(self, list messages, Py_ssize_t at, Py_ssize_t max_bytes) except -1

    @cython.locals(p="const unsigned char *", at=Py_ssize_t, number="unsigned int", table=Table)
    cdef int _row(self, bytes data, Py_ssize_t size, int kind) except -1

    cdef Table _find(self, bytes data, unsigned int number)
    cdef int _rare(self, bytes data, int kind) except -1
    cdef object _learn(self, object relation)

    @cython.locals(table=Table)
    cdef int _truncate(self, bytes data) except -1

    @cython.locals(alone=bint, table=Table, prefix=bytes, committed_at_us="long long")
    cdef object _message(self, bytes data)

    cdef int _begin(self, bytes data, Py_ssize_t size) except -1

    @cython.locals(place="unsigned long long", learned="unsigned long long")
    cdef int _rename(self) except -1

    @cython.locals(end="unsigned long long", count=Py_ssize_t)
    cdef int _end(self, bytes data, Py_ssize_t size) except -1

    @cython.locals(p="const unsigned char *", n="unsigned long long", i=int)
    cdef unsigned long long _number(self, bytes data, Py_ssize_t at) except? 0

    @cython.locals(n="unsigned long long")
    cdef long long _time(self, bytes data, Py_ssize_t at) except? 0

    @cython.locals(updates=Updates, transactions=Transactions, n=Py_ssize_t, t=Py_ssize_t)
    cpdef object take(self, bint whole=*)
