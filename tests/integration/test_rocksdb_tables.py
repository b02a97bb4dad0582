"""Existing rows of RocksDB stores as their owners really write them, read by another process beside them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rocksdict import AccessType, Options, Rdict, SliceTransform, SstFileWriter, WriteOptions

from datastores.rocksdb.datastore import DATASTORE
from datastores.rocksdb.existing_rows.source import RocksTables
from datastores.rocksdb.source import RocksSource
from tests.support.eventually import until
from tests.support.librocksdb import TransactionStore
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import SourceUnavailable, UnreadableTable, UsageError
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.table_source import Chunk, ChunkLimits
from wormhole.ports.testing.images import LogImages
from wormhole.wire.rows import decode_key, decode_row, encode_key, values_of

ALL = ChunkLimits(rows=1_000_000, bytes=1 << 30, seconds=60.0)
NOWHERE = Datamarker(LogPosition(1, 0, 0), "", LogPosition(1, 0, 0))


class Scene:
    """A database in ``path``, its source and its tables."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"
        self.folder = folder
        self._made = ExitStack()

    def db(self, **settings: Any) -> Rdict:
        """The database, open in this process until the test ends."""
        return self.keep(Rdict(str(self.path), options(**settings)))

    def keep(self, db: Rdict) -> Rdict:
        """It is closed when the test ends."""
        self._made.callback(db.close)
        return db

    def tables(self, max_update_bytes: int = 1 << 26, state: str = "state") -> RocksTables:
        tables = RocksTables(
            self.path,
            log="log",
            state_dir=self.folder / state,
            sharding=Sharding("log"),
            max_update_bytes=max_update_bytes,
        )
        self._made.callback(tables.close)
        return tables

    def images(self, max_update_bytes: int = 1 << 26) -> LogImages:
        source = RocksSource(
            self.path,
            log="log",
            state_dir=self.folder / "state",
            sharding=Sharding("log"),
            max_update_bytes=max_update_bytes,
            disk_budget=1 << 30,
        )
        source.start()
        self._made.callback(source.stop)
        images = LogImages(source, source.earliest())
        self._made.callback(images.close)
        return images

    def close(self) -> None:
        self._made.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


@pytest.fixture
def writer(scene: Scene) -> Iterator[RocksWriter]:
    writer = RocksWriter(scene.path)
    yield writer
    writer.exit()


def options(**settings: Any) -> Options:
    made = Options(raw_mode=True)
    made.create_if_missing(True)
    for name, value in settings.items():
        getattr(made, f"set_{name}")(value)
    return made


def values(chunk: Chunk) -> dict[object, object]:
    return {decode_key(key)[0]: values_of(decode_row(row).after)[0] for key, row in chunk.rows.items()}


def whole(tables: RocksTables, table: str = "default", not_before: Datamarker = NOWHERE) -> dict[object, object]:
    return values(tables.chunk(table, None, None, ALL, not_before))


def same_as_the_log(tables: RocksTables, images: LogImages) -> bool:
    not_before = images.read_on()
    return tables.chunk("default", None, None, ALL, not_before).rows == images.rows("default")


def by_faust(path: Path, setup: str) -> None:
    """Run ``setup`` in another process with an open faust-streaming-rocksdb ``db`` and ``o``, its options."""
    program = (
        f"import rocksdb, rocksdb.interfaces as I\no = rocksdb.Options(create_if_missing=True)\n{setup}\ndb.close()"
    )
    subprocess.run([sys.executable, "-c", program.replace("PATH", repr(str(path)))], check=True)


# --- the owner ----------------------------------------------------------------------------------------------------


def test_nothing_is_written_into_the_owners_folder(scene: Scene) -> None:
    db = scene.db()
    db[b"key"] = b"value"

    def contents() -> dict[Path, tuple[int, int, bytes]]:
        return {
            path: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes()) for path in scene.path.rglob("*")
        }

    before = contents()
    tables = scene.tables()
    assert len(whole(tables)) == 1
    assert len(tables.rows("default", list(tables.chunk("default", None, None, ALL, NOWHERE).rows), NOWHERE).rows) == 1
    assert tables.tables(lambda _: True)
    tables.close()
    assert contents() == before


