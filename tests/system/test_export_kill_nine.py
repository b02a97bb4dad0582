"""An export that is killed with -9 at any moment applies every change once, and what it leaves is removed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from scripts.prepare import ROOT
from tests.property.test_export import TABLE, state
from tests.property.test_rolling_snapshot import Server, seen
from tests.support.archives import write_archive
from tests.support.eventually import until
from tests.support.exported import FORMATS, Format
from tests.support.seed import SEED
from tests.support.spark_java import environment

_EXPORT = """
import sys
from pathlib import Path
from spark_replay.archive.store import open_store
from tests.support.exported import FORMATS, Format
base = Path(sys.argv[1])
store = open_store(str(base / "archive"), "orders")
lakes = [Format(name, base) for name in FORMATS]
print("ready", flush=True)
for lake in lakes:
    (result,) = lake.exporter(store).run()
    print(result.did, result.problem, flush=True)
"""
_CONFIG = """version = 1
[coordinator]
static = true
[datasets.orders.archive]
to = "archive"
application = "archive"
[datasets.orders.copies.main.logs.db1]
source = "mysql://ann@localhost"
[applications.archive]
dataset = "orders"
start = "earliest"
"""
ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "2"))
_LONGEST_S = 0.5  # a run takes about as long


def test_every_change_counts_once(tmp_path: Path) -> None:
    choice = random.Random(SEED)
    server = Server(choice)
    begun = 0
    for _ in range(ROUNDS):
        server.run(choice.randrange(1, 12))
        store = write_archive(tmp_path / "archive", {"a": [[*server.log[begun:]]]})
        begun = len(server.log)
        process = subprocess.Popen(
            [sys.executable, "-c", _EXPORT, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(choice.uniform(0, _LONGEST_S))  # any moment will do
            process.kill()
            assert "wormhole.model" not in process.stdout.read()
    for name in FORMATS:
        lake = Format(name, tmp_path)
        (last,) = lake.exporter(store).run()
        assert last.problem is None
        rows: dict[int, dict[str, Any]] = state(lake.rows(TABLE), server.names)
        assert rows == seen(server.rows)
        for _ in range(2):  # what it left goes with the next run after the table has moved on
            server.run(3)
            store = write_archive(tmp_path / "archive", {"a": [[*server.log[begun:]]]})
            begun = len(server.log)
            (last,) = lake.exporter(store).run()
            assert last.problem is None
    assert not list(tmp_path.rglob("_wormhole/*.json"))


def test_spark_is_killed_with_the_export_in_the_middle(tmp_path: Path) -> None:
    """The next run applies what the first did not commit, and of the first one's Spark nothing is left."""
    server = Server(random.Random(SEED))
    server.run(40)
    write_archive(tmp_path / "archive", {"a": [[*server.log]]})
    (tmp_path / "shop.toml").write_text(_CONFIG)
    (tmp_path / "temporary").mkdir()
    lake = tmp_path / "lake" / TABLE

    def begun() -> subprocess.Popen[str]:
        words = ["export", "delta", "orders", "--to", str(lake.parent), "--master", "local[2]", "-c", "shop.toml"]
        return subprocess.Popen(
            [sys.executable, "-m", "wormholectl", *words],
            cwd=tmp_path,
            env={**os.environ, **environment(), "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def folders() -> list[Path]:
        return list((tmp_path / "temporary").glob("wormhole-spark-*"))

    with begun() as first:
        until(lambda: [*lake.rglob("*.parquet")] or first.poll() is not None, "no file of the table is written")
        assert first.poll() is None, first.communicate()[0]
        assert folders()
        first.kill()
    until(lambda: not folders(), "the JVM leaves its files behind")
    with begun() as second:
        said = second.communicate()[0]
    assert second.returncode == 0, said
    rows = pa.table(DeltaTable(str(lake)).to_pyarrow_table())
    assert state(rows, server.names) == seen(server.rows)
    until(lambda: not folders(), "the JVM leaves its files behind")
