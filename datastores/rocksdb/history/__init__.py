"""Finds the WAL files of a database, keeps them from deletion, and checks that they are of one history."""
