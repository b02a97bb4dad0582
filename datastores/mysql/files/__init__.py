"""Binlog files as bytes: their names, the GTIDs at their beginning, and their events as packets of a dump."""
