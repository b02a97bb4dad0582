from datastores.common.encode.row_updates cimport RowTable

cdef class Table(RowTable):
    cdef readonly tuple columns
    cdef readonly bytes kinds
    cdef readonly bytes identity
    cdef readonly bytes keyed
    cdef readonly unsigned int barrier_schema
    cdef readonly unsigned int barrier_shard
    cdef readonly bint skipped
    cdef readonly object error
    cdef readonly bint inserts
    cdef readonly object to_utf8
