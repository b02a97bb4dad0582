"""Reads the WAL: the records of a file, the cursor over files and gaps, places, and the reader."""
