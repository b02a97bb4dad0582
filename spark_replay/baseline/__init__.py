"""The rows that tables hold already, read in parallel, as the first snapshot of an archive that began after them."""
