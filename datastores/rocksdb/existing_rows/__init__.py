"""Reads the rows that a database holds now, through a secondary instance in a separate process."""
