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

from datastores.rocksdb.log.scan import scan_end
from tests.support.present import present
from tests.support.rocksdb_wal import (
    DirectoryFiles,
    Seen,
    gaps_of,
    open_reader,
    segments,
    updates_of,
)
from wormhole.model.errors import DecodeError


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
