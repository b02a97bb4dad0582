"""What can happen to an SQLite database: nothing is lost, and nothing that was lost is silent."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.sources import open_source
from tests.integration.test_sqlite_source import Shop
from tests.support.eventually import until
from tests.support.seed import SEED
from tests.support.sqlite_harness import install
from tests.support.sqlite_statements import TABLES, Statements, delivered, stored
from wormhole.model.errors import Diverged, PositionPurged, SourceUnavailable, WormholeError
from wormhole.model.loss import LossKind
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.images import LogImages
from wormhole.ports.testing.reading import Read, read_log, read_until

_ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "2"))
_MODES = ["WAL", "DELETE"] if "WORMHOLE_ROUNDS" in os.environ else ["WAL"]
_WRITER = """
import sqlite3, sys
from tests.support.sqlite_statements import Statements
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
statements = Statements(connection, int(sys.argv[2]))
while True:
    statements.transaction()
    print("committed", flush=True)
"""
SIMPLE = "CREATE TABLE t (k TEXT PRIMARY KEY, v INTEGER)"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, "?max_changes=1000", tables=SIMPLE)
    yield shop
    shop.close()


def put(shop: Shop, first: int, count: int) -> Datamarker:
    for n in range(first, first + count):
        shop.writer.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (f"{n:05}", n))
    return shop.source.latest()


def keys(shop: Shop, marker: Datamarker) -> list[object]:
    return read_log(shop.source, marker).keys()


def replace_file(shop: Shop, saved: Path) -> None:
    shop.writer.close()
    for suffix in ("-wal", "-shm"):
        Path(f"{shop.path}{suffix}").unlink(missing_ok=True)
    shutil.copy(saved, f"{saved}.copy")
    os.replace(f"{saved}.copy", shop.path)
    shop.writer = shop.connect()


def save(shop: Shop, folder: Path) -> Path:
    path = folder / "saved.db"
    saved = sqlite3.connect(path)
    shop.writer.backup(saved)
    saved.close()
    return path


@pytest.mark.parametrize("mode", _MODES)
def test_a_writer_is_killed_at_any_moment(tmp_path: Path, mode: str) -> None:
    shop = Shop(tmp_path, mode=mode, tables=TABLES)
    images = LogImages(shop.source, shop.source.earliest())
    chance = random.Random(SEED)
    for seed in range(SEED, SEED + _ROUNDS):
        print("seed", seed)
        arguments = [sys.executable, "-c", _WRITER, str(shop.path), str(seed)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 30)):
                writer.stdout.readline()
            images.read_on()
            writer.send_signal(signal.SIGKILL)
        images.read_on()
        assert delivered(images) == stored(shop.writer), f"seed {seed}"
    images.close()
    shop.close()


def test_a_vacuum_changes_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    images = LogImages(shop.source, shop.source.earliest())
    statements = Statements(shop.writer, SEED)
    for _ in range(5):
        statements.transaction()
        shop.writer.execute("VACUUM")
        images.read_on()
    assert delivered(images) == stored(shop.writer)
    assert not shop.source.status().problems
    images.close()
    shop.close()


@pytest.mark.parametrize("written", [0, 3, 30])
def test_a_backup_that_replaces_the_file_is_noticed(shop: Shop, tmp_path: Path, written: int) -> None:
    begin = shop.source.latest()
    before = put(shop, 0, 5)
    saved = save(shop, tmp_path)
    after = put(shop, 5, 10)
    reader = shop.source.open(after)
    replace_file(shop, saved)
    put(shop, 100, written)
    with pytest.raises(SourceUnavailable):
        reader.read(1 << 20, 0.0)
    reader.close()
    with pytest.raises(Diverged) as error:
        shop.source.open(after)
    assert (error.value.first_missing, error.value.last_missing) == (str(int(before.delivered) + 1), after.delivered)
    assert keys(shop, before) == [f"{n:05}" for n in range(100, 100 + written)]
    assert keys(shop, shop.source.locate(error.value.resume)) == keys(shop, before)
    assert keys(shop, begin)[:5] == [f"{n:05}" for n in range(5)]


def test_a_backup_is_restored_into_the_file(shop: Shop, tmp_path: Path) -> None:
    before = put(shop, 0, 5)
    saved = save(shop, tmp_path)
    after = put(shop, 5, 10)
    source = sqlite3.connect(saved)
    source.backup(shop.writer)
    source.close()
    put(shop, 100, 20)
    with pytest.raises(Diverged):
        shop.source.open(after)
    assert len(keys(shop, before)) == 20


def test_another_installation_is_another_log(shop: Shop) -> None:
    marker = put(shop, 0, 5)
    for (name,) in shop.writer.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        shop.writer.execute(f"DROP TRIGGER {name}")
    for name in ("change", "table", "capture"):
        shop.writer.execute(f"DROP TABLE wormhole_{name}")
    with pytest.raises(WormholeError) as missing:
        shop.source.latest()
    assert missing.value.code == "objects-missing"
    install(shop.path)
    put(shop, 5, 20)
    with pytest.raises(Diverged):
        shop.source.open(marker)


def test_a_folder_that_is_lost_is_recorded_anew(shop: Shop) -> None:
    begin = shop.source.latest()
    inside = put(shop, 0, 5)
    put(shop, 5, 5)
    shop.source.stop()
    shutil.rmtree(shop.state)
    shop.source = shop.open()
    assert keys(shop, begin) == [f"{n:05}" for n in range(10)]
    assert {f"{n:05}" for n in range(5, 10)} <= set(keys(shop, inside)), "its transaction is delivered as a whole"


def test_changes_that_another_publisher_deleted_are_reported(shop: Shop) -> None:
    marker = put(shop, 0, 5)
    shop.source.stop()
    for n in range(5, 9):
        shop.writer.execute("INSERT INTO t VALUES (?, ?)", (f"{n:05}", n))
    shop.writer.execute("DELETE FROM wormhole_change WHERE seq < (SELECT max(seq) FROM wormhole_change)")
    shop.source = shop.open()
    with pytest.raises(PositionPurged) as error:
        shop.source.open(marker)
    assert error.value.first_missing == str(int(marker.delivered) + 1)


def test_a_second_publisher_is_refused_while_the_first_one_lives(shop: Shop, tmp_path: Path) -> None:
    marker = put(shop, 0, 5)
    (tmp_path / "link.db").symlink_to(shop.path)
    for name in (shop.path, tmp_path / "link.db"):
        second = open_source(f"sqlite://{name}", log="log", state_dir=tmp_path / "second", sharding=Sharding("log"))
        with pytest.raises(SourceUnavailable, match=str(os.getpid())) as error:
            second.start()
        second.stop()
        assert error.value.code == "already-running"
    reading = open_source(
        shop.url, log="log", state_dir=tmp_path / "tail", sharding=Sharding("log"), transient=True
    )  # `wormholectl tail` deletes nothing
    reading.start()
    assert reading.latest() == marker
    reading.stop()
    shop.source.stop()
    second.start()
    second.stop()
    shop.source = shop.open()


def test_a_table_that_is_rebuilt_and_captured_again(shop: Shop) -> None:
    marker = put(shop, 0, 3)
    Statements(shop.writer, SEED).rebuild("t")
    shop.writer.execute("INSERT INTO t VALUES ('unseen', 1)")
    lost = read_log(shop.source, marker)
    assert (lost.replaced, lost.updates) == ({"t"}, [])
    shop.writer.execute("INSERT INTO t VALUES ('unseen too', 1)")
    install(shop.path, ())
    again = read_log(shop.source, lost.markers[-1])
    assert again.replaced == {"t"}
    assert not shop.source.status().problems
    put(shop, 7, 1)
    assert keys(shop, again.markers[-1]) == ["00007"]


@pytest.mark.parametrize("what", ["insert", "update", "delete"])
def test_a_trigger_that_was_dropped_is_noticed(shop: Shop, what: str) -> None:
    marker = put(shop, 0, 3)
    (name,) = shop.writer.execute("SELECT name FROM sqlite_schema WHERE name LIKE ?", (f"%_{what}",)).fetchone()
    shop.writer.execute(f"DROP TRIGGER {name}")
    assert read_log(shop.source, marker).replaced == {"t"}
    assert [problem.code for problem in shop.source.status().problems] == ["objects-missing"]


def test_alter_table_keeps_the_triggers(shop: Shop) -> None:
    marker = put(shop, 0, 1)
    for statement in (
        'ALTER TABLE t RENAME COLUMN k TO "the key"',
        "ALTER TABLE t ADD COLUMN more TEXT DEFAULT 'x'",
        "ALTER TABLE t DROP COLUMN v",
    ):
        shop.writer.execute(statement)
        shop.source.latest()
    shop.writer.execute("INSERT INTO t VALUES ('new', 'y')")
    read = read_log(shop.source, marker)
    assert [(update.key, update.after) for update in read.updates] == [(("new",), ("new", "y"))]
    assert (read.replaced, shop.source.status().problems) == (set(), ())
    shop.writer.execute('ALTER TABLE t RENAME TO "the table"')
    shop.writer.execute("INSERT INTO \"the table\" VALUES ('newer', 'z')")
    renamed = read_log(shop.source, read.markers[-1])
    assert [update.table for update in renamed.updates] == ["the table"]
    assert (renamed.replaced, shop.source.status().problems) == ({"the table"}, ())


def test_a_table_that_is_dropped_and_one_that_is_captured_later(shop: Shop) -> None:
    marker = put(shop, 0, 1)
    shop.writer.execute("DROP TABLE t")
    shop.writer.execute("CREATE TABLE later (id INTEGER PRIMARY KEY)")
    shop.writer.execute("INSERT INTO later VALUES (1)")
    assert not keys(shop, marker)
    install(shop.path)
    shop.writer.execute("INSERT INTO later VALUES (2)")
    read = read_log(shop.source, marker)
    assert (read.keys(), read.replaced) == ([2], {"later"})


def test_a_full_change_table_stops_the_record_and_no_write(shop: Shop) -> None:
    begin = shop.source.latest()
    put(shop, 0, 10)
    shop.source.stop()
    shop.writer.execute("BEGIN")
    for n in range(10, 1_500):
        shop.writer.execute("INSERT INTO t VALUES (?, ?)", (f"{n:05}", n))
    shop.writer.execute("COMMIT")
    assert shop.writer.execute("SELECT count(*) FROM t").fetchone() == (1_500,)
    shop.source = shop.open()
    put(shop, 1_500, 3)
    read = read_log(shop.source, begin)
    assert [gap.kind for gap in read.gaps] == [LossKind.NOT_LOGGED]
    assert read.keys() == [f"{n:05}" for n in (*range(1_000), *range(1_500, 1_503))]
    assert shop.writer.execute("SELECT count(*) FROM wormhole_change").fetchone()[0] < 10


def test_what_every_flow_has_is_deleted_from_the_database(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastores.sqlite.source._PRUNED_S", 0.0)
    monkeypatch.setattr("datastores.sqlite.source._LEAST_PRUNED", 1)
    put(shop, 0, 50)
    marker = put(shop, 50, 1)
    put(shop, 51, 9)
    shop.source.release(marker.order)

    def left() -> int:
        return int(shop.writer.execute("SELECT min(seq) FROM wormhole_change").fetchone()[0])

    until(lambda: left() == marker.order.offset, "released changes stay in the database")
    assert len(keys(shop, marker)) == 9


@pytest.mark.parametrize("key", [None, b"\xff", 1.5])
def test_a_key_that_no_update_can_have_holds_the_flow(shop: Shop, key: object) -> None:
    shop.writer.execute("CREATE TABLE n (id INTEGER PRIMARY KEY, k INT UNIQUE)")
    marker = put(shop, 0, 1)
    shop.writer.execute("BEGIN")
    shop.writer.execute("INSERT INTO t VALUES ('before', 1)")
    wanted = "CAST(? AS TEXT)" if isinstance(key, bytes) else "?"
    shop.writer.execute(f"INSERT INTO t VALUES ({wanted}, 2)", (b"x" if key == 1.5 else key,))
    shop.writer.execute("INSERT INTO t VALUES ('behind', 3)")
    shop.writer.execute("COMMIT")
    read = read_log(shop.source, marker)
    assert read.keys() == ["before", "behind"]
    (error,) = read.broken
    assert (error.tables, error.update_id.rpartition(":")[2], bool(error.hint)) == (("t",), "1", True)
    assert [update.id.rpartition(":")[2] for update in read.updates] == ["0", "2"]


def test_values_of_every_class_in_columns_of_every_type(shop: Shop) -> None:
    shop.writer.execute("CREATE TABLE v (id INTEGER PRIMARY KEY, i INT, r REAL, t TEXT, b BLOB, n NUMERIC, d DATE, x)")
    install(shop.path, ("v",))
    marker = shop.source.latest()
    shop.writer.execute(
        "INSERT INTO v VALUES (1, 9223372036854775807, 1e300, CAST(x'ff' AS TEXT), x'00ff', 12.5, 7, 'x'), "
        "(2, 'text', -0.0, char(0) || 'a', NULL, '1e400', '2026-01-01', 3), (-5, x'01', 1, 5, 'b', 'n', 1.5, 2.5)"
    )
    values = {update.key[0]: [str(one) for one in update.after[1:]] for update in read_log(shop.source, marker).updates}
    assert values == {
        1: ["9223372036854775807", "1e+300", "b'\\xff'", "b'\\x00\\xff'", "12.5", "7", "x"],
        2: ["text", "0.0", "\x00a", "None", "inf", "2026-01-01", "3"],
        -5: ["b'\\x01'", "1.0", "5", "b", "n", "1.5", "2.5"],
    }


def test_a_locked_database_is_an_error_that_passes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastores.sqlite.database._BUSY_S", 0.05)
    shop.source.stop()
    shop.writer.execute("PRAGMA journal_mode = DELETE")
    shop.writer.execute("BEGIN EXCLUSIVE")
    source = open_source(shop.url, log="log", state_dir=shop.state, sharding=Sharding("log"))
    with pytest.raises(SourceUnavailable) as error:
        source.start()
    assert error.value.hint
    source.stop()
    shop.writer.execute("COMMIT")
    shop.source = shop.open()
    begin = shop.source.latest()
    put(shop, 0, 2)
    assert len(keys(shop, begin)) == 2


def test_a_full_disk_of_the_application_stops_nothing(shop: Shop) -> None:
    begin = put(shop, 0, 1)
    shop.writer.execute("PRAGMA max_page_count = 20")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        for n in range(10_000):
            shop.writer.execute("INSERT INTO t VALUES (?, 0)", ("x" * 100 + str(n),))
    shop.writer.execute("PRAGMA max_page_count = 1000000")
    put(shop, 1, 1)
    assert len(keys(shop, begin)) == shop.writer.execute("SELECT count(*) - 1 FROM t").fetchone()[0]


def test_one_reader_over_changes_in_the_middle(shop: Shop) -> None:
    reader = shop.source.open(shop.source.latest())
    read = Read()
    for n in range(3):
        put(shop, n, 1)
        read_until(reader, shop.source.latest().order, into=read)
    assert read.keys() == ["00000", "00001", "00002"]
    reader.close()