def test_an_owner_that_flushes_closes_reopens_and_dies(scene: Scene, writer: RocksWriter) -> None:
    images, tables = scene.images(), scene.tables()
    for step in (writer.flush, writer.close, writer.open, writer.flush):
        if step != writer.open:
            writer.many(0, 50, size=20)
            writer.put(b"step", step.__name__.encode())
        step()
        assert same_as_the_log(tables, images)
    writer.kill()
    assert same_as_the_log(tables, images)
    again = RocksWriter(scene.path)
    again.put(b"after", b"the crash")
    assert same_as_the_log(tables, images)
    again.exit()


def test_a_restored_copy_under_the_same_path(scene: Scene, writer: RocksWriter) -> None:
    tables = scene.tables()
    writer.put(b"kept", b"1")
    writer.exit()
    shutil.copytree(scene.path, scene.folder / "saved")
    later = RocksWriter(scene.path)
    later.put(b"lost", b"1")
    assert whole(tables) == {b"kept": b"1", b"lost": b"1"}
    later.exit()
    shutil.rmtree(scene.path)
    shutil.copytree(scene.folder / "saved", scene.path)
    assert whole(tables) == {b"kept": b"1"}
    assert whole(tables, not_before=replace(NOWHERE, order=LogPosition(2, 0, 0))) == {b"kept": b"1"}


def test_a_database_that_is_gone_and_comes_back(scene: Scene, writer: RocksWriter) -> None:
    tables = scene.tables()
    writer.put(b"k", b"v")
    assert whole(tables) == {b"k": b"v"}
    writer.exit()
    scene.path.rename(scene.folder / "away")
    with pytest.raises(SourceUnavailable, match="there is no directory"):
        whole(tables)
    (scene.folder / "away").rename(scene.path)
    assert whole(tables) == {b"k": b"v"}


# --- values -------------------------------------------------------------------------------------------------------


def test_wide_columns(scene: Scene) -> None:
    db = scene.db()
    images, tables = scene.images(), scene.tables()
    db.put_entity(b"both", [b"", b"a", b"b"], [b"default", b"1", b""])
    db.put_entity(b"named", [b"z", b"y"], [b"1", b"2"])
    not_before = images.read_on()
    for chunk in (
        tables.chunk("default", None, None, ALL, not_before),
        tables.rows("default", list(images.rows("default")), not_before),
    ):
        assert chunk.rows == images.rows("default")
        assert {image.schema for image in images.tables["default"].values()} == {chunk.schema}
    db.flush()
    assert same_as_the_log(tables, images)
    db.put(b"plain", b"value")
    with pytest.raises(UnreadableTable, match="plain values and wide columns") as error:
        whole(tables)
    assert error.value.hint
    assert values(tables.rows("default", [encode_key((b"plain",))], NOWHERE)) == {b"plain": b"value"}


def test_a_row_over_the_limit_comes_without_its_value(scene: Scene, writer: RocksWriter) -> None:
    images, tables = scene.images(100), scene.tables(100)
    writer.put(b"k", b"v" * 99)
    writer.put(b"kk", b"v" * 99)
    chunk = tables.chunk("default", None, None, ALL, images.read_on())
    assert [decode_row(row).too_large for row in chunk.rows.values()] == [False, True]
    assert values_of(decode_row(chunk.rows[encode_key((b"kk",))]).after) == ()


@pytest.mark.parametrize(
    "settings",
    [
        {"prefix_extractor": SliceTransform.create_fixed_prefix(2)},
        {"write_buffer_size": 1 << 16, "max_write_buffer_number": 2},
        {"allow_concurrent_memtable_write": False, "unordered_write": False, "enable_pipelined_write": True},
        {"max_open_files": 10},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_a_store_with_settings_of_its_own(scene: Scene, settings: dict[str, Any]) -> None:
    db = scene.db(**settings)
    tables = scene.tables()
    for n in range(2_000):
        db[b"%05d" % (n * 37 % 1_000)] = b"%d" % n * 20
        if n % 3 == 0:
            del db[b"%05d" % (n * 11 % 1_000)]
    db.flush()
    for n in range(100):
        db[b"%05d" % n] = b"not flushed"
    chunk = tables.chunk("default", None, None, ALL, NOWHERE)
    assert values(chunk) == dict(db.items())
    keys = list(chunk.rows)
    part = tables.chunk("default", keys[10], keys[700], ALL, NOWHERE)
    assert list(part.rows) == keys[11:701]
    db.compact_range(None, None)
    assert whole(tables) == values(chunk)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"enable_blob_files": True, "min_blob_size": 10}, "blob files"),
        ({"recycle_log_file_num": 2}, "recycle_log_file_num is set"),
    ],
)
def test_what_a_second_instance_cannot_read_is_refused(scene: Scene, settings: dict[str, Any], why: str) -> None:
    db = scene.db(**settings)
    db.create_column_family("other", options())
    db[b"k"] = b"a value in a file of its own"
    db.flush()
    tables = scene.tables()
    for family in ("default", "other"):
        with pytest.raises(UnreadableTable, match=why) as error:
            whole(tables, family)
        assert error.value.hint
    assert all(table.refused for table in tables.tables(lambda _: True))


