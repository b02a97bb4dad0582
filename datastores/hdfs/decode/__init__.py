"""Decodes the answers of a NameNode. No I/O."""
