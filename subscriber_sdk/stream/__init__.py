"""The protocol of one stream, without I/O: a publisher's frames in, events out, and the answers to them."""
