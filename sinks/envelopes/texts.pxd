cpdef str value_text(object value)

cpdef str list_text(object values)

cpdef str row_text(object values)

cpdef str object_of(object texts)
