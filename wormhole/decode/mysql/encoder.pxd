import cython

from wormhole.decode.mysql.anchor cimport Anchor
from wormhole.decode.mysql.rows cimport Rows, Table
from wormhole.decode.mysql.sources cimport Sources
from wormhole.decode.mysql.transactions cimport Transactions

cdef int _S_OK
cdef int _S_MORE
cdef int _S_EVENT
cdef int _S_TABLE
cdef int _S_TRANSACTION
cdef int _S_END
cdef int _S_ERROR
cdef int _HEADER
cdef int _CHECKSUM
cdef int _ARTIFICIAL
cdef int _IGNORABLE
cdef int _XA_FLAGS
cdef int _MARIADB_GTID
cdef int _ANONYMOUS
cdef int _PARTIAL
cdef int _FORMAT
cdef int _HEARTBEAT
cdef int _HEARTBEAT_V2
cdef int _IGNORE
cdef int _GTID
cdef int _QUERY
cdef int _MAP
cdef int _XID
cdef int _ROWS
cdef int _WHOLE_PAYLOAD
cdef int _KEPT_TABLES
cdef long long _LIMIT
cdef long long _SECOND_US
cdef bytes _ACTION
cdef bytes _VERSION_2

@cython.locals(view="unsigned int[::1]", i=Py_ssize_t)
cdef object _uniform(object column, Py_ssize_t n)

cdef class Encoder:
    cdef Rows _rows
    cdef Transactions _transactions
    cdef public bint checksums
    cdef public bint suppress
    cdef public bint collect
    cdef public bint single
    cdef public long long anonymous
    cdef public long long file_offset
    cdef Sources _sources
    cdef readonly int status
    cdef readonly Py_ssize_t at
    cdef readonly Py_ssize_t need
    cdef readonly bytes raw
    cdef readonly int event_type
    cdef readonly int event_flags
    cdef readonly unsigned int event_timestamp
    cdef readonly unsigned int event_server_id
    cdef readonly long long event_begin
    cdef readonly long long table_id
    cdef readonly long long table_schema
    cdef readonly long long table_shard
    cdef readonly bint in_transaction
    cdef readonly bint begun
    cdef readonly unsigned int source
    cdef readonly unsigned long long number
    cdef readonly long long tx_begin
    cdef readonly int gtid_flags
    cdef readonly long long committed_at_us
    cdef Py_ssize_t _tx_first
    cdef Py_ssize_t _tx_taken
    cdef readonly long long last_source
    cdef readonly unsigned long long last_number
    cdef readonly long long last_begin
    cdef readonly long long last_end
    cdef readonly long long last_committed_at_us
    cdef readonly unsigned int last_checksum
    cdef Anchor _anchor
    cdef readonly Py_ssize_t first_index
    cdef Py_ssize_t _next_first_index
    cdef dict _tables
    cdef bint _ended

    @cython.locals(
        p="const unsigned char *", rows=Rows, status=int, left=Py_ssize_t, length=Py_ssize_t, start=Py_ssize_t,
        following=Py_ssize_t, joined=bytes,
    )
    cpdef Py_ssize_t packets(self, bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t max_bytes) except -1

    cdef int _told(self, bytes payload) except -1

    cpdef int event(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(
        p="const unsigned char *", size=Py_ssize_t, kind=int, length="unsigned int", body_end=Py_ssize_t, place="unsigned int",
        checked=bint, stored="unsigned int", action=int, computed="unsigned int",
    )
    cdef int _event(self, bytes data, Py_ssize_t start, Py_ssize_t end, bint counted) except -1

    cdef int _back(self, bytes data, Py_ssize_t start, Py_ssize_t end, int status) except -1

    @cython.locals(offset="long long")
    cdef int _move(self, long long place, Py_ssize_t size, bint is_format) except -1

    @cython.locals(body=Py_ssize_t, table_id="long long", table=Table)
    cdef int _rows_event(self, bytes data, Py_ssize_t start, Py_ssize_t end, int op, int kind) except -1

    @cython.locals(p="const unsigned char *", n="long long", i=Py_ssize_t)
    cdef long long _table_id(self, bytes data, Py_ssize_t at) except -1

    @cython.locals(p="const unsigned char *", body=Py_ssize_t, table_id="long long", table=Table)
    cdef int _table_map(self, bytes data, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(p="const unsigned char *", body=Py_ssize_t, flags=int, domain="unsigned int", source="long long", committed="long long", i=int)
    cdef int _gtid(self, bytes data, Py_ssize_t start, Py_ssize_t end, int kind) except -1

    @cython.locals(p="const unsigned char *", n="unsigned long long", i=Py_ssize_t)
    cdef unsigned long long _number(self, bytes data, Py_ssize_t at) except? 0

    @cython.locals(p="const unsigned char *", body=Py_ssize_t, text=Py_ssize_t, size=Py_ssize_t)
    cdef int _query(self, bytes data, Py_ssize_t start, Py_ssize_t end) except -1

    cpdef object begin(self, unsigned int source, unsigned long long number, long long committed_at_us)

    @cython.locals(updates=Py_ssize_t)
    cpdef object end_transaction(self, long long committed_at_us=*)

    cpdef object truncate(self, unsigned int schema, unsigned int shard)
    cpdef object discard(self, bint close=*)
    cpdef object back_to(self, unsigned long long tx_updates)

    @cython.locals(rows=Rows, transactions=Transactions, n=Py_ssize_t, t=Py_ssize_t)
    cpdef object take(self, bint whole=*)
