"""Reads the rows that PostgreSQL's tables hold now."""
