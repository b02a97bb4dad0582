"""Decodes RocksDB's files: log format, write batches, MANIFEST and OPTIONS. Pure; based on public descriptions."""
