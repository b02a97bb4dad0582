import cython

cdef Py_ssize_t _PLACE
cdef Py_ssize_t _INSIDE

@cython.locals(
    cuts=list, place="const unsigned char[::1]", number="const long long[::1]", source="const int[::1]", end="const int[::1]",
    stop="const unsigned int[::1]", n=Py_ssize_t, stopping=Py_ssize_t, s=Py_ssize_t, start=Py_ssize_t, i=Py_ssize_t, at=Py_ssize_t,
    before=Py_ssize_t, same=bint, inside=bint, cut=bint, k=Py_ssize_t, size=Py_ssize_t,
)
cpdef list boundaries(object places, object numbers, object sources, object ends, object stops, Py_ssize_t limit, bint whole)

@cython.locals(
    end="const int[::1]", count=Py_ssize_t, out="unsigned int[::1]", view="const unsigned char[::1]", blob="unsigned char[::1]",
    size=Py_ssize_t, i=Py_ssize_t, first=Py_ssize_t, length=Py_ssize_t, at=Py_ssize_t,
)
cpdef tuple framed(object data, object ends, Py_ssize_t begin, Py_ssize_t stop)

@cython.locals(
    place="const unsigned char[::1]", number="const long long[::1]", source="const int[::1]", index_of="const int[::1]",
    out="unsigned int[::1]", counting=bint, expected=Py_ssize_t, i=Py_ssize_t, new=bint, at=Py_ssize_t, k=Py_ssize_t, index=Py_ssize_t,
)
cpdef tuple grouped(object places, object numbers, object sources, object indexes, Py_ssize_t begin, Py_ssize_t stop, bint whole)
