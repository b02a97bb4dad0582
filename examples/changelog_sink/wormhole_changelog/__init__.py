"""A sink of its own package: every change becomes a row of a table in a file of SQLite."""
