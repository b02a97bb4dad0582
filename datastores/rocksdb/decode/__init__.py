"""RocksDB's files: log format, write batches, MANIFEST and OPTIONS. Pure; work from the format's public description."""
