"""Pure decoders: bytes of a datastore's log to updates, no I/O."""
