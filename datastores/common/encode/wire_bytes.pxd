import cython

cdef int _COPIED
cdef int _SLICED

@cython.locals(size=int)
cpdef int varint_size(unsigned long long n) noexcept

@cython.locals(o="unsigned char *")
cpdef Py_ssize_t put_varint(bytearray out, Py_ssize_t at, unsigned long long n) except -1

@cython.locals(o="unsigned char *", p="const unsigned char *", size=Py_ssize_t, i=Py_ssize_t)
cpdef Py_ssize_t copy_bytes(bytearray out, Py_ssize_t at, object source, Py_ssize_t start, Py_ssize_t end) except -1

@cython.locals(p="const unsigned char *", bits="unsigned int", i=Py_ssize_t)
cpdef bint is_ascii(bytes data, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(p="const unsigned char *", first="unsigned int", low="unsigned int", high="unsigned int", more=Py_ssize_t, i=Py_ssize_t)
cpdef bint valid_utf8(bytes data, Py_ssize_t at, Py_ssize_t end) except -1
