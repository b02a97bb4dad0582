"""The content of ``snapshot.json``: the places, the tables, and which tables are complete. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from spark_replay.archive.manifest import marker_from_text, marker_to_text
from spark_replay.tables.newest import LogSchema
from spark_replay.tables.updates import UpdatesFile, file_from_json, file_to_json
from wormhole.model.errors import ProtocolError, ReplayError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema

__all__ = ["ABOUT", "SnapshotAbout", "SnapshotShard", "SnapshotTable", "about_from_json", "about_to_json"]

ABOUT: Final = "snapshot.json"
_NAMED: Final = 5  # tables named in one message


@dataclass(frozen=True, slots=True)
class SnapshotShard:
    """One shard. ``begin``: the place where the archive of its rows began. ``marker``: the datamarker after which the
    archive continues. ``lacks``: why rows may be missing; empty: no row is missing.
    """

    begin: str
    marker: Datamarker
    log: str = ""
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """One table that was written. ``lacking``: how many of its ``rows`` have values that the log does not have.
    ``newest``: its newest schemas by log.
    """

    folder: str
    rows: int
    lacking: int = 0
    newest: Mapping[str, LogSchema] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotAbout:
    """A snapshot's content. ``left_out``: tables that cannot be written, with the reason. ``others``: tables not
    requested. ``schemas``: the schemas of the rows, oldest first, then the newest ones. ``updates``: the files of the
    rows.
    """

    dataset: str
    copy: str
    shards: Mapping[str, SnapshotShard]
    tables: Mapping[str, SnapshotTable]
    left_out: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    schemas: tuple[Schema, ...] = ()
    updates: tuple[UpdatesFile, ...] = ()

    @property
    def general(self) -> tuple[str, ...]:
        """The reasons why rows of any table may be missing, also of tables that the snapshot does not know."""
        return tuple(one.lacks for one in self.shards.values() if one.lacks)

    def problems_of(self, table: str) -> tuple[str, ...]:
        """The reasons why a table is not complete; empty if it has every row and every value."""
        own = self._own_problem(table)
        return (*self.general, *([own] if own else []))

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons why some or all tables are not complete."""
        return (*self.general, *self._own(lambda table: True))

    def refusal(self, wants: Callable[[str], bool]) -> str:
        """The reason why an application that ``wants`` these tables cannot start from the snapshot; empty if it can."""
        wanted = [table for table in self._known if wants(table)]
        found = [f"{_listed(wanted)}: {'; '.join(self.general)}" if wanted else "; ".join(self.general)]
        return "; ".join([*(found if self.general else []), *self._own(wants)])

    @property
    def _known(self) -> list[str]:
        return sorted({*self.tables, *self.left_out, *self.others})

    def _own(self, wants: Callable[[str], bool]) -> list[str]:
        return [own for table in self._known if wants(table) and (own := self._own_problem(table))]

    def _own_problem(self, table: str) -> str:
        """The reason why this table is not complete, without the general reasons; empty if it is complete."""
        if (why := self.left_out.get(table)) is not None:
            return f"{table} is left out: {why}"
        if table in self.others:
            return f"it was made without {table}"
        lacking = self.tables[table].lacking
        rows = f"1 row of {table} has" if lacking == 1 else f"{lacking:,} rows of {table} have"
        return f"{rows} values that the log does not hold" if lacking else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def about_to_json(about: SnapshotAbout, created: str) -> dict[str, Any]:
    """The fields of ``snapshot.json``; ``complete`` and ``problems`` are for people and for other programs."""
    return {
        "dataset": about.dataset,
        "copy": about.copy,
        "created": created,
        "complete": not about.problems,
        "problems": about.problems,
        "shards": {
            shard: {
                "from": one.begin,
                "place": str(one.marker.order),
                "marker": marker_to_text(one.marker),
                "whole": not one.lacks,
                "log": one.log,
                "lacks": one.lacks,
            }
            for shard, one in about.shards.items()
        },
        "tables": {
            table: {
                "folder": one.folder,
                "rows": one.rows,
                "complete": not about.problems_of(table),
                "problems": about.problems_of(table),
                "lacking": one.lacking,
                "newest": {
                    log: {"schema": f"{last.schema.id:016x}", "place": last.place.hex()}
                    for log, last in one.newest.items()
                },
            }
            for table, one in about.tables.items()
        },
        "left_out": dict(about.left_out),
        "others": about.others,
        "schemas": [base64.b64encode(schema.canonical).decode() for schema in about.schemas],
        "updates": [file_to_json(file) for file in about.updates],
    }


def about_from_json(given: Mapping[str, Any], where: str) -> SnapshotAbout:
    """Inverse of :func:`about_to_json`. ``where``: the file, for the message.

    Raises :class:`~wormhole.model.errors.ReplayError` for a file that cannot be read.
    """
    try:
        schemas = tuple(Schema.from_canonical(base64.b64decode(text)) for text in given["schemas"])
        by_id = {f"{schema.id:016x}": schema for schema in schemas}
        return SnapshotAbout(
            str(given["dataset"]),
            str(given["copy"]),
            {shard: _shard(one) for shard, one in given["shards"].items()},
            {table: _table(one, by_id) for table, one in given["tables"].items()},
            {str(table): str(why) for table, why in given["left_out"].items()},
            tuple(map(str, given["others"])),
            schemas,
            tuple(file_from_json(one) for one in given["updates"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, ProtocolError, ProtobufDecodeError) as error:
        raise ReplayError(f"{where} cannot be read: {type(error).__name__} {error}", hint="write it anew") from error


def _shard(given: Mapping[str, Any]) -> SnapshotShard:
    marker = marker_from_text(given["marker"])
    return SnapshotShard(str(given["from"]), marker, str(given["log"]), str(given["lacks"]))


def _table(given: Mapping[str, Any], schemas: Mapping[str, Schema]) -> SnapshotTable:
    newest = {
        str(log): LogSchema(schemas[str(one["schema"])], bytes.fromhex(one["place"]))
        for log, one in given["newest"].items()
    }
    return SnapshotTable(str(given["folder"]), int(given["rows"]), int(given["lacking"]), newest)
