"""Any input to a decoder gives a value or the decoder's documented error, in both forms. `make fuzz` runs it."""
