import cython

cdef unsigned int _PARTIAL
cdef unsigned int _LARGE
cdef Py_ssize_t _PLACE
cdef Py_ssize_t _INSIDE

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
    k=Py_ssize_t,
)
cpdef object spread(
    object tx_end, Py_ssize_t ended, object incarnation, object files_in, object offsets_in, Py_ssize_t first_index, object indexes,
    object places, object numbers_in, object sources_in, object times_in, object numbers, object sources, object times,
    object tx_indexes, object ends_tx
)

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
