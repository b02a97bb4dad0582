"""``make bench CASE=postgres``: one PostgreSQL WAL, read by this project and by other programs."""
