"""The reference for readers: receives the bytes in large pieces and writes them to a sink, unparsed.

Run as ``python -m benchmarks.peers.raw_copy``; see :mod:`benchmarks.peers.outcome`. The server is asked to end at the
log's end, so that the end is seen without parsing. A copy that writes each event by itself (``mariadb-binlog --raw``)
pays a call for each, and is no floor where an event is small.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from typing import Any, Final

import pymysql

__all__ = ["drain", "main"]

_PIECE: Final = 1 << 20
_BINLOG_DUMP: Final = 0x12
_NON_BLOCK: Final = 1
_FILE_BEGIN: Final = 4
_END_BYTES: Final = 9  # the packet that ends the answer: a header of four bytes, 0xfe, warnings, status


def main() -> None:
    """See the module."""
    environment = os.environ
    connection: Any = pymysql.connect(
        host=environment["PEER_HOST"],
        port=int(environment["PEER_PORT"]),
        user=environment["PEER_USER"],
        password=environment["PEER_PASSWORD"],
        ssl_disabled=True,
    )
    connection.query("SET @master_binlog_checksum = @@global.binlog_checksum, @mariadb_slave_capability = 4")
    server_id = (1 << 30) + os.getpid()
    command = struct.pack("<BIHI", _BINLOG_DUMP, _FILE_BEGIN, _NON_BLOCK, server_id)
    command += environment["PEER_FILE"].encode()
    stream: socket.socket = connection._sock  # the driver has no call that leaves the answer unread
    stream.sendall(struct.pack("<I", len(command)) + command)  # three bytes of length, and number 0
    seconds = drain(stream, os.open(os.devnull, os.O_WRONLY))
    print(json.dumps({"rows": int(environment["PEER_ROWS"]), "seconds": seconds}), flush=True)
    os._exit(0)


def drain(stream: socket.socket, sink: int) -> float:
    """Copy what comes until the packet that ends it. Returns the seconds from the first piece to the last.

    Raises ``ConnectionError`` when the stream ends before.
    """
    piece, tail, first = bytearray(_PIECE), b"", 0.0
    view = memoryview(piece)
    while True:
        got = stream.recv_into(piece)
        if not got:
            raise ConnectionError("the server closed the connection before the log's end")
        first = first or time.monotonic()
        os.write(sink, view[:got])
        last = time.monotonic()
        tail = (tail + bytes(view[max(0, got - _END_BYTES) : got]))[-_END_BYTES:]
        if tail[:3] == b"\x05\0\0" and tail[4:5] == b"\xfe" and not _more(stream):
            return last - first


def _more(stream: socket.socket) -> bool:
    """Whether something more has come: those nine bytes were part of a row."""
    stream.settimeout(0.2)
    try:
        return bool(stream.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
    finally:
        stream.settimeout(None)


if __name__ == "__main__":
    main()
