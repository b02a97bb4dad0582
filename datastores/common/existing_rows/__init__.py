"""Existing rows of the SQL servers: what is the same for all of them."""
