"""The plan and the progress of a baseline, as small files in the snapshot's folder. Pure.

::

    baseline.json                 the beginning and every range; replaced when ranges are added
    baseline/done/NUMBER.json     one range was read; created if absent, so only one of two readers succeeds
    baseline/rows/NAME.parquet    its rows; valid once a file in ``done`` names it
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from spark_replay.archive.json_checksum import check_checksum, with_checksum
from spark_replay.archive.manifest import Manifest, marker_from_text, marker_to_text
from spark_replay.tables.updates import UpdatesFile, file_from_json, file_to_json
from wormhole.model.errors import PositionError, ProtocolError, ReplayError
from wormhole.model.json_input import read_json
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.schema import Schema

__all__ = ["FOLDER", "PLAN", "BaselinePlan", "Done", "KeyRange", "archive_end", "done_path", "of_log", "tasks_of"]

FOLDER: Final = "baseline"
PLAN: Final = f"{FOLDER}.json"
_FORMAT: Final = 1
_ROWS_PER_TASK: Final = 100_000  # small tables share a task with its connection


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows of one table to read: keys above ``after`` and up to ``until`` (``None``: no bound), or only ``keys``.

    ``rows``: about how many. ``round``: a table whose rows have to be read again also has ranges of a later round.
    """

    number: int
    round: int
    log: str
    table: str
    after: bytes | None = None
    until: bytes | None = None
    keys: tuple[bytes, ...] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True)