def test_blob_files_of_one_family_leave_the_others_readable(scene: Scene) -> None:
    db = scene.db()
    blobs = db.create_column_family("blobs", options(enable_blob_files=True, min_blob_size=10))
    tables = scene.tables()
    for n in range(3):
        blobs[b"k"] = b"a value in a file of its own"
        db[b"k%d" % n] = b"v"
        blobs.flush()
        db.compact_range(None, None)
        blobs.compact_range(None, None)
        assert len(whole(tables)) == n + 1
    with pytest.raises(UnreadableTable, match="blob files"):
        whole(tables, "blobs")


def test_a_wal_directory_of_its_own_compressed(scene: Scene) -> None:
    wal = scene.folder / "wal"
    Rdict(str(scene.path), options(wal_dir=str(wal))).close()
    file = max(scene.path.glob("OPTIONS-*"))
    file.write_text(file.read_text().replace("wal_compression=kNoCompression", "wal_compression=kZSTD"))
    loaded, families = Options.load_latest(str(scene.path))
    db = scene.keep(Rdict(str(scene.path), loaded, families))
    images, tables = scene.images(), scene.tables()
    for n in range(500):
        db[b"%05d" % n] = b"x" * n
    db.flush_wal(False)
    assert same_as_the_log(tables, images)


def test_a_store_whose_values_expire_keeps_its_suffix_as_the_log_does(scene: Scene) -> None:
    db = scene.keep(Rdict(str(scene.path), options(), access_type=AccessType.with_ttl(3600)))
    images, tables = scene.images(), scene.tables()
    db[b"k"] = b"v"
    chunk = tables.chunk("default", None, None, ALL, images.read_on())
    assert chunk.rows == images.rows("default")
    assert len(values(chunk)[b"k"]) == len(b"v") + 4  # type: ignore[arg-type]


def test_deleted_ranges(scene: Scene) -> None:
    db = scene.db()
    for n in range(10):
        db[b"%d" % n] = b"v"
    db.delete_range(b"3", b"7")
    assert list(whole(scene.tables())) == [b"0", b"1", b"2", b"7", b"8", b"9"]


# --- the order of keys and merged values --------------------------------------------------------------------------


def test_keys_in_reverse_order(scene: Scene) -> None:
    by_faust(
        scene.path,
        """
class Reverse(I.Comparator):
    def name(self): return b"rocksdb.ReverseBytewiseComparator"
    def compare(self, a, b): return (a < b) - (a > b)
o.comparator = Reverse()
db = rocksdb.DB(PATH, o)
for n in range(20): db.put(b"%02d" % n, b"v")
""",
    )
    tables = scene.tables()
    (table,) = tables.tables(lambda _: True)
    assert not table.portable
    keys = [b"%02d" % n for n in range(19, -1, -1)]
    assert list(whole(tables)) == keys
    after, until = encode_key((b"15",)), encode_key((b"05",))
    assert list(values(tables.chunk("default", after, until, ALL, NOWHERE))) == keys[5:15]
    assert list(values(tables.rows("default", [until, after], NOWHERE))) == [b"15", b"05"]


def test_keys_with_types_of_the_bindings_own_are_refused(scene: Scene) -> None:
    scene.keep(Rdict(str(scene.path), Options()))["key"] = "value"
    with pytest.raises(UnreadableTable, match="ordered by rocksdict, which only"):
        whole(scene.tables())


def test_an_order_that_only_its_own_program_has_is_refused(scene: Scene) -> None:
    by_faust(
        scene.path,
        """
class Own(I.Comparator):
    def name(self): return b"own.Comparator"
    def compare(self, a, b): return (a > b) - (a < b)
o.comparator = Own()
db = rocksdb.DB(PATH, o)
db.put(b"k", b"v")
""",
    )
    tables = scene.tables()
    with pytest.raises(UnreadableTable, match=r"own\.Comparator") as error:
        whole(tables)
    assert error.value.hint
    (table,) = tables.tables(lambda _: True)
    assert "own.Comparator" in table.refused.text
    assert table.refused.hint


