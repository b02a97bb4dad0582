"""Reads the rows that a server's tables hold now, in chunks, for backfills."""
