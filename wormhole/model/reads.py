"""The ids of rows that a backfill read: ``read:<scan>:<chunk>:<index>``. No log contains such ids. Pure.

The rows of one chunk are one transaction, ``<chunk>`` of the source ``read:<scan>``. Its place is the place of the
log's transaction after which the publisher inserted the chunk. So several chunks may have the place of the same
transaction, and :func:`read_order` orders them.
"""

from __future__ import annotations

from typing import Final

__all__ = ["is_read_source", "is_read_transaction", "read_order", "read_source"]

_PREFIX: Final = "read:"


def read_source(scan: int) -> str:
    """The source of the transactions of scan number ``scan``."""
    return f"{_PREFIX}{scan}"


def is_read_source(source: str) -> bool:
    """Whether a transaction's source is a scan, not a log."""
    return source.startswith(_PREFIX) and source[len(_PREFIX) :].isdecimal()


def is_read_transaction(transaction: str) -> bool:
    """Whether a transaction's id is the id of a chunk."""
    return is_read_source(transaction.rpartition(":")[0])


def read_order(transaction: str) -> tuple[int, int]:
    """(scan, chunk) of a transaction's id. It is (0, 0) for a transaction of a log, which precedes every chunk at its
    place.
    """
    source, _, chunk = transaction.rpartition(":")
    return (int(source[len(_PREFIX) :]), int(chunk)) if is_read_source(source) else (0, 0)
