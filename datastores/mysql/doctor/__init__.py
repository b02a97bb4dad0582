"""`wormholectl doctor` for MySQL and MariaDB: findings on settings, tables, a folder of binlog files, and growth."""
