import cython

from datastores.mysql.decode.transaction_checksum cimport TransactionChecksum
from datastores.mysql.decode.rows cimport Rows, Table
from datastores.mysql.decode.transaction_sources cimport Sources
from datastores.common.encode.transactions cimport Transactions
from datastores.common.encode.updates cimport Updates

cdef int OK
cdef int MORE
cdef int EVENT
cdef int TABLE
cdef int TRANSACTION
cdef int END
cdef int ERROR
cdef int LARGE
cdef int ROWS
cdef int HEADER
cdef int CHECKSUM
cdef int ARTIFICIAL
cdef int IGNORABLE
cdef int _XA_FLAGS
cdef int MARIADB_GTID
cdef int ANONYMOUS_GTID
cdef int PARTIAL_UPDATE_ROWS
cdef int FORMAT_DESCRIPTION
cdef int HEARTBEAT
cdef int HEARTBEAT_V2
cdef int PASS_OVER
cdef int TAKE_GTID
cdef int TAKE_QUERY
cdef int TAKE_MAP
cdef int TAKE_XID
cdef int TAKE_ROWS
cdef int WHOLE_PAYLOAD
cdef int _KEPT_TABLES
cdef long long _LIMIT
cdef Py_ssize_t _KEPT_MAPS
cdef Py_ssize_t _LEAST_HELD
cdef Py_ssize_t _LARGEST_MAP
cdef str _DAMAGED
cdef long long _SECOND_US
cdef long long _TIME
cdef bytes ACTIONS
cdef bytes VERSION_2

cdef class Encoder:
    cdef readonly Rows rows
    cdef readonly Transactions transactions
    cdef public bint checksums
    cdef public bint suppress
    cdef public bint collect
    cdef public bint single
    cdef public long long anonymous
    cdef public long long file_offset
    cdef readonly Sources sources
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
    cdef TransactionChecksum _checksum
    cdef readonly Py_ssize_t first_index
    cdef Py_ssize_t _next_first_index
    cdef readonly Py_ssize_t held
    cdef dict _tables
    cdef Py_ssize_t _map_bytes
    cdef Table _table
    cdef bint _ended

    @cython.locals(
        p="const unsigned char *", updates=Updates, status=int, left=Py_ssize_t, length=Py_ssize_t, start=Py_ssize_t,
    )
    cpdef Py_ssize_t packets(self, bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t max_bytes) except -1

    cdef int _told(self, bytes payload) except -1

    cpdef int event(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(action=int)
    cpdef bint ignores(self, int kind, int flags) except -1

    @cython.locals(kind=int, checked=bint, stored="unsigned int")
    cpdef object large(self, bytes outline, Py_ssize_t size, long long crc)

    @cython.locals(action=int, partial=bint)
    cpdef int open_rows(self, bytes head, int kind) except -1

    @cython.locals(
        p="const unsigned char *", size=Py_ssize_t, kind=int, body_end=Py_ssize_t, checked=bint, action=int,
    )
    cdef int _event(self, bytes data, Py_ssize_t start, Py_ssize_t end, bint counted) except -1

    @cython.locals(p="const unsigned char *", kind=int, length="unsigned int")
    cdef int _head(self, bytes data, Py_ssize_t start, Py_ssize_t size) except -1

    @cython.locals(place="unsigned int")
    cdef int _pass(self, bytes data, Py_ssize_t start, Py_ssize_t end, Py_ssize_t size, int kind, bint checked) except -1

    cdef int _back(self, bytes data, Py_ssize_t start, Py_ssize_t end, int status) except -1

    @cython.locals(offset="long long")
    cdef int _move(self, long long place, Py_ssize_t size, bint is_format) except -1

    @cython.locals(body=Py_ssize_t, status=int, at=Py_ssize_t, partial=bint)
    cdef int _rows_event(self, bytes data, Py_ssize_t start, Py_ssize_t end, int op, int kind) except -1

    @cython.locals(table_id="long long", table=Table)
    cdef int _open_rows(self, bytes data, Py_ssize_t body, Py_ssize_t end) except -1

    @cython.locals(p="const unsigned char *", body=Py_ssize_t, table_id="long long", table=Table)
    cdef int _table_map(self, bytes data, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(p="const unsigned char *", body=Py_ssize_t, flags=int, source="long long", committed="long long")
    cdef int _gtid(self, bytes data, Py_ssize_t start, Py_ssize_t end, int kind) except -1

    @cython.locals(p="const unsigned char *", n="unsigned long long", i=Py_ssize_t)
    cdef unsigned long long _number(self, bytes data, Py_ssize_t at, Py_ssize_t size) except? 0

    @cython.locals(p="const unsigned char *", body=Py_ssize_t, text=Py_ssize_t, size=Py_ssize_t)
    cdef int _query(self, bytes data, Py_ssize_t start, Py_ssize_t end) except -1

    cpdef object begin(self, unsigned int source, unsigned long long number, long long committed_at_us)

    @cython.locals(updates=Py_ssize_t)
    cpdef object end_transaction(self, long long committed_at_us=*)

    cpdef object truncate(self, unsigned int schema, unsigned int shard)
    cpdef object discard(self, bint close=*)
    cpdef object back_to(self, unsigned long long tx_updates)

    @cython.locals(updates=Updates, transactions=Transactions, n=Py_ssize_t, t=Py_ssize_t)
    cpdef object take(self, bint whole=*)
