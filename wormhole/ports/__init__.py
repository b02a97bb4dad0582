"""The ports to what a publisher reads and keeps: logs, markers, dead letters; and what packages add by entry points."""
