"""PostgreSQL: logical decoding over the replication protocol, with its own output plugin, pgoutput."""
