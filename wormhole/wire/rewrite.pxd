import cython

cdef int _KEEP
cdef int _NULL
cdef int _HASH
cdef bytes _NULL_VALUE

@cython.locals(
    n=Py_ssize_t, in_ends="const unsigned int[::1]", out_ends="unsigned int[::1]", flags="unsigned char[::1]", many=bint,
    index="const unsigned int[::1]", out=bytearray, begin=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, size=Py_ssize_t,
    known=dict,
)
cpdef tuple rewritten(bytes blob, object ends, object schema_index, object plans, object kept, object hashed)

@cython.locals(
    codes="const unsigned char *", columns=Py_ssize_t, start=Py_ssize_t, head=Py_ssize_t, size=Py_ssize_t, rest=Py_ssize_t,
    last=Py_ssize_t, begin=Py_ssize_t, prefix=bytearray, after=Py_ssize_t, before=Py_ssize_t,
    copied=Py_ssize_t, field=Py_ssize_t, tag="unsigned int", length="long long", shift=int, byte="long long",
    stop=Py_ssize_t, number=Py_ssize_t, code=int, p="const unsigned char *",
)
cdef void _add_row(bytearray out, bytes view, Py_ssize_t at, Py_ssize_t end, bytes plan, dict known, object hashed) except *

cdef bytes _hashed(bytes value, dict known, object hashed)
