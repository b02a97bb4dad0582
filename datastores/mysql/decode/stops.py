"""Why the encoder stopped."""

from __future__ import annotations

from typing import Final

__all__ = ["END", "ERROR", "EVENT", "LARGE", "MORE", "OK", "ROWS", "TABLE", "TRANSACTION"]

OK: Final = 0
"""Everything is consumed, or enough is encoded."""
MORE: Final = 1
"""The data ends inside a packet; ``need`` bytes from the place where it stopped would hold more of the event (0: not
known)."""
EVENT: Final = 2
"""An event that the caller has to look at: ``raw``."""
TABLE: Final = 3
"""A table map that is not known: ``raw``; `Encoder.add_table`, then go on."""
TRANSACTION: Final = 4
"""A transaction ended, and ``single`` is set."""
END: Final = 5
"""The server ended the stream."""
ERROR: Final = 6
"""The server sent an error: ``raw``."""
LARGE: Final = 7
"""A packet of an event that is too large to be held whole; `Encoder.large`."""
ROWS: Final = 8
"""Rows of the last event are left: `Encoder.rows` is open for them, and ``raw`` begins with the first, where it is
held."""
