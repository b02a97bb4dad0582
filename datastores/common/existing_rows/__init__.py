"""Existing rows: the common parts for all SQL servers."""
