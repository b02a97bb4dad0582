"""mysql-replication alone: iterates the rows of one binlog and prints how many a second.

Run as ``python -m benchmarks.mysql_replication HOST PORT USER PASSWORD FILE ROWS``.
"""

from __future__ import annotations

import sys
import time
import warnings

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    host, port, user, password, file, rows = sys.argv[1:]
    stream = BinLogStreamReader(
        connection_settings={"host": host, "port": int(port), "user": user, "passwd": password},
        server_id=4_000_000_000,
        log_file=file,
        log_pos=4,
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    seen, started = 0, time.monotonic()
    for event in stream:
        seen += len(event.rows)
        if seen >= int(rows):
            break
    print(seen / (time.monotonic() - started), flush=True)
    stream.close()
