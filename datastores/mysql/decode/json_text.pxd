import cython

from datastores.mysql.decode.dates_and_decimals cimport put_decimal, size_of_decimal

cdef int _MAX_DEPTH
cdef int _LARGE
cdef int _ARRAY
cdef int _LITERAL
cdef int _UINT16
cdef int _UINT32
cdef int _DOUBLE
cdef int _STRING
cdef int _OPAQUE
cdef bytes _SIZES
cdef bytes _ESCAPES
cdef bytes _DIGITS
cdef int _FOUR_DIGITS
cdef int _NUMBER
cdef unsigned long long _MASK
cdef int _TIMESTAMP
cdef int _DATE
cdef int _TIME
cdef int _DATETIME
cdef int _DECIMAL
cdef int _VAR_STRING
cdef int _BASE64_LINE
cdef int _MOST_DIGITS

cdef str _double(double x)

cdef str _moment(int column_type, object packed)

cdef class _Printer:
    cdef bytes data
    cdef Py_ssize_t start
    cdef Py_ssize_t begin
    cdef Py_ssize_t left
    cdef bytearray out
    cdef Py_ssize_t used
    cdef Py_ssize_t last

    cdef int reserve(self, Py_ssize_t size) except -1

    @cython.locals(size=Py_ssize_t, p="const unsigned char *", o="unsigned char *", at=Py_ssize_t, i=Py_ssize_t)
    cdef int put(self, bytes text) except -1

    cdef object fail(self, str problem, Py_ssize_t at)

    cdef int spend(self, Py_ssize_t size, Py_ssize_t at) except -1

    @cython.locals(p="const unsigned char *", n="unsigned long long", byte="unsigned long long", shift=int, i=int)
    cdef unsigned long long number(self, Py_ssize_t at, int size) noexcept

    @cython.locals(sizes="const unsigned char *", size=Py_ssize_t)
    cdef int value(self, int kind, Py_ssize_t at, Py_ssize_t end, int depth) except -1

    @cython.locals(
        p="const unsigned char *", large=int, is_object=bint, width=int, inline=int, count=Py_ssize_t, size=Py_ssize_t,
        keys=Py_ssize_t, entries=Py_ssize_t, header=Py_ssize_t, i=Py_ssize_t, key=Py_ssize_t, length=Py_ssize_t,
        entry=Py_ssize_t, child=int, offset=Py_ssize_t,
    )
    cdef int container(self, int kind, Py_ssize_t at, Py_ssize_t end, int depth) except -1

    @cython.locals(sizes="const unsigned char *", n="unsigned long long", top=int, x=double)
    cdef int scalar(self, int kind, Py_ssize_t at) except -1

    @cython.locals(o="unsigned char *", end=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t)
    cdef int digits(self, unsigned long long n) except -1

    @cython.locals(p="const unsigned char *", first=Py_ssize_t, size=Py_ssize_t, shift=int, byte=Py_ssize_t)
    cdef Py_ssize_t bytes_at(self, Py_ssize_t at, Py_ssize_t end) except -1

    @cython.locals(
        p="const unsigned char *", o="unsigned char *", escapes="const unsigned char *", digits="const unsigned char *",
        room=Py_ssize_t, to=Py_ssize_t, i=Py_ssize_t, byte=int,
    )
    cdef int quoted(self, Py_ssize_t at, Py_ssize_t size) except -1

    @cython.locals(column_type=int, size=Py_ssize_t, begin=Py_ssize_t, i=Py_ssize_t, stop=Py_ssize_t)
    cdef int opaque(self, Py_ssize_t at, Py_ssize_t end) except -1

    @cython.locals(precision=int, scale=int, end=Py_ssize_t)
    cdef int decimal(self, Py_ssize_t at, Py_ssize_t size) except -1

@cython.locals(printer=_Printer)
cpdef Py_ssize_t print_json(
    bytes data, Py_ssize_t start, Py_ssize_t end, bytearray out, Py_ssize_t at, Py_ssize_t limit
) except -2

@cython.locals(stop=Py_ssize_t)
cdef int _check_utf8(bytearray text, Py_ssize_t at, Py_ssize_t end) except -1

cpdef bytes json_utf8(bytes data, Py_ssize_t start, Py_ssize_t end)

cpdef str json_text(bytes data, Py_ssize_t start, Py_ssize_t end)
