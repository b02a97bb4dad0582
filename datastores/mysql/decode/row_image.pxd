import cython

from datastores.common.encode.entries cimport Entries
from datastores.common.encode.wire_bytes cimport is_ascii, put_varint, valid_utf8, varint_size
from datastores.mysql.decode.columns cimport Columns
from datastores.mysql.decode.floats cimport Singles
from datastores.mysql.decode.json_text cimport print_json
from datastores.mysql.decode.dates_and_decimals cimport (
    put_date,
    put_datetime,
    put_datetime2,
    put_decimal,
    put_time,
    put_time2,
    put_timestamp,
)

cdef int INT
cdef int UINT
cdef int TEXT
cdef int BYTES
cdef int CODED
cdef int PADDED
cdef int DATETIME2
cdef int TIMESTAMP2
cdef int TIME2
cdef int DATE
cdef int DECIMAL
cdef int DOUBLE
cdef int FLOAT
cdef int HIDDEN
cdef int ENUM
cdef int SET
cdef int BIT
cdef int YEAR
cdef int JSON
cdef int TIME
cdef int DATETIME
cdef int TIMESTAMP
cdef int COMPRESSED
cdef int OLD
cdef int ASCII_SAFE
cdef int _ENTRY_ROOM
cdef int _TEXT_AT
cdef int _V_BYTES
cdef int _V_TEXT
cdef int _V_INT
cdef int _V_UINT
cdef int _V_DOUBLE
cdef int _V_DECIMAL
cdef int _V_NULL
cdef int _SLICED
cdef int _PATCHED
cdef long long _LIMIT

@cython.final
cdef class Image(Entries):
    cdef Singles _singles
    cdef object _json_start_array
    cdef object _json_end_array
    cdef long long[::1] _json_starts
    cdef long long[::1] _json_ends

    cdef int _documents(self, int count) except -1

    @cython.locals(
        p="const unsigned char *", b="const unsigned char *", kinds="const unsigned char *", metas="unsigned int[::1]",
        sizes="unsigned int[::1]", starts="unsigned int[::1]", here="unsigned char *", changes=Py_ssize_t, change=int,
        nulls=Py_ssize_t, null=int, used=Py_ssize_t, out=bytearray, o="unsigned char *", c=int, kind=int, partial=bint,
        is_null=bint, size=Py_ssize_t, negative=bint, flip="unsigned int", n="unsigned long long", i=Py_ssize_t,
        stop=Py_ssize_t, meta="unsigned int", length=Py_ssize_t, member=bytes,
    )
    cpdef Py_ssize_t read(
        self, bytes data, Py_ssize_t at, Py_ssize_t end, Columns columns, bytes bits, int count, unsigned char tag, Image before,
        bytes source=*
    ) except -1

    @cython.locals(total=Py_ssize_t, text=bytes, tag=int, padded=bytes)
    cdef Py_ssize_t _string(
        self, Py_ssize_t used, int kind, unsigned int meta, Columns columns, int c, bytes data, Py_ssize_t at, Py_ssize_t length
    ) except -1

    cdef Py_ssize_t _put_kept(self, Py_ssize_t used, unsigned char tag, Columns columns, int c, bytes value) except -1

    @cython.locals(out=bytearray, o="unsigned char *", stop=Py_ssize_t)
    cdef Py_ssize_t _number(self, Py_ssize_t used, unsigned char tag, unsigned long long n) except -1

    @cython.locals(p="const unsigned char *", out=bytearray, seconds="unsigned int", stored="unsigned int", i=int)
    cdef Py_ssize_t _text(self, Py_ssize_t used, int kind, unsigned int meta, bytes data, Py_ssize_t at) except -2

    @cython.locals(p="const unsigned char *", length=Py_ssize_t, i=Py_ssize_t, left=Py_ssize_t)
    cdef Py_ssize_t _length(self, Columns columns, int c, Py_ssize_t size, bytes data, Py_ssize_t at, Py_ssize_t end) except -1

    @cython.locals(meta=int, length=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t _json(
        self, Py_ssize_t used, Columns columns, int c, bytes data, Py_ssize_t at, Py_ssize_t end, Image before, bytes source
    ) except -1

    @cython.locals(size=Py_ssize_t, raw=bytes)
    cdef Py_ssize_t _changed_document(
        self, Py_ssize_t used, Columns columns, int c, bytes data, Py_ssize_t start, Py_ssize_t end, Image before, bytes source
    ) except -1

    @cython.locals(begin=Py_ssize_t, stop=Py_ssize_t)
    cdef Py_ssize_t _document(
        self, Py_ssize_t used, Columns columns, int c, bytes data, Py_ssize_t start, Py_ssize_t end
    ) except -1

    @cython.locals(length=Py_ssize_t, out=bytearray, o="unsigned char *", i=Py_ssize_t)
    cdef Py_ssize_t _text_at(self, Py_ssize_t used, Py_ssize_t begin, Py_ssize_t stop) except -1

    @cython.locals(begin=Py_ssize_t, stop=Py_ssize_t, text=bytes)
    cdef Py_ssize_t _coded(
        self, Py_ssize_t used, Columns columns, int c, bytes data, Py_ssize_t at, Py_ssize_t length
    ) except -1

    cpdef Py_ssize_t document_size(self, int c) except -2
    cpdef object document(self, bytes data, int c)

    @cython.locals(meta=int, length=Py_ssize_t, raw=bytes, tag=int)
    cdef Py_ssize_t _compressed(
        self, Py_ssize_t used, Columns columns, int c, bytes data, Py_ssize_t at, Py_ssize_t end
    ) except -1

    @cython.locals(members=list)
    cdef bytes _members(self, Columns columns, int c, int kind, unsigned long long n)
