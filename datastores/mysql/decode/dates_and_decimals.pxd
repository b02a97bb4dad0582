import cython

cdef int _ZERO
cdef int _MINUS
cdef int _POINT
cdef int _COLON
cdef int _SPACE
cdef bytes _DIGIT_BYTES

cpdef int size_of_fraction(int digits) noexcept

@cython.locals(whole=int, sizes="const unsigned char *")
cpdef int size_of_decimal(int precision, int scale) except -1

@cython.locals(o="unsigned char *", i=int)
cdef Py_ssize_t _digits(bytearray out, Py_ssize_t at, unsigned int n, int count) except -2

@cython.locals(o="unsigned char *")
cpdef Py_ssize_t put_date(bytearray out, Py_ssize_t at, unsigned int year, unsigned int month, unsigned int day) except -2

@cython.locals(o="unsigned char *")
cdef Py_ssize_t _clock(bytearray out, Py_ssize_t at, unsigned int hour, unsigned int minute, unsigned int second) except -2

@cython.locals(p="const unsigned char *", n="unsigned long long", i=int)
cdef unsigned long long _big_endian(bytes data, Py_ssize_t at, int size) noexcept

@cython.locals(o="unsigned char *", kept=int, most="unsigned int")
cdef Py_ssize_t _fraction(bytearray out, Py_ssize_t at, unsigned int stored, int digits) except -2

@cython.locals(o="unsigned char *")
cdef Py_ssize_t _moment(bytearray out, Py_ssize_t at, unsigned int year, unsigned int month, unsigned int day, unsigned int seconds) except -2

@cython.locals(packed="unsigned long long", sign=int, months="unsigned int", hour="unsigned int", minute="unsigned int", second="unsigned int")
cpdef Py_ssize_t put_datetime2(bytearray out, Py_ssize_t at, bytes data, Py_ssize_t start, int digits) except -2

@cython.locals(p="const unsigned char *", n="unsigned long long", i=int, clock="unsigned int", day="unsigned long long", seconds="unsigned int")
cpdef Py_ssize_t put_datetime(bytearray out, Py_ssize_t at, bytes data, Py_ssize_t start) except -2

@cython.locals(days="unsigned int", era="unsigned int", of_era="unsigned int", year="unsigned int", of_year="unsigned int", month="unsigned int", day="unsigned int")
cpdef Py_ssize_t put_timestamp(bytearray out, Py_ssize_t at, unsigned int seconds, unsigned int stored, int digits) except -2

@cython.locals(o="unsigned char *", fraction_bits=int, packed="unsigned long long", middle="unsigned long long", clock="unsigned long long")
cpdef Py_ssize_t put_time2(bytearray out, Py_ssize_t at, bytes data, Py_ssize_t start, int digits) except -2

@cython.locals(p="const unsigned char *", o="unsigned char *", n="unsigned int")
cpdef Py_ssize_t put_time(bytearray out, Py_ssize_t at, bytes data, Py_ssize_t start) except -2

@cython.locals(
    p="const unsigned char *", o="unsigned char *", sizes="const unsigned char *", flip="unsigned int", first=Py_ssize_t, whole=int,
    left=int, leading=bint, count=int, n="unsigned int", i=Py_ssize_t, j=Py_ssize_t, end=Py_ssize_t,
)
cpdef Py_ssize_t put_decimal(bytearray out, Py_ssize_t at, bytes data, Py_ssize_t start, int precision, int scale) except -2
