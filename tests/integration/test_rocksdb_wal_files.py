"""WAL files as real RocksDB libraries write them, read while the store is open."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict, WriteBatch

from datastores.rocksdb.log.scan import find_sequence, scan_end
from tests.support.present import present
from tests.support.rocksdb_wal import (
    DirectoryFiles,
    Names,
    Seen,
    gaps_of,
    marker,
    open_reader,
    segments,
    updates_of,
)
from wormhole.model.errors import DecodeError
from wormhole.model.loss import LossKind
from wormhole.model.sharding import Sharding, shard_of_hash


def options() -> Options:
    result = Options(raw_mode=True)
    result.create_if_missing(True)
    result.set_write_buffer_size(1 << 30)  # a flush would delete the log that is read here without being pinned
    return result


def reopened(path: Path, **settings: str) -> Rdict:
    """A store opened with settings that only an OPTIONS file can carry."""
    Rdict(str(path), options()).close()
    file = max(path.glob("OPTIONS-*"))
    text = file.read_text()
    for name, value in settings.items():
        before = next(line for line in text.splitlines() if line.strip().startswith(f"{name}="))
        text = text.replace(before, f"  {name}={value}")
    file.write_text(text)
    loaded, families = Options.load_latest(str(path))
    return Rdict(str(path), loaded, families)


def replay(updates: list[Seen]) -> dict[bytes, bytes]:
    """What a store holds after the updates of its default column family."""
    state: dict[bytes, bytes] = {}
    for update in updates:
        key, after = update.key[0], update.after
        assert isinstance(key, bytes)
        if update.op == "upsert":
            assert isinstance(after[0], bytes)
            state[key] = after[0]
        elif update.op == "delete":
            state.pop(key, None)
        else:
            end = update.key_end[0]
            assert isinstance(end, bytes)
            for gone in [k for k in state if key <= k < end]:
                del state[gone]
    return state


def write_randomly(db: Rdict, seed: int, operations: int) -> None:
    rng = random.Random(seed)
    for _ in range(operations):
        match rng.randrange(10):
            case 0:
                db.delete(b"key%d" % rng.randrange(300))
            case 1:
                batch = WriteBatch(raw_mode=True)
                for _ in range(rng.randrange(1, 50)):
                    batch.put(b"key%d" % rng.randrange(300), rng.randbytes(rng.randrange(400)))
                low, high = sorted(b"key%d" % rng.randrange(300) for _ in range(2))
                batch.delete_range(low, high)
                batch.delete(b"key%d" % rng.randrange(300))
                db.write(batch)
            case 2:
                db.put(b"key%d" % rng.randrange(300), rng.randbytes(rng.choice((0, 1, 32757, 32768, 100_000))))
            case _:
                db.put(b"key%d" % rng.randrange(300), rng.randbytes(rng.randrange(200)))
    db.flush_wal(False)


@pytest.mark.parametrize("settings", [{}, {"wal_compression": "kZSTD"}, {"recycle_log_file_num": "2"}], ids=str)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_updates_rebuild_the_store(tmp_path: Path, settings: dict[str, str], seed: int) -> None:
    db = reopened(tmp_path / "db", **settings)
    reader = open_reader(tmp_path / "db")
    found = []
    for part in range(5):
        write_randomly(db, seed * 10 + part, 300)
        found += list(segments(reader, 1 << 16))
    assert not gaps_of(found)
    assert replay(updates_of(found)) == dict(db.items())
    last = present(found[-1].marker)
    assert int(last.delivered) == db.latest_sequence_number()
    assert scan_end(DirectoryFiles(tmp_path / "db"), source_id="src", incarnation=1).order == last.order
    db.close()


def test_recycled_files_are_read_to_their_live_end_only(tmp_path: Path) -> None:
    db = reopened(tmp_path / "db", recycle_log_file_num="2")
    reader = open_reader(tmp_path / "db")
    found = []
    recycled = 0
    for round_number in range(8):
        write_randomly(db, round_number, 120)
        found += list(segments(reader))
        db.flush(True)  # what was read becomes obsolete, and its file is used again
        db.put(b"after", b"%d" % round_number)
        db.flush_wal(False)
        found += list(segments(reader))
        recycled += reader._cursor._wal is not None and reader._cursor._wal.recycled
    assert recycled > 3
    assert not gaps_of(found)
    assert replay(updates_of(found)) == dict(db.items())
    db.close()


def test_column_families_and_shards(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path / "db"), options())
    users = db.create_column_family("users", Options(raw_mode=True))
    handle = db.get_column_family_handle("users")
    batch = WriteBatch(raw_mode=True)
    for i in range(100):
        batch.put(b"a%d" % i, b"default")
        batch.put(b"u%d" % i, b"user", handle)
    batch.delete_range(b"u1", b"u2", handle)
    db.write(batch)
    users[b"last"] = b"one"
    db.flush_wal(False)
    names = Names({0: "default", 1: "users"})
    whole = updates_of(segments(open_reader(tmp_path / "db", names=names)))
    assert [u.index for u in whole] == [*range(201), 0]
    assert {u.table for u in whole} == {"default", "users"}
    by_table = updates_of(segments(open_reader(tmp_path / "db", names=names, sharding=Sharding("table"))))
    assert {u.shard for u in by_table} == {"db.default", "db.users"}
    for table in ("default", "users"):
        assert [(u.key, u.index, u.transaction) for u in by_table if u.table == table] == [
            (u.key, u.index, u.transaction) for u in whole if u.table == table
        ]
    hashed = updates_of(segments(open_reader(tmp_path / "db", names=names, sharding=Sharding("hash", 4))))
    plain = [u for u in hashed if u.op != "delete_range"]
    assert all(isinstance(u.key[0], bytes) and u.shard == shard_of_hash("db", u.key[0], 4) for u in plain)
    assert sorted((u.transaction, u.index) for u in plain) == sorted(
        (u.transaction, u.index) for u in whole if u.op != "delete_range"
    )
    assert sorted(u.shard for u in hashed if u.op == "delete_range") == [f"db.{k}of4" for k in range(4)]
    db.close()


def test_what_was_written_without_the_log_is_reported(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path / "db"), options())
    db.put(b"a", b"1")
    unlogged = __import__("rocksdict").WriteOptions()
    unlogged.disable_wal = True
    for i in range(3):
        db.put(b"x%d" % i, b"lost", write_opt=unlogged)
    db.put(b"b", b"2")
    db.flush_wal(False)
    found = list(segments(open_reader(tmp_path / "db")))
    assert [(g.kind, g.first_missing, g.last_missing) for g in gaps_of(found)] == [(LossKind.NOT_LOGGED, "2", "4")]
    db.close()


_CRASH = """
import os, sys
from rocksdict import Options, Rdict
o = Options(raw_mode=True); o.create_if_missing(True)
db = Rdict(sys.argv[1], o)
for i in range(int(sys.argv[2]), int(sys.argv[3])):
    db.put(b"key%d" % i, b"v" * (i % 700))