def test_values_that_rocksdb_itself_merges(scene: Scene) -> None:
    by_faust(
        scene.path,
        """
from rocksdb.merge_operators import UintAddOperator
o.merge_operator = UintAddOperator()
db = rocksdb.DB(PATH, o)
for n in (1, 2, 40): db.merge(b"k", n.to_bytes(8, "little"))
""",
    )
    assert whole(scene.tables()) == {b"k": (43).to_bytes(8, "little")}


def test_values_that_only_their_own_program_merges_are_refused(scene: Scene) -> None:
    by_faust(
        scene.path,
        """
class Append(I.AssociativeMergeOperator):
    def name(self): return b"own.Append"
    def merge(self, key, existing, value): return (True, (existing or b"") + value)
db = rocksdb.DB(PATH, o)
own = rocksdb.ColumnFamilyOptions()
own.merge_operator = Append()
family = db.create_column_family(b"merged", own)
db.put(b"k", b"v")
db.merge((family, b"k"), b"v")
""",
    )
    tables = scene.tables()
    with pytest.raises(UnreadableTable, match=r"merged by own\.Append") as error:
        whole(tables, "merged")
    assert error.value.hint
    assert whole(tables) == {b"k": b"v"}
    assert [(table.name, bool(table.refused)) for table in tables.tables(lambda _: True)] == [
        ("default", False),
        ("merged", True),
    ]


# --- where the rows lie in the log --------------------------------------------------------------------------------


def test_what_is_prepared_is_not_shown_and_what_is_committed_is(scene: Scene) -> None:
    store = TransactionStore(scene.path)
    images, tables = scene.images(), scene.tables()
    store.put(b"a", b"1")
    first, second = store.begin(b"first"), store.begin(b"second")
    first.put(b"f", b"1")
    first.prepare()
    second.put(b"s", b"1")
    second.prepare()
    chunk = tables.chunk("default", None, None, ALL, images.read_on())
    assert values(chunk) == {b"a": b"1"}
    assert tables.reached(chunk.high, images.marker)
    store.flush()
    first.commit()
    second.rollback()
    chunk = tables.chunk("default", None, None, ALL, images.read_on())
    assert values(chunk) == {b"a": b"1", b"f": b"1"}
    assert chunk.rows == images.rows("default")
    assert tables.reached(chunk.high, images.marker)
    store.close()


@pytest.mark.parametrize("flushed", [False, True])
def test_what_is_written_past_the_log_is_shown_and_waits_for_no_log(scene: Scene, flushed: bool) -> None:
    db = scene.db()
    images, tables = scene.images(), scene.tables()
    db[b"a"] = b"1"
    unlogged: Any = WriteOptions()
    unlogged.disable_wal = True
    for n in range(5):
        db.put(b"u%d" % n, b"1", write_opt=unlogged)
    db.flush()  # another process cannot see it before
    if not flushed:
        db[b"b"] = b"2"
        before = images.marker
    sst = SstFileWriter(options())
    sst.open(str(scene.folder / "ingested.sst"))
    sst[b"i"] = b"1"
    sst.finish()
    db.ingest_external_file([str(scene.folder / "ingested.sst")])
    not_before = images.read_on()
    chunk = tables.chunk("default", None, None, ALL, not_before)
    assert {b"a", b"u0", b"u4", b"i"} <= values(chunk).keys()
    assert tables.reached(chunk.high, not_before), "a backfill of an idle log would wait for ever"
    if not flushed:
        assert not tables.reached(chunk.high, before)
        again = tables.chunk("default", None, None, ALL, replace(before, delivered="0"))
        assert not tables.reached(again.high, before), "the log holds a write that is shown"


@pytest.mark.parametrize("state", ["state", "another, where no WAL is kept"])
def test_rows_that_were_flushed_ahead_of_the_reader_lie_behind_it(
    scene: Scene, writer: RocksWriter, state: str
) -> None:
    images, tables = scene.images(), scene.tables(state=state)
    writer.put(b"a", b"1")
    before = images.read_on()
    writer.put(b"b", b"1")
    writer.flush()
    writer.flush()
    until(lambda: len(list(scene.path.glob("*.log"))) == 1, "the flushed log is gone")
    chunk = tables.chunk("default", None, None, ALL, before)
    assert values(chunk) == {b"a": b"1", b"b": b"1"}
    assert not tables.reached(chunk.high, before)
    assert tables.reached(chunk.high, images.read_on())


