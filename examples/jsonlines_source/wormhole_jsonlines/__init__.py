"""A file of JSON lines as a source: one line is one transaction (docs/write-a-source.md)."""
