"""The state of a table in our commits: its dataset, and the place in each shard up to which it has the log. Pure.

It is stored in the metadata of the table's own commit, so rows and places change together or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from spark_replay.archive.manifest import marker_from_text, marker_to_text
from spark_replay.tables.about import SnapshotAbout, SnapshotShard
from spark_replay.tables.columns import TableColumn
from wormhole.model.errors import PositionError, ProtocolError, ReplayError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Column

__all__ = ["KEY", "Exported", "ExportedShard", "state_from_text", "state_to_text"]

KEY: Final = "wormhole"
"""Key of the metadata in a commit."""
FORMAT: Final = 1
ANEW: Final = "export into another place, or drop this table and export it anew"


@dataclass(frozen=True, slots=True)
class ExportedShard:
    """One shard in the table, which has everything up to ``marker``.

    ``log``: the log of that place. ``file``: the last file of the archive that was read. Rows that a
    backfill read at that place are new if they are in a later file.
    """

    marker: Datamarker
    log: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class Exported:
    """``table``: its name in the database. ``key`` and ``columns``: its own, without ours. ``run``: the random name of
    the run that committed. ``at_us``: the time of the commit, by the run's clock.
    """

    dataset: str
    copy: str
    table: str
    shards: Mapping[str, ExportedShard]
    key: tuple[Column, ...]
    columns: tuple[TableColumn, ...]
    run: str
    at_us: int

    def about(self) -> SnapshotAbout:
        """The state in the form of a snapshot, after which the next updates are selected."""
        shards = {shard: SnapshotShard("", one.marker, one.log) for shard, one in self.shards.items()}
        return SnapshotAbout(self.dataset, self.copy, shards, {})

    def check(self, dataset: str, copy: str, table: str, where: str) -> None:
        """Raise :class:`~wormhole.model.errors.ReplayError` for the table of another export."""
        for what, mine, given in (
            ("dataset", dataset, self.dataset),
            ("copy", copy, self.copy),
            ("table", table, self.table),
        ):
            if mine != given:
                raise ReplayError(
                    f"{where} belongs to another export: it is of {what} {given}, not of {mine}", hint=ANEW
                )


def state_to_text(state: Exported) -> str:
    """JSON for the metadata of a commit."""
    return json.dumps(
        {
            "format": FORMAT,
            "release": _release(),
            "dataset": state.dataset,
            "copy": state.copy,
            "table": state.table,
            "run": state.run,
            "at": _utc(state.at_us),
            "at_us": state.at_us,
            "key": [[column.name, column.type] for column in state.key],
            "columns": [[column.name, column.shown, column.type] for column in state.columns],
            "shards": {shard: _shard_to_json(one) for shard, one in sorted(state.shards.items())},
        },
        ensure_ascii=False,
    )


def _shard_to_json(one: ExportedShard) -> dict[str, Any]:
    at_us = one.marker.committed_at_us
    return {
        "place": str(one.marker.order),
        "committed_at": _utc(at_us) if at_us else None,
        "log": one.log,
        "file": one.file,
        "marker": marker_to_text(one.marker),
    }


def _utc(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds")


def _release() -> str:
    try:
        return version("wormhole-pubsub")
    except PackageNotFoundError:
        return ""


def state_from_text(text: str, where: str) -> Exported:
    """Inverse of :func:`state_to_text`. ``where``: for the message.

    Raises :class:`~wormhole.model.errors.ReplayError` for text that cannot be read.
    """
    try:
        given = json.loads(text)
        newer = given["format"] > FORMAT
        if not newer:
            return Exported(
                str(given["dataset"]),
                str(given["copy"]),
                str(given["table"]),
                {
                    str(shard): ExportedShard(marker_from_text(one["marker"]), str(one["log"]), str(one["file"]))
                    for shard, one in given["shards"].items()
                },
                tuple(Column(str(name), str(kind)) for name, kind in given["key"]),
                tuple(TableColumn(str(name), str(shown), str(kind)) for name, shown, kind in given["columns"]),
                str(given["run"]),
                int(given["at_us"]),
            )
    except (ValueError, KeyError, TypeError, AttributeError, ProtocolError, PositionError) as error:
        raise ReplayError(
            f"what {where} says of its places cannot be read: {type(error).__name__} {error}", hint=ANEW
        ) from error
    raise ReplayError(
        f"{where} was written by a newer release: the format of its places is {given['format']}",
        hint="install the release that wrote it, or a later one",
    )
