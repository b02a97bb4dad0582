"""RocksDB: tails the write-ahead log of a database that another process has open."""
