import cython

cdef unsigned int _ALL

@cython.locals(view="unsigned int[::1]", i=Py_ssize_t)
cpdef object uniform(object column, Py_ssize_t n)

@cython.locals(
    n=Py_ssize_t, transactions=Py_ssize_t, ended=Py_ssize_t, ends="unsigned int[::1]", shard_of="unsigned int[::1]",
    tx_end="unsigned int[::1]", out_ends="unsigned int[::1]", out_index="unsigned int[::1]", out="unsigned int[::1]",
    count=Py_ssize_t, size=Py_ssize_t, begin=Py_ssize_t, run_start=Py_ssize_t, run_end=Py_ssize_t, t=Py_ssize_t, last=bint,
    stop=Py_ssize_t, before=Py_ssize_t, i=Py_ssize_t, of="unsigned int", start=Py_ssize_t, parts=list, picked_tx=list,
)
cdef object _pick(
    object piece, unsigned int shard, object files, object times, Py_ssize_t first_index, bint opened, tuple sources
)
