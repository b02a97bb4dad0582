"""RocksDB as a datastore: reads the write-ahead log (WAL) of a database that another process has open."""
