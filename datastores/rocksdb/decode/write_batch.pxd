import cython

cdef int _HEADER
cdef long long _LIMIT
cdef int _FULL
cdef int _LAST
cdef int _PAIR
cdef int _KEY
cdef int _DATA
cdef int _NOOP
cdef int _MARKER
cdef int _PER_BATCH
cdef int _TRUNCATED
cdef int _MALFORMED
cdef int _KEPT_ROOM
cdef int _SLICED
cdef int _KEPT_ROWS
cdef int _S_OK
cdef int _S_MORE
cdef int _S_SKIP
cdef int _S_FAMILY
cdef int _S_MARKER
cdef int _S_GAP
cdef int _S_BACK
cdef int _S_BROKEN
cdef int _S_PER_BATCH
cdef unsigned int _HASHED
cdef unsigned int _ALL_SHARDS

cdef bytes _OPERANDS
cdef bytes _OP
cdef bytes _HAS_FAMILY
cdef bytes _RARE

@cython.locals(i=Py_ssize_t)
cdef bint _uniform(unsigned int[::1] column, Py_ssize_t n)

@cython.locals(size=int)
cdef int _varint_size(unsigned long long n) noexcept

cdef Py_ssize_t _put_varint(unsigned char *out, Py_ssize_t at, unsigned long long n) noexcept

@cython.locals(i=Py_ssize_t, o="unsigned char *", p="const unsigned char *")
cdef Py_ssize_t _put_value(
    bytearray out, Py_ssize_t at, unsigned char tag, bytes data, Py_ssize_t start, Py_ssize_t length
) except? -1

cdef class Encoder:
    cdef public Py_ssize_t max_update_bytes
    cdef public Py_ssize_t hash_shards
    cdef public long long expected
    cdef public Py_ssize_t too_large
    cdef public bytes commit_timestamp
    cdef public dict families
    cdef public int status
    cdef public Py_ssize_t at
    cdef public Py_ssize_t need
    cdef public long long family
    cdef public str problem
    cdef public long long sequence
    cdef public Py_ssize_t frame
    cdef public long long counted
    cdef public bint skipping
    cdef public Py_ssize_t updates
    cdef public Py_ssize_t transactions
    cdef public Py_ssize_t used
    cdef Py_ssize_t _room
    cdef bytearray _out
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _tx_capacity
    cdef object _ends_array
    cdef object _schema_array
    cdef object _shard_array
    cdef object _number_array
    cdef object _offset_array
    cdef object _tx_end_array
    cdef unsigned int[::1] _ends
    cdef unsigned int[::1] _schemas
    cdef unsigned int[::1] _shards
    cdef unsigned long long[::1] _numbers
    cdef unsigned long long[::1] _offsets
    cdef unsigned int[::1] _tx_ends
    cdef Py_ssize_t _tx_ended
    cdef long long _last_family
    cdef Py_ssize_t _varint_end
    cdef public long long count
    cdef unsigned int _schema
    cdef Py_ssize_t _timestamp
    cdef unsigned int _shard

    @cython.locals(i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, count=Py_ssize_t, status=int, payload=bytes,
                   starts="unsigned int[::1]", ends="unsigned int[::1]", kinds="unsigned char[::1]")
    cpdef Py_ssize_t records(self, bytes data, object frames, Py_ssize_t first, Py_ssize_t last, long long base, Py_ssize_t max_bytes) except? -1

    @cython.locals(used=Py_ssize_t, updates=Py_ssize_t, status=int)
    cpdef int record(self, bytes data, Py_ssize_t start, Py_ssize_t end, long long next_offset) except? -1

    @cython.locals(p="const unsigned char *", sequence="long long", count="long long", i=int)
    cpdef int begin(self, bytes data, Py_ssize_t start, Py_ssize_t end) except? -1

    @cython.locals(n=Py_ssize_t)
    cpdef int end_transaction(self, long long offset) except? -1

    @cython.locals(n=Py_ssize_t)
    cpdef int open_transaction(self, long long offset) except? -1

    @cython.locals(
        p="const unsigned char *", operands_of="const unsigned char *", op_of="const unsigned char *",
        families_of="const unsigned char *", rare_of="const unsigned char *",
        entry=Py_ssize_t, kind=int, operands=int, family="long long", length=Py_ssize_t, key_size=Py_ssize_t,
        key=Py_ssize_t, value=Py_ssize_t, value_size=Py_ssize_t, op=int, large=bint, inner=Py_ssize_t, body=Py_ssize_t,
        used=Py_ssize_t, out=bytearray, o="unsigned char *", n=Py_ssize_t,
    )
    cpdef int entries(self, bytes data, Py_ssize_t at, Py_ssize_t end, bint final) except? -1

    @cython.locals(p="const unsigned char *", n="unsigned long long", shift=int, byte="unsigned long long")
    cdef long long _varint(self, bytes data, Py_ssize_t at, Py_ssize_t end)

    cdef unsigned int _hash_shard(self, bytes data, Py_ssize_t key, Py_ssize_t size) except? 0
    cdef int _cut(self, int why, int kind, str field, Py_ssize_t entry, Py_ssize_t need, bint final) except? -1
    cdef int _cut_data(self, int kind, Py_ssize_t entry, Py_ssize_t stop, Py_ssize_t end, bint final) except? -1
    cdef int _broken(self, str problem) except? -1
