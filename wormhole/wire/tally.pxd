import cython

cdef long long _WINDOW_US
cdef unsigned long long _MASK
cdef unsigned long long _FIRST
cdef unsigned long long _SECOND

cdef unsigned long long _mixed(unsigned long long number) noexcept

@cython.locals(
    salts="unsigned long long[::1]", tx_sources="unsigned int[::1]", numbers="unsigned long long[::1]",
    times="long long[::1]", ends="unsigned int[::1]", index="unsigned int[::1]", transactions=Py_ssize_t, ended=Py_ssize_t,
    many_sources=bint, many_times=bint, scattered=bint, salt="unsigned long long", window="long long", present="long long",
    count=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t, tx=Py_ssize_t, i=Py_ssize_t,
    sum_="unsigned long long", weight="unsigned long long", first="unsigned long long",
)
cpdef dict tally_columns(
    object sources, object tx_source, object tx_number, object tx_committed_at_us, object tx_end, object indexes,
    object first_index, Py_ssize_t updates
)
