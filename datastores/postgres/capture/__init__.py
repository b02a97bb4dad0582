"""PostgreSQL without replication rights: triggers write each change into a table, which the publisher reads."""
