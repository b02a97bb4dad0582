"""Reads binlog files of a folder: their names, the GTIDs at their beginning, and their events as packets of a dump."""
