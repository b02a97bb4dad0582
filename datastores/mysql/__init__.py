"""MySQL and MariaDB as a datastore: reads the row binlog through the replication protocol. Never writes to the
server."""