db.flush_wal(False)
os._exit(9)
"""


def crash(path: Path, first: int, last: int) -> None:
    subprocess.run([sys.executable, "-c", _CRASH, str(path), str(first), str(last)], check=False)


@pytest.mark.parametrize("cut", [0, 1, 5, 8, 100])
def test_a_crash_leaves_a_torn_tail_that_the_database_drops(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / "db"
    crash(folder, 0, 300)
    (log,) = folder.glob("*.log")
    if cut:
        os.truncate(log, log.stat().st_size - cut)
    kept = tmp_path / "kept"
    kept.mkdir()
    shutil.copy(log, kept)
    reader = open_reader(kept)
    before = updates_of(segments(reader))
    assert len(before) == 300 - (cut > 0)
    crash(folder, 1000, 1010)  # opens, recovers, deletes the old log, writes a new one
    for new in folder.glob("*.log"):
        shutil.copy(new, kept)
    after = list(segments(reader))
    assert not gaps_of(after)
    assert [u.key[0] for u in updates_of(after)] == [b"key%d" % i for i in range(1000, 1010)]


def test_a_deleted_file_is_a_gap_with_its_range(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    crash(folder, 0, 50)
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    reader = open_reader(kept)
    assert len(updates_of(segments(reader))) == 50
    crash(folder, 50, 60)
    crash(folder, 60, 65)  # the file of 50 to 59 is gone now
    for new in folder.glob("*.log"):
        shutil.copy(new, kept)
    found = list(segments(reader))
    assert [(g.first_missing, g.last_missing) for g in gaps_of(found)] == [("51", "60")]
    assert [u.key[0] for u in updates_of(found)] == [b"key%d" % i for i in range(60, 65)]
    for old in sorted(kept.glob("*.log"))[:-1]:
        old.unlink()
    again = list(segments(open_reader(kept, marker(4, 0, "0"))))
    assert [(g.kind, g.first_missing, g.last_missing) for g in gaps_of(again)] == [(LossKind.PURGED, "1", "60")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str, list[Seen]]:
    folder = tmp_path_factory.mktemp("written")
    db = Rdict(str(folder / "db"), options())
    for i in range(400):
        db.put(b"key%d" % i, random.Random(i).randbytes(i % 900))
    db.put(b"large", bytes(70_000))
    for i in range(50):
        db.put(b"end%d" % i, b"x" * 100)
    db.flush_wal(False)
    (log,) = (folder / "db").glob("*.log")
    data = log.read_bytes()
    db.close()
    copy = folder / "copy"
    copy.mkdir()
    (copy / log.name).write_bytes(data)
    return data, log.name, updates_of(segments(open_reader(copy)))


def damaged(tmp_path: Path, name: str, data: bytes, expected: list[Seen]) -> tuple[int, str]:
    """Updates delivered from a damaged file, and whether the damage was told; what is delivered has to be right."""
    (tmp_path / name).write_bytes(data)
    reader = open_reader(tmp_path)
    found: list[Seen] = []
    told = ""
    try:
        for segment in segments(reader):
            found += updates_of([segment])
    except DecodeError as error:
        told = str(error)
    finally:
        reader.close()
    assert not told or (name in told and "offset" in told)
    assert found == expected[: len(found)]
    return len(found), told


@pytest.mark.parametrize("seed", range(60))
def test_a_flipped_bit_is_reported_or_ends_the_log(
    tmp_path: Path, written: tuple[bytes, str, list[Seen]], seed: int
) -> None:
    data, name, expected = written
    rng = random.Random(seed)
    at = rng.randrange(len(data))
    broken = bytearray(data)
    broken[at] ^= 1 << rng.randrange(8)
    count, told = damaged(tmp_path, name, bytes(broken), expected)
    # The last record is the only one behind which nothing proves that it was ever finished.
    assert told or count >= len(expected) - 1


@pytest.mark.parametrize("seed", range(30))
def test_a_cut_file_gives_its_whole_records(tmp_path: Path, written: tuple[bytes, str, list[Seen]], seed: int) -> None:
    data, name, expected = written
    size = random.Random(seed).randrange(len(data))
    count, told = damaged(tmp_path, name, data[:size], expected)
    assert not told, told
    (tmp_path / name).write_bytes(data)
    reader = open_reader(tmp_path)
    assert updates_of(segments(reader)) == expected
    assert count <= len(expected)


def test_every_number_is_found(tmp_path: Path) -> None:
    db = Rdict(str(tmp_path / "db"), options())
    for i in range(2000):
        db.put(b"key%d" % i, b"v" * 700)
    db.flush_wal(False)
    everything = updates_of(segments(open_reader(tmp_path / "db")))
    files = DirectoryFiles(tmp_path / "db")
    for sequence in (0, 1, 2, 374, 1500, 1999, 2000):
        place = find_sequence(files, sequence, source_id="src", incarnation=1)
        assert place.delivered == str(sequence)
        assert updates_of(segments(open_reader(tmp_path / "db", place))) == everything[sequence:]
    db.close()


_THROUGH_ROCKSDB = """
import sys, rocksdb
db = rocksdb.DB(sys.argv[1], rocksdb.Options(create_if_missing=True))
batch = rocksdb.WriteBatch()
for i in range(500):
    batch.put(b"key%d" % i, b"value%d" % i)
