"""Decodes MySQL's and MariaDB's binlog: events, rows, values, GTIDs. Pure; based on public descriptions.

Each kind of event, value or encoding has a module.
"""
