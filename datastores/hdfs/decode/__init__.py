"""Decoding of what a NameNode returns. No I/O."""
