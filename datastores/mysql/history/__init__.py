"""Keeps the histories of the servers that were read, and checks that the log belongs to one of them."""
