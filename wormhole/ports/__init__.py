"""The ports to the logs, datamarkers and dead letters of a publisher, and to what packages add by entry points."""
