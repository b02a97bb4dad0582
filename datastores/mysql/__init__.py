"""MySQL and MariaDB: the row binlog over the replication protocol. Never writes to the server."""
