import cython

cdef int _BLOCK
cdef int _HEADER
cdef int _LONG_HEADER
cdef int _FULL
cdef int _FIRST
cdef int _MIDDLE
cdef int _LAST
cdef int _MORE
cdef int _META
cdef int _ROOM
cdef int _STALE
cdef int _ZERO
cdef int _BAD_CHECKSUM
cdef int _BAD_LENGTH
cdef int _BAD_ORDER
cdef int _UNKNOWN_KIND

cdef class Frames:
    cdef public Py_ssize_t capacity
    cdef public Py_ssize_t count
    cdef public Py_ssize_t record_at
    cdef public Py_ssize_t fault_at
    cdef public object starts
    cdef public object ends
    cdef public object heads
    cdef public object kinds
    cdef unsigned int[::1] _starts
    cdef unsigned int[::1] _ends
    cdef unsigned int[::1] _heads
    cdef unsigned char[::1] _kinds

@cython.locals(crc="unsigned long long")
cdef unsigned long long _checksum(bytes data, Py_ssize_t start, Py_ssize_t end)

@cython.locals(
    p="const unsigned char *", size=Py_ssize_t, number="unsigned long long", room=Py_ssize_t, count=Py_ssize_t,
    record_at=Py_ssize_t, record_count=Py_ssize_t, open_record=bint, status=int, left=Py_ssize_t, kind=int,
    length=Py_ssize_t, header=Py_ssize_t, end=Py_ssize_t, stored="unsigned long long", found="unsigned long long",
)
cpdef tuple frame(
    bytes data, long long base, Py_ssize_t at, unsigned long long log_number, Frames frames, bint inside, bint partial
)
