"""Reading the log: slots, the reader, and where it begins."""
