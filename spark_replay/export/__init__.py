"""Exports a dataset's tables as Delta or Iceberg tables. Each commit moves a table to later places of the log."""
