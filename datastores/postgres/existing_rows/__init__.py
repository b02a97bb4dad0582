"""The rows that PostgreSQL's tables hold now."""
