cdef class Columns:
    cdef readonly object layout
    cdef readonly int count
    cdef readonly bytes kinds
    cdef readonly unsigned int[::1] metas
    cdef readonly unsigned int[::1] sizes
    cdef readonly bytes widths
    cdef readonly bytes keyed
    cdef readonly int json
