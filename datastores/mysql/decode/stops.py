"""The reasons for which the encoder stops."""

from __future__ import annotations

from typing import Final

__all__ = ["END", "ERROR", "EVENT", "LARGE", "MORE", "OK", "ROWS", "TABLE", "TRANSACTION"]

OK: Final = 0
"""Everything is consumed, or enough is encoded."""
MORE: Final = 1
"""The data ends inside a packet. ``need``: bytes from the present place with which the encoder could continue (0: not
known)."""
EVENT: Final = 2
"""An event that the caller has to process: ``raw``."""
TABLE: Final = 3
"""An unknown table map: ``raw``. The caller continues after `Encoder.add_table`."""
TRANSACTION: Final = 4
"""A transaction ended, and ``single`` is set."""
END: Final = 5
"""The server ended the stream."""
ERROR: Final = 6
"""The server sent an error: ``raw``."""
LARGE: Final = 7
"""A packet of an event that is too large for memory; see `Encoder.large`."""
ROWS: Final = 8
"""Rows of the last event are left. `Encoder.rows` is open for them. If the event is in memory, ``raw`` begins with the
first of them."""
