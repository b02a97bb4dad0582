"""The reasons why the encoder stops."""

from __future__ import annotations

from typing import Final

__all__ = ["END", "ERROR", "EVENT", "LARGE", "MORE", "OK", "ROWS", "TABLE", "TRANSACTION"]

OK: Final = 0
"""All data is consumed, or enough is encoded."""
MORE: Final = 1
"""The data ends within a packet. ``need``: how many bytes, counted from the present offset, the encoder must have to
continue (0: unknown)."""
EVENT: Final = 2
"""The caller must process the event in ``raw``."""
TABLE: Final = 3
"""The table map in ``raw`` is unknown. The caller continues after `Encoder.add_table`."""
TRANSACTION: Final = 4
"""A transaction ended, and ``single`` is set."""
END: Final = 5
"""The server ended the stream."""
ERROR: Final = 6
"""The server sent the error in ``raw``."""
LARGE: Final = 7
"""The packet begins an event that is too large for memory; see `Encoder.large`."""
ROWS: Final = 8
"""Rows of the last event are left, and `Encoder.rows` is open for them. If the event is in memory, ``raw`` begins with
the first of them."""
