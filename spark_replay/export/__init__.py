"""Open tables: a dataset's tables as Delta or Iceberg; each commit moves one from places of the log to later ones."""
