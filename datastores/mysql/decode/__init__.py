"""MySQL's and MariaDB's binlog: events, rows, values, GTIDs. Pure; written from the formats' public descriptions.

It has more than twenty modules: one for each kind of event, value or encoding of the formats.
"""
