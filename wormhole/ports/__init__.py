"""The ports (interfaces) of log sources, table sources and stores, and the entry points by which packages add some."""
