"""The SQL mirror: tables of another database hold the rows of the source's tables."""
