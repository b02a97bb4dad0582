"""The rows that a database holds now, read by a secondary instance in a separate process."""
