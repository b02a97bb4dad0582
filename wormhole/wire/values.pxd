import cython

cdef bint _COMPILED
cdef int _AFTER
cdef int _BEFORE
cdef unsigned char _UPDATES
cdef Py_ssize_t _DEPTH
cdef unsigned long long _LONGEST
cdef unsigned long long _MASK

@cython.locals(
    p="const unsigned char *", op="unsigned long long", large=int, at=Py_ssize_t, tag="unsigned int", kind=int,
    stop=Py_ssize_t,
)
cpdef unsigned long long check(bytes data, Py_ssize_t begin, Py_ssize_t end) except? 0xFFFFFFFFFFFFFFFF

cpdef tuple values(bytes data, Py_ssize_t begin, Py_ssize_t end, unsigned int field)

@cython.locals(found=list, count=Py_ssize_t, i=Py_ssize_t, row=dict)
cpdef dict named(bytes data, Py_ssize_t begin, Py_ssize_t end, unsigned int field, tuple names)

@cython.locals(p="const unsigned char *", found=list, at=Py_ssize_t)
cpdef list known(bytes data, Py_ssize_t begin, Py_ssize_t end, unsigned int field)

@cython.locals(
    p="const unsigned char *", k=Py_ssize_t, r=Py_ssize_t, at=Py_ssize_t, tag="unsigned int", stop=Py_ssize_t, column=list,
)
cpdef bint gather(bytes data, Py_ssize_t begin, Py_ssize_t end, list keys, list rows) except -1

@cython.locals(
    p="const unsigned char *", span="const long long[::1]", base="const int[::1]", width="const int[::1]",
    kind_of="unsigned char[::1]", number_of="unsigned long long[::1]", size_of="int[::1]", op_of="unsigned char[::1]",
    found="long long[::1]", i=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, image=int, k=int, at=Py_ssize_t,
    tag="unsigned int", stop=Py_ssize_t, field=int, j=Py_ssize_t, cell=Py_ssize_t, kind=int, start=Py_ssize_t,
    last=Py_ssize_t, raw="unsigned long long", part="unsigned long long",
)
cpdef object locate(
    bytes data, object spans, Py_ssize_t first, Py_ssize_t count, object bases, object widths, object kinds, object numbers,
    object sizes, object ops, bint falls_back=*
)

cpdef object one_value(bytes data, Py_ssize_t begin, Py_ssize_t end)

@cython.locals(
    p="const unsigned char *", kind_of="const unsigned char[::1]", number_of="const unsigned long long[::1]",
    size_of="const int[::1]", cell=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, at=Py_ssize_t, digits=Py_ssize_t,
    points=int,
)
cpdef object check_decimals(
    bytes data, object kinds, object numbers, object sizes, Py_ssize_t begin, Py_ssize_t end
)

@cython.locals(
    p="const unsigned char *", size=Py_ssize_t, updates=Py_ssize_t, at=Py_ssize_t, out="long long[::1]", others=list,
    begin=Py_ssize_t, i=Py_ssize_t, tag="unsigned int",
)
cpdef tuple split(bytes data)

@cython.locals(
    p="const unsigned char *", at="const long long[::1]", size=Py_ssize_t, pieces=list, i=Py_ssize_t,
    begin=Py_ssize_t, end=Py_ssize_t,
)
cpdef list cut(bytes data, object spans)

@cython.locals(
    p="const unsigned char *", found=list, wanted="unsigned int", at=Py_ssize_t, tag="unsigned int", stop=Py_ssize_t,
)
cdef list _values(bytes data, Py_ssize_t begin, Py_ssize_t end, unsigned int field)

@cython.locals(tag="unsigned int")
cdef Py_ssize_t _check_value(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(tag="unsigned int", names=list, contents=list, kind=int, begin=Py_ssize_t, stop=Py_ssize_t)
cdef object _value(const unsigned char *p, Py_ssize_t at, Py_ssize_t end)

@cython.locals(number="unsigned long long", half="long long")
cdef object _made(const unsigned char *p, int kind, Py_ssize_t begin, Py_ssize_t end)

@cython.locals(
    found="unsigned int", begin=Py_ssize_t, stop=Py_ssize_t, tag="unsigned int", kind=int, number="unsigned int",
    last=Py_ssize_t,
)
cdef tuple _walked(const unsigned char *p, Py_ssize_t at, Py_ssize_t end, list names, list contents)

@cython.locals(tag="unsigned int", kind=int, last=Py_ssize_t)
cdef void _add_entries(const unsigned char *p, Py_ssize_t at, Py_ssize_t end, list names, list contents) except *

@cython.locals(seen="unsigned char", i=Py_ssize_t)
cdef Py_ssize_t _check_text(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(tag="unsigned int", kind=int)
cdef Py_ssize_t _field_end(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(groups=list, kind=int)
cdef Py_ssize_t _passed(const unsigned char *p, Py_ssize_t at, Py_ssize_t end, unsigned int tag, Py_ssize_t depth) except -1

@cython.locals(stop=Py_ssize_t, tag="unsigned long long")
cdef unsigned int _tag(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except 0

@cython.locals(stop=Py_ssize_t, length="unsigned long long", left="unsigned long long")
cdef Py_ssize_t _stop(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(most=Py_ssize_t)
cdef Py_ssize_t _number_end(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(value="unsigned long long", shift=int, part="unsigned long long")
cdef unsigned long long _number(const unsigned char *p, Py_ssize_t at, Py_ssize_t stop) noexcept
