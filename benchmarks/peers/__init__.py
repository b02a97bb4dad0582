"""``make bench CASE=peers``: one MariaDB binlog, read by this project and by other programs."""