batch.delete(b"key7")
db.write(batch)
for i in range(100):
    db.put(b"single%d" % i, b"x" * i)
sys.stdout.write("written"); sys.stdout.flush()
sys.stdin.read()
"""


def test_a_store_written_through_import_rocksdb(tmp_path: Path) -> None:
    pytest.importorskip("rocksdb", reason="faust-streaming-rocksdb is not installed: no wheel for this platform")
    with subprocess.Popen(
        [sys.executable, "-c", _THROUGH_ROCKSDB, str(tmp_path / "db")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdin is not None
        assert writer.stdout.read(7) == b"written"
        found = updates_of(segments(open_reader(tmp_path / "db")))
        writer.stdin.close()
    assert [u.transaction for u in found[:501]] == ["src:1"] * 501
    assert replay(found) == {
        **{b"key%d" % i: b"value%d" % i for i in range(500) if i != 7},
        **{b"single%d" % i: b"x" * i for i in range(100)},
    }


_MEMORY = """
import resource, sys
from pathlib import Path
from tests.support.rocksdb_wal import open_reader
reader = open_reader(Path(sys.argv[1]))
updates = reader.read(1 << 18, 0).updates
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pieces = 0
while (segment := reader.read(1 << 18, 0)) is not None:
    updates += segment.updates
    pieces += 1
print(updates, pieces, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize(
    "prepare", [lambda p: Rdict(str(p), options()), lambda p: reopened(p, wal_compression="kZSTD")]
)
def test_a_transaction_of_any_size_takes_little_memory(tmp_path: Path, prepare: Callable[[Path], Rdict]) -> None:
    db = prepare(tmp_path / "db")
    db.put(b"before", b"x")
    batch = WriteBatch(raw_mode=True)
    value = random.Random(1).randbytes(600) + bytes(2000)
    for i in range(60_000):
        batch.put(b"key%08d" % i, value)
    db.write(batch)
    db.put(b"after", b"x")
    db.flush_wal(False)
    del batch
    out = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(tmp_path / "db")],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path.cwd(),
    ).stdout
    updates, pieces, grown = map(int, out.split())
    assert updates >= 60_001
    assert pieces > 500
    assert grown < 32, f"{grown} MiB more for a transaction of {60_000 * len(value) >> 20} MiB"
    db.close()
