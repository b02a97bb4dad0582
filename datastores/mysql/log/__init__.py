"""Reads the log: a dump of a server or a folder, the walk through its events, and the opening of readers at places."""
