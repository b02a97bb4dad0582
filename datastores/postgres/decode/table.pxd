cdef class Table:
    cdef readonly str name
    cdef readonly tuple columns
    cdef readonly int count
    cdef readonly bytes kinds
    cdef readonly bytes identity
    cdef readonly object key_array
    cdef readonly unsigned int[::1] key
    cdef readonly bytes keyed
    cdef readonly unsigned int schema
    cdef readonly unsigned int shard
    cdef readonly unsigned int barrier_schema
    cdef readonly unsigned int barrier_shard
    cdef readonly bint skipped
    cdef readonly object error
    cdef readonly bint inserts
    cdef readonly object to_utf8