class BaselinePlan:
    """``scan``: the number in the ids of the rows. ``asked``: the tables that were named. ``begins``: by log, the end
    of its archive before anything was read. ``fingerprints``: by log and table, of the key. ``left_out``: tables that
    cannot be read, with the reason. ``others``: tables that were not requested. ``ranges``: ascending by number.
    """

    dataset: str
    copy: str
    scan: int
    asked: tuple[str, ...]
    begins: Mapping[str, Datamarker]
    fingerprints: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    ranges: tuple[KeyRange, ...] = ()

    @property
    def round(self) -> int:
        """The newest round."""
        return max((one.round for one in self.ranges), default=0)

    def newest(self) -> dict[tuple[str, str], list[KeyRange]]:
        """By log and table, the newest ranges that cover the whole table."""
        found: dict[tuple[str, str], list[KeyRange]] = {}
        for one in self.ranges:
            own = found.setdefault((one.log, one.table), [])
            if not one.keys:
                if own and own[0].round < one.round:
                    own.clear()
                own.append(one)
        return found

    def with_ranges(self, more: Iterable[KeyRange]) -> BaselinePlan:
        """The plan with ``more`` ranges, which are numbered here."""
        added = (replace(one, number=number) for number, one in enumerate(more, len(self.ranges)))
        return replace(self, ranges=(*self.ranges, *added))

    def to_json(self) -> bytes:
        """The file."""
        given = {
            "format": _FORMAT,
            "dataset": self.dataset,
            "copy": self.copy,
            "scan": self.scan,
            "asked": self.asked,
            "begins": {log: marker_to_text(marker) for log, marker in self.begins.items()},
            "fingerprints": self.fingerprints,
            "left_out": self.left_out,
            "others": self.others,
            "ranges": [_range_to_json(one) for one in self.ranges],
        }
        return with_checksum(given)

    @classmethod
    def from_json(cls, data: bytes, where: str) -> BaselinePlan:
        """Inverse of :meth:`to_json`. Raises :class:`~wormhole.model.errors.ReplayError`. ``where``: the file."""
        try:
            given = _read(data)
            return cls(
                str(given["dataset"]),
                str(given["copy"]),
                int(given["scan"]),
                tuple(map(str, given["asked"])),
                {str(log): marker_from_text(text) for log, text in given["begins"].items()},
                {str(log): {str(t): str(f) for t, f in one.items()} for log, one in given["fingerprints"].items()},
                {str(table): str(why) for table, why in given["left_out"].items()},
                tuple(map(str, given["others"])),
                tuple(_range_from_json(number, one) for number, one in enumerate(given["ranges"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError, ProtocolError) as error:
            raise _damaged(where, error) from error


@dataclass(frozen=True, slots=True)
class Done:
    """A range that was read. ``file``: its rows; ``None``: there are none. ``first``: the least ``not_before`` of its
    chunks; each chunk shows every change before its own. ``high``: the place of its last chunk, in the source's terms.
    ``rows``: the number of rows by ``not_before`` of their chunks, counted over all shards. ``shards``: the shards of
    its rows. ``schemas``: the schemas of its chunks.
    """

    number: int
    first: LogPosition
    high: str
    file: UpdatesFile | None = None
    rows: Mapping[LogPosition, int] = field(default_factory=dict)
    shards: tuple[str, ...] = ()
    schemas: tuple[Schema, ...] = ()

    def to_json(self) -> bytes:
        """The file."""
        given = {
            "format": _FORMAT,
            "number": self.number,
            "first": str(self.first),
            "high": self.high,
            "file": None if self.file is None else file_to_json(self.file),
            "rows": {str(place): count for place, count in self.rows.items()},
            "shards": self.shards,
            "schemas": [_text(schema.canonical) for schema in self.schemas],
        }
        return with_checksum(given)

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Done:
        """Inverse of :meth:`to_json`. Raises :class:`~wormhole.model.errors.ReplayError`. ``where``: the file."""
        try:
            given = _read(data)
            return cls(
                int(given["number"]),
                LogPosition.parse(given["first"]),
                str(given["high"]),
                None if given["file"] is None else file_from_json(given["file"]),
                {LogPosition.parse(place): int(count) for place, count in given["rows"].items()},
                tuple(map(str, given["shards"])),
                tuple(Schema.from_canonical(base64.b64decode(text)) for text in given["schemas"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, PositionError, ProtobufDecodeError) as error:
            raise _damaged(where, error) from error


def done_path(number: int) -> str:
    """The path of a :class:`Done`."""
    return f"{FOLDER}/done/{number:08d}.json"


def of_log(log: str, shard: str) -> bool:
    """Whether a shard is of this log."""
    return shard == log or shard.startswith(f"{log}.")


def archive_end(manifests: Iterable[Manifest]) -> Datamarker | None:
    """The greatest end of the archives of a log's shards; a chunk has to show every change before it.

    Changes of other shards before this place may not be archived yet. They will be archived with a place before it.
    """
    ends = [manifest.end for manifest in manifests]
    return replace(max(ends, key=lambda end: end.order), backfill=b"") if ends else None


def tasks_of(ranges: Sequence[KeyRange]) -> list[tuple[KeyRange, ...]]:
    """The ranges of each task, which reads them over one connection. Small ranges share a task.

    The largest ranges are first."""
    found: list[list[KeyRange]] = []
    open_: dict[str, tuple[list[KeyRange], int]] = {}
    for one in sorted(ranges, key=lambda one: -one.rows):
        some, rows = open_.get(one.log, ([], _ROWS_PER_TASK))
        if rows + one.rows > _ROWS_PER_TASK:
            some, rows = [], 0
            found.append(some)
        some.append(one)
        open_[one.log] = some, rows + max(1, one.rows)
    return [tuple(some) for some in found]


def _range_to_json(one: KeyRange) -> dict[str, Any]:
    given: dict[str, Any] = {"round": one.round, "log": one.log, "table": one.table, "rows": one.rows}
    for name, key in (("after", one.after), ("until", one.until)):
        if key is not None:
            given[name] = _text(key)
    return {**given, "keys": [_text(key) for key in one.keys]} if one.keys else given


def _range_from_json(number: int, given: Mapping[str, Any]) -> KeyRange:
    after, until = (None if name not in given else base64.b64decode(given[name]) for name in ("after", "until"))
    keys = tuple(map(base64.b64decode, given.get("keys", ())))
    return KeyRange(
        number, int(given["round"]), str(given["log"]), str(given["table"]), after, until, keys, int(given["rows"])
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _read(data: bytes) -> dict[str, Any]:
    given: dict[str, Any] = read_json(data)
    check_checksum(data)
    if given["format"] > _FORMAT:
        raise ValueError(f"its format is {given['format']}, of a newer release")
    return given


def _damaged(where: str, error: Exception) -> ReplayError:
    return ReplayError(
        f"{where} cannot be read: {type(error).__name__} {error}", hint="begin the baseline in another folder"
    )
