"""MySQL's and MariaDB's binlog: events, rows, values, GTIDs. Pure; written from the formats' public descriptions."""
