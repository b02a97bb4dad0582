"""What a reader of the binlog reports, and the check that it read everything.

A reader is a program of any language. Its environment says what to read: ``PEER_HOST``, ``PEER_PORT``, ``PEER_USER``,
``PEER_PASSWORD``, ``PEER_WRITER`` (an account with the same password that may write), ``PEER_FILE`` (the binlog file to
begin with), ``PEER_GTIDS`` (what is before it) and ``PEER_ROWS``. It reads this many rows, prints one line of JSON and
ends::

    {"rows": 1000, "seconds": 0.5, "checksum": 123456}

``seconds``: from the first row to the last. ``checksum``: over all values, of an integer itself, of a text its length
in bytes, of another value 1. A reader that does not look at values prints no checksum. ``peak_mib`` may say how much
memory it took.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from benchmarks.cases import BenchmarkError

__all__ = ["Expected", "Outcome"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a log holds."""

    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reader printed; ``checksum`` is ``None`` when it did not look at values."""

    rows: int
    seconds: float
    checksum: int | None
    peak_mib: float = 0.0

    @classmethod
    def parse(cls, line: str) -> Self:
        """Raises :class:`~benchmarks.cases.BenchmarkError` for a line that is no outcome."""
        try:
            told = json.loads(line)
            checksum = told.get("checksum")
            number = None if checksum is None else int(checksum)
            return cls(int(told["rows"]), float(told["seconds"]), number, float(told.get("peak_mib", 0)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BenchmarkError(f"a reader printed no outcome: {line[:200]!r}") from error

    def check(self, expected: Expected, *, reads_values: bool) -> None:
        """Raises :class:`~benchmarks.cases.BenchmarkError` unless the reader saw every row and read every value."""
        if self.rows != expected.rows:
            raise BenchmarkError(f"it read {self.rows} rows of {expected.rows}")
        if reads_values and self.checksum != expected.checksum:
            raise BenchmarkError(f"its values sum up to {self.checksum}, not to {expected.checksum}")
