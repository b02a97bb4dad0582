"""``SELECT *`` through the driver, unbuffered, every row read: prints its seconds.

Run as ``python -m benchmarks.row_select PORT TABLE``.
"""

from __future__ import annotations

import sys
import time

import pymysql
from pymysql.cursors import SSCursor

if __name__ == "__main__":
    port, table = sys.argv[1:]
    connection = pymysql.connect(host="127.0.0.1", port=int(port), user="root", ssl_disabled=True)
    started = time.monotonic()
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        for _ in cursor:
            pass
    print(time.monotonic() - started, flush=True)
    connection.close()
