import cython

cdef unsigned int _PARTIAL
cdef unsigned int _LARGE
cdef Py_ssize_t _PLACE
cdef unsigned char _NULL
cdef unsigned char _UNAVAILABLE
cdef unsigned char _BOOL
cdef bint _COMPILED

@cython.locals(
    view="const unsigned char[::1]", in_sizes="const int[::1]", out_ops="unsigned char[::1]", out_flags="unsigned char[::1]",
    out_keys="int[::1]", out_olds="int[::1]", total=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t, stop=Py_ssize_t, op="long long",
    flag="unsigned int", old_size=Py_ssize_t, key_begin=Py_ssize_t, key_end=Py_ssize_t, field=Py_ssize_t, tag="unsigned int",
    value="long long", shift=int, byte="long long", keys=list, old_keys=list,
)
cpdef tuple scan(bytes blob, object sizes, object ops, object flags, object key_sizes, object old_sizes)

@cython.locals(
    count=Py_ssize_t, transactions=Py_ssize_t, given=bint, many_files=bint, many_sources=bint, many_times=bint,
    in_end="const unsigned int[::1]", in_file="const unsigned long long[::1]", in_offset="const unsigned long long[::1]",
    in_index="const unsigned int[::1]", in_number="const unsigned long long[::1]", in_source="const int[::1]",
    in_time="const long long[::1]", out_place="unsigned char[::1]", out_number="unsigned long long[::1]",
    out_source="int[::1]", out_time="long long[::1]", out_index="int[::1]", out_ends="unsigned char[::1]", begin=Py_ssize_t,
    t=Py_ssize_t, stop=Py_ssize_t, born="unsigned int", file="unsigned long long", offset="unsigned long long",
    number="unsigned long long", source=int, time="long long", base=Py_ssize_t, i=Py_ssize_t, index=Py_ssize_t, at=Py_ssize_t,
    k=Py_ssize_t, total=Py_ssize_t, last=Py_ssize_t, row=Py_ssize_t,
)
cpdef object spread(
    object tx_end, Py_ssize_t ended, object incarnation, object files_in, object offsets_in, Py_ssize_t first_index, object indexes,
    object places, object numbers_in, object sources_in, object times_in, object numbers, object sources, object times,
    object tx_indexes, object ends_tx, Py_ssize_t first
)

@cython.locals(
    kind="unsigned char[::1]", number="unsigned long long[::1]", size="int[::1]", i=Py_ssize_t,
)
cpdef object copy_missing(
    object kinds, object numbers, object sizes, Py_ssize_t source, Py_ssize_t target, Py_ssize_t count
)

@cython.locals(kind="unsigned char[::1]", wanted="const unsigned char[::1]", c=Py_ssize_t, i=Py_ssize_t)
cpdef object empty(object kinds, Py_ssize_t count, Py_ssize_t first, Py_ssize_t columns, object rows)

@cython.locals(
    kind="const unsigned char[::1]", out="unsigned char[::1]", until=Py_ssize_t, c=Py_ssize_t, first="unsigned char",
    i=Py_ssize_t, one="unsigned char",
)
cpdef tuple kinds_of(object kinds, Py_ssize_t count, bytes declared)

@cython.locals(value="const unsigned char[::1]", bit="unsigned char[::1]", zeros=Py_ssize_t, i=Py_ssize_t)
cpdef Py_ssize_t bits_of_bytes(object values, Py_ssize_t begin, Py_ssize_t count, object out, Py_ssize_t at)

@cython.locals(
    p="const unsigned char *", kind="const unsigned char[::1]", number="const unsigned long long[::1]",
    size="const int[::1]", type_of="const unsigned char[::1]", byte="unsigned char[::1]", word="unsigned long long[::1]",
    integer="int[::1]", end=Py_ssize_t, c=Py_ssize_t, wanted="unsigned char", cell=Py_ssize_t, missing=Py_ssize_t,
    total="long long", i=Py_ssize_t, slot=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, source=Py_ssize_t, k=Py_ssize_t,
    fixed=Py_ssize_t,
)
cpdef Py_ssize_t write_columns(
    bytes data, object kinds, object numbers, object sizes, Py_ssize_t count, Py_ssize_t first, object types, object out,
    Py_ssize_t body, Py_ssize_t at, list nodes, list buffers
)

@cython.locals(
    number_of="const unsigned long long[::1]", source_of="const int[::1]", byte="unsigned char[::1]", integer="int[::1]",
    count=Py_ssize_t, end=Py_ssize_t, slot=Py_ssize_t, start=Py_ssize_t, at=Py_ssize_t, previous=Py_ssize_t,
    length=Py_ssize_t, number="unsigned long long", source=int, i=Py_ssize_t, text=bytes, p="const unsigned char *",
    k=Py_ssize_t,
)
cpdef Py_ssize_t write_ids(object numbers, object sources, list texts, object out, Py_ssize_t offsets)

@cython.locals(
    code_of="const int[::1]", ends_of="const int[::1]", p="const unsigned char *", byte="unsigned char[::1]",
    integer="int[::1]", count=Py_ssize_t, end=Py_ssize_t, slot=Py_ssize_t, start=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t,
    code=int, begin=Py_ssize_t, length=Py_ssize_t, k=Py_ssize_t,
)
cpdef Py_ssize_t write_names(object codes, bytes names, object ends, object out, Py_ssize_t offsets)

@cython.locals(
    kind="const unsigned char[::1]", bit="unsigned char[::1]", out_offset="int[::1]", total=Py_ssize_t, i=Py_ssize_t,
    c=Py_ssize_t, at=Py_ssize_t, out="int[::1]",
)
cpdef tuple unavailable(object kinds, Py_ssize_t begin, Py_ssize_t columns, Py_ssize_t count)