# --- column families ----------------------------------------------------------------------------------------------


def test_a_family_that_is_made_dropped_and_made_again(scene: Scene, writer: RocksWriter) -> None:
    tables = scene.tables()
    writer.put(b"k", b"v")
    assert whole(tables) == {b"k": b"v"}
    writer.create_family("new")
    writer.put(b"k", b"1", "new")
    assert whole(tables, "new") == {b"k": b"1"}
    (first,) = tables.tables(lambda name: name == "new")
    writer.drop_family("new")
    with pytest.raises(UnreadableTable, match="there is no column family new"):
        whole(tables, "new")
    writer.create_family("new")
    writer.put(b"l", b"2", "new")
    with pytest.raises(UnreadableTable, match="dropped and made again since its program opened the database"):
        whole(tables, "new")
    assert whole(tables) == {b"k": b"v"}
    writer.close()
    writer.open()
    assert whole(tables, "new") == {b"l": b"2"}
    (second,) = tables.tables(lambda name: name == "new")
    assert first.fingerprint != second.fingerprint


def test_the_estimate_of_rows(scene: Scene, writer: RocksWriter) -> None:
    writer.many(0, 300)
    (table,) = scene.tables().tables(lambda _: True)
    assert table.rows == 300
    assert table.portable


# --- the process --------------------------------------------------------------------------------------------------


def test_a_chunk_ends_when_its_time_is_up(scene: Scene, writer: RocksWriter) -> None:
    writer.many(0, 300)
    chunk = scene.tables().chunk("default", None, None, replace(ALL, seconds=0.0), NOWHERE)
    assert 0 < len(chunk.rows) < 300
    assert not chunk.done
    assert chunk.last == list(chunk.rows)[-1]


def test_a_process_that_dies_is_started_again(scene: Scene, writer: RocksWriter) -> None:
    tables = scene.tables()
    writer.put(b"k", b"v")
    assert whole(tables) == {b"k": b"v"}
    (process,) = children_with(str(scene.path))
    os.kill(process, signal.SIGKILL)
    with pytest.raises(SourceUnavailable, match="ended with status -9"):
        whole(tables)
    assert whole(tables) == {b"k": b"v"}


def test_the_process_ends_with_the_publisher(scene: Scene, writer: RocksWriter) -> None:
    writer.put(b"k", b"v")
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from datastores.rocksdb.existing_rows.source import RocksTables\n"
        "from wormhole.model.sharding import Sharding\n"
        "tables = RocksTables(Path(sys.argv[1]), log='log', state_dir=Path(sys.argv[2]), sharding=Sharding('log'), "
        "max_update_bytes=1 << 20)\n"
        "print(len(tables.tables(lambda _: True)), flush=True)\n"
        "sys.stdin.read()\n"
    )
    publisher = subprocess.Popen(
        [sys.executable, "-c", program, str(scene.path), str(scene.folder / "other")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert publisher.stdout is not None
    assert publisher.stdout.readline() == b"1\n"
    assert children_with(str(scene.folder / "other" / "rocksdb-tables"))
    publisher.kill()
    publisher.communicate()
    until(lambda: not children_with(str(scene.folder / "other" / "rocksdb-tables")), "the process of the instance ends")


def children_with(argument: str) -> list[int]:
    """Processes of secondary instances that have this argument."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if b"datastores.rocksdb.existing_rows.secondary" in arguments and argument.encode() in arguments:
            found.append(int(entry.name))
    return found


def test_the_binding_is_missing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SourceOptions("log", scene.folder, Sharding("log"), 1 << 20, 1 << 30)
    url = f"rocksdb://{scene.path}"
    assert isinstance(DATASTORE.open_tables(url, settings), RocksTables)
    monkeypatch.setattr("datastores.rocksdb.datastore.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="rocksdict, which is not installed") as error:
        DATASTORE.open_tables(url, settings)
    assert "pip install" in str(error.value.hint)


def test_a_publisher_does_not_load_the_binding() -> None:
    program = (
        "import sys, datastores.rocksdb.existing_rows.source, datastores.rocksdb.existing_rows.secondary\n"
        "sys.exit('rocksdict' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
