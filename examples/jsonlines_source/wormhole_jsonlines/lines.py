"""The file: a first line ``{"file": 1, "before": 0}``, then one line for each transaction.

``{"seq": 1, "at_us": 1700000000000000, "changes": [["put", "users", "7", "Ada"], ["delete", "users", "8"]]}``.
``seq`` rises by one. A writer that wants to forget old lines writes another file, with the next number in ``file`` and
the last ``seq`` of the one before in ``before``, and renames it over the old one. A last line without its end is not
written yet.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from wormhole.model.errors import DecodeError, SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition

__all__ = ["File", "Line"]

INCARNATION = 1


@dataclass(frozen=True, slots=True)
class Line:
    """A transaction, and the datamarker after it."""

    begin: LogPosition
    seq: int
    at_us: int
    changes: list[Any]
    marker: Datamarker


class File:
    """The file as it is now; a context manager. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise SourceUnavailable(f"{path}: {error.strerror}", hint="check the path and its permissions") from error
        head = self._json(self._file.readline())
        self.number: int = head["file"]
        self.before: int = head["before"]
        place = LogPosition(INCARNATION, self.number, self._file.tell())
        self.begin = Datamarker(place, str(self.before), place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def size(self) -> int:
        """Bytes written so far."""
        return self._path.stat().st_size

    def lines(self, after: Datamarker) -> Iterator[Line]:
        """The whole lines behind a marker of this file."""
        self._file.seek(after.order.offset)
        begin = after.order
        while (text := self._file.readline()).endswith(b"\n"):
            found = self._json(text)
            order = LogPosition(INCARNATION, self.number, begin.offset + len(text))
            anchor = Anchor(f"jsonlines:{found['seq']}", zlib.crc32(text), begin)
            marker = Datamarker(order, str(found["seq"]), order, anchor, found["at_us"])
            yield Line(begin, found["seq"], found["at_us"], found["changes"], marker)
            begin = order

    def line_at(self, place: LogPosition) -> Line | None:
        """The line that begins at a place, if one does."""
        self._file.seek(place.offset - 1)
        if self._file.read(1) != b"\n":
            return None
        return next(self.lines(Datamarker(place, "", place)), None)

    def _json(self, text: bytes) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise DecodeError(f"{self._path}: a line is no JSON", hint="repair the file") from error
