"""`wormholectl doctor` for PostgreSQL: findings about the database, and the SQL that creates missing objects."""
