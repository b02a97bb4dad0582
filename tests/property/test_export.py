"""An open table that runs carry on has the rows of the database at its places, whatever came between them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from spark_replay.archive.store import ArchiveStore
from spark_replay.export.job import ChangedRows, Work, run
from tests.property.test_rolling_snapshot import Server, seen
from tests.support.archives import write_archive
from tests.support.exported import FORMATS, Format, local_job
from tests.support.seed import SEED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "shop.orders"
ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "0")) // 4


def state(table: pa.Table, names: list[str]) -> dict[int, dict[str, Any]]:
    """The rows by key: the columns that the database has, of others only what is unknown."""
    found = {}
    for row in table.to_pylist():
        unknown = [name for name in row["_unavailable"] or () if name in names]
        found[row["id"]] = {**{name: row[name] for name in names}, "_unavailable": sorted(unknown)}
    assert len(found) == table.num_rows, "a key stands twice"
    return found


def check_round(
    job: Callable[[Work], ChangedRows], number: int, sizes: list[int], base: Path, into: Sequence[str] = FORMATS
) -> list[str]:
    """The log grows by so many transactions before each run. Returns what the runs did."""
    server = Server(random.Random(number))
    states: list[tuple[dict[str, str], dict[int, dict[str, Any]], list[str]]] = []
    formats = {name: Format(name, base) for name in into}
    store: ArchiveStore | None = None
    did = []
    for size in sizes:
        begun = len(server.log)
        server.run(size)
        if size:
            store = write_archive(base / "archive", {"a": [server.log[begun:]]})
        assert store is not None
        versions = {}
        for name, one in formats.items():
            (result,) = one.exporter(store, job=job).run()
            if result.problem is not None:
                raise result.problem
            assert result.rows == len(server.rows)
            versions[name] = result.version
        did.append(result.did)
        states.append((versions, seen(server.rows), list(server.names)))
    for versions, rows, names in states:
        for name, one in formats.items():
            assert state(one.rows(TABLE, versions[name]), names) == rows, (name, versions[name])
    return did


@pytest.mark.parametrize("number", [1, 11])
def test_a_table_is_the_database_s_at_each_of_its_versions(number: int, tmp_path: Path) -> None:
    choice = random.Random(number)
    sizes = [20, 1, *(choice.randrange(1, 20) for _ in range(3)), 0]
    did = check_round(local_job, number, sizes, tmp_path)
    assert did == ["created", *["changed"] * 4, "nothing"]


def test_it_is_when_spark_writes_it(spark: SparkSession, tmp_path: Path) -> None:
    """In one of both formats: Spark writes the same files for each."""
    assert check_round(partial(run, spark), 4, [20, 6], tmp_path, FORMATS[:1]) == ["created", "changed"]


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(ROUNDS))
def test_it_is_after_every_history(spark: SparkSession, round_: int, tmp_path: Path) -> None:
    check_round(partial(run, spark), SEED + round_, [30, 1, 5, 20, 0, 20], tmp_path)
