"""The rows that the tables of a server hold now, read in chunks for backfills."""
