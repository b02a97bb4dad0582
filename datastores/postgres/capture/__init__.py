"""PostgreSQL without replication rights: triggers write each change into a table, and a publisher reads that table."""
