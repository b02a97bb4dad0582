"""Open tables: a dataset's tables as Delta or Iceberg. A commit moves a table to later places of the log."""
