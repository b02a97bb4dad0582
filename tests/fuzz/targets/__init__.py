"""One module per decoder or family of decoders; each has ``TARGETS``, a list of `tests.fuzz.target.Target`."""
