"""Reading the log: a dump of a server or a folder, the walk through its events, and where a reader begins."""
