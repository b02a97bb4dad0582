"""Reads an existing snapshot, as the start of a replay or of the next snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_replay.tables.about import ABOUT, SnapshotAbout, about_from_json
from spark_replay.tables.folder import Folder
from spark_replay.tables.schemas import attach
from spark_replay.tables.updates import read_updates
from wormhole.model.errors import ReplayError
from wormhole.model.position import Datamarker
from wormhole.model.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Start", "about_start", "read_about", "snapshot_rows", "start_rows"]


@dataclass(frozen=True)
class Start:
    """A snapshot to begin a replay with. ``of``: returns the rows of a shard, or of all shards for an empty name: the
    archive's columns and ``shard``, in no order. Each row is an update that creates the row. ``places``: by shard, the
    datamarker after which the archive continues. ``schemas``: by unsigned id."""

    of: Callable[[str], DataFrame]
    places: Mapping[str, Datamarker]
    schemas: Mapping[int, Schema] = field(default_factory=dict)


def _every_table(table: str) -> bool:
    return True


def start_rows(
    spark: SparkSession, to: str, dataset: str, copy: str = "", wants: Callable[[str], bool] = _every_table
) -> Start:
    """The snapshot in ``to`` as the start of a replay of ``dataset``, from the archive of ``copy``, to an application
    that ``wants`` these tables.

    Raises :class:`~wormhole.model.errors.ReplayError` for a snapshot in which a wanted table is not complete, of
    another dataset or copy, or that cannot be read.
    """
    about = about_start(to, dataset, copy, wants)
    places = {shard: one.marker for shard, one in about.shards.items()}
    rows = snapshot_rows(spark, to, about)
    return Start(rows, places, {schema.id: schema for schema in about.schemas})


def snapshot_rows(spark: SparkSession, to: str, about: SnapshotAbout) -> Callable[[str], DataFrame]:
    """The rows of the snapshot in ``to``; see :class:`Start`."""
    storage = Folder(to, ABOUT).storage

    def rows(shard: str) -> DataFrame:
        return attach(read_updates(spark, storage, about.updates, **({"shard": shard} if shard else {})), about.schemas)

    return rows


def about_start(to: str, dataset: str, copy: str = "", wants: Callable[[str], bool] = _every_table) -> SnapshotAbout:
    """The content of ``snapshot.json`` in ``to``, read without Spark. Raises as :func:`start_rows`."""
    about = read_about(to, dataset, copy)
    if why := about.refusal(wants):
        raise ReplayError(
            f"the snapshot in {to} is no start for a replay: {why}",
            hint="a start has every row and value of the tables that the application wants; a table that is not "
            "complete can be left out of its `tables`",
            code="snapshot-unusable",
        )
    return about


def read_about(to: str, dataset: str, copy: str = "") -> SnapshotAbout:
    """The content of ``snapshot.json`` in ``to``, whether the snapshot is complete or not.

    Raises :class:`~wormhole.model.errors.ReplayError` for a snapshot of another dataset or copy, or that cannot be
    read.
    """
    about = about_from_json(Folder(to, ABOUT).about(), f"{to}/{ABOUT}")
    if about.dataset != dataset:
        raise ReplayError(
            f"the snapshot in {to} is of {about.dataset}, not of {dataset}",
            hint="name another folder",
            code="snapshot-unusable",
        )
    if copy and about.copy != copy:
        raise ReplayError(
            f"the snapshot in {to} is of copy {about.copy}, not of {copy}: their places do not compare",
            hint="name another folder",
            code="snapshot-unusable",
        )
    return about
