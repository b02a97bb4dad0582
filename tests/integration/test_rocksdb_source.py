"""The RocksDB source beside a writer in another process: what flush, close, reopen, recycling and replacing do to
its log."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from datastores.rocksdb.history import wal_files as history
from datastores.rocksdb.source import RocksSource
from tests.support.eventually import until
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import Diverged, SourceUnavailable, UsageError
from wormhole.model.loss import LossKind
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.reading import Read, read_log


class Place:
    """A database, its writer and its source, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"
        self.state = folder / "state"
        self.writers: list[RocksWriter] = []
        self.sources: list[RocksSource] = []

    def writer(self, **options: Any) -> RocksWriter:
        self.writers.append(RocksWriter(self.path, **options))
        return self.writers[-1]

    def source(self, budget: int = 1 << 30, *, polling: bool = False, state: Path | None = None) -> RocksSource:
        source = RocksSource(
            self.path,
            log="log",
            state_dir=state or self.state,
            sharding=Sharding("log"),
            max_update_bytes=1 << 26,
            disk_budget=budget,
            polling=polling,
        )
        self.sources.append(source)
        source.start()
        return source


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as the daemon does
    yield made
    sys.setswitchinterval(interval)
    for source in made.sources:
        source.stop()
    for writer in made.writers:
        writer.exit()


def keys(first: int, count: int) -> list[bytes]:
    return [b"k%08d" % n for n in range(first, first + count)]


def assert_nothing_silent(read: Read, first: int, end: int, log: pytest.LogCaptureFixture | None) -> None:
    """Every change from ``first`` on came, or its range was reported as purged. A writer that flushes as fast as it can
    may, on a starved machine, delete a file before the keeper was given the processor. inotify reports such a file, so
    it is never taken for changes that were written past the log, and nothing else may be missing. ``log``: names the
    file; ``None`` where the directory is looked at in intervals, which show no file that came and went."""
    told = [number - 1 for gap in read.gaps for number in range(int(gap.first_missing), int(gap.last_missing) + 1)]
    came = [int(key[1:]) for key in list(read.keys()) if isinstance(key, bytes)]
    assert sorted(came + told) == list(range(first, end))
    assert all(gap.kind is LossKind.PURGED for gap in read.gaps)
    if told and log is not None:
        until(lambda: "before it could be kept" in log.text or "before it was copied" in log.text, "it is reported")


Look = Callable[[], object]


def read_whole(
    source: RocksSource, write: Callable[[int, Look | None], int], log: pytest.LogCaptureFixture | None
) -> tuple[Read, int, int]:
    """Read what ``write`` writes from a key on (it returns the key after the last) from one place to the end, and the
    keys.

    Nothing may be missing. A machine that starves the keeper of the processor has to tell, and gets another chance; the
    last time ``write`` lets the keeper look before a file can go.
    """
    first = 0
    for look in (None, None, source.latest):
        start = source.latest()
        end = write(first, look)
        read = read_log(source, start)
        assert_nothing_silent(read, first, end, log)
        if not read.gaps:
            return read, first, end
        first = end
    raise AssertionError("files were lost although the keeper had seen them")


def churn(writer: RocksWriter, first: int = 0, look: Look | None = None, *, rounds: int = 3, every: int = 100) -> int:
    """Flush, close and reopen over many WAL files, from key ``first`` on; returns the key after the last."""
    written = first
    for _ in range(rounds):
        if look is None:
            writer.many(written, 4 * every, flush_every=every)
            written += 4 * every
        else:
            for _ in range(4):
                writer.many(written, every)
                written += every
                look()
                writer.flush()
            look()
        writer.close()
        writer.open()
        writer.many(written, 50)
        written += 50
        if look is not None:
            look()
    return written


def test_nothing_is_lost_under_default_options(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    writer = place.writer()
    source = place.source()
    read, first, end = read_whole(source, partial(churn, writer), caplog)
    assert read.keys() == keys(first, end - first)
    assert source.status().pinned_bytes > 0
    assert not source.status().problems
    for marker in read.markers[:: len(read.markers) // 5 + 1]:
        assert read_log(source, marker).keys() == keys(int(marker.delivered), end - int(marker.delivered))


def test_without_inotify_what_is_missed_is_reported(place: Place) -> None:
    """Looking at intervals misses a file that is there for milliseconds only; never in silence."""
    writer = place.writer()
    source = place.source(polling=True)
    start = source.latest()
    count = churn(writer, every=3000)
    read = read_log(source, start)
    missed = {n for gap in read.gaps for n in range(int(gap.first_missing), int(gap.last_missing) + 1)}
    assert all(gap.kind is LossKind.PURGED for gap in read.gaps)
    assert read.keys() == [key for n, key in enumerate(keys(0, count), 1) if n not in missed]
    assert len(read.updates) > count // 2


def test_what_vanished_while_the_publisher_was_down_is_reported_with_its_range(place: Place) -> None:
    writer = place.writer()
    source = place.source()
    start = source.latest()
    writer.many(0, 10)
    marker = read_log(source, start).markers[-1]
    source.stop()
    writer.many(10, 5)
    writer.flush()
    writer.many(15, 20)
    writer.flush()
    writer.many(35, 5)
    source = place.source()
    read = read_log(source, marker)
    assert read.keys() == keys(10, 5) + keys(35, 5)
    assert [(g.kind, g.first_missing, g.last_missing) for g in read.gaps] == [(LossKind.PURGED, "16", "35")]


def test_what_vanished_behind_a_file_without_records_was_in_the_log(place: Place) -> None:
    """The datamarker has no anchor, and the copy of its file stays empty because RocksDB overwrote the file."""
    writer = place.writer(recycle_log_file_num=2)
    source = place.source()
    start = source.latest()
    assert start.anchor is None
    source.stop()
    for first in range(0, 50, 10):
        writer.many(first, 10)
        writer.flush()
    writer.many(50, 10)
    source = place.source()
    moved = read_log(source, start).markers[0]
    assert moved.anchor is None
    assert moved.order.file > start.order.file
    for marker in (start, moved):
        read = read_log(source, marker)
        (gap,) = read.gaps
        assert (gap.kind, gap.first_missing) == (LossKind.PURGED, "1")
        assert read.keys() == keys(int(gap.last_missing), 60 - int(gap.last_missing))


@pytest.mark.parametrize("polling", [False, True])
def test_recycled_files_are_copied(place: Place, polling: bool, caplog: pytest.LogCaptureFixture) -> None:
    writer = place.writer(recycle_log_file_num=2)
    source = place.source(polling=polling)

    def write(written: int, look: Look | None) -> int:
        for _ in range(12):
            count = 3000 if polling and look is None else 300
            writer.many(written, count)
            written += count
            if look is not None:
                look()
            writer.flush()
        return written

    read, first, end = read_whole(source, write, None if polling else caplog)
    assert read.keys() == keys(first, end - first)
    for marker in read.markers[::3]:
        assert read_log(source, marker).keys() == keys(int(marker.delivered), end - int(marker.delivered))
    source.stop()
    writer.many(end, 10)
    source = place.source()
    begin = read.markers[0]
    assert read_log(source, begin).keys() == keys(int(begin.delivered), end + 10 - int(begin.delivered))


def test_another_file_system_is_copied_to(place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system here")
    state = shared / f"wormhole-test-{os.getpid()}"
    try:
        writer = place.writer()
        source = place.source(state=state)
        read, first, end = read_whole(source, partial(churn, writer), caplog)
        assert read.keys() == keys(first, end - first)
        assert any("copied" in problem for problem in map(str, source.status().problems))
        source.stop()
    finally:
        shutil.rmtree(state, ignore_errors=True)


def test_a_full_disk_under_what_is_kept_is_an_error_of_the_log_and_passes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever releases goes on serving."""
    writer = place.writer()
    source = place.source()
    churn(writer)
    latest = source.latest()
    with monkeypatch.context() as full:

        def write_state(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr(history, "write_state", write_state)
        with pytest.raises(SourceUnavailable, match="make space"):
            source.release(latest.order)
    source.release(latest.order)
    assert read_log(source, latest).updates == []


def test_a_full_disk_as_files_are_kept_names_the_folder_and_passes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = place.writer()
    source = place.source()

    def problems() -> str:
        return " ".join(str(problem) for problem in source.status().problems)

    with monkeypatch.context() as full:

        def write_state(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr(history, "write_state", write_state)
        churn(writer)
        until(lambda: "cannot be used: No space left on device. Free space there" in problems(), problems)
        assert "Errno" not in problems()
    churn(writer)
    until(lambda: not problems(), problems)


def test_another_database_at_the_same_path_begins_another_history(place: Place) -> None:
    writer = place.writer()
    source = place.source()
    start = source.latest()
    writer.many(0, 10)
    read = read_log(source, start)
    reader = source.open(read.markers[-1])
    writer.many(10, 5)
    writer.exit()
    shutil.rmtree(place.path)
    other = place.writer()
    other.many(0, 3)
    latest = source.latest()
    assert latest.order.incarnation == 2
    assert read_log(source, source.earliest()).keys() == keys(0, 3)
    # What the old one had committed and was kept still comes; then the reader says why nothing follows.
    rest = Read()
    with pytest.raises(Diverged):
        while True:
            segment = reader.read(1 << 20, 0.2)
            if segment is not None:
                rest.add(segment)
    assert rest.keys() == keys(10, 5)
    with pytest.raises(Diverged) as error:
        source.open(read.markers[-1])
    assert error.value.hint
    ids = {u.id for u in read.updates} & {u.id for u in read_log(source, source.earliest()).updates}
    assert not ids


def test_wal_directory_of_its_own(place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = place.writer(wal_dir=str(tmp_path / "wal"))
    source = place.source()
    read, first, end = read_whole(source, partial(churn, writer), caplog)
    assert read.keys() == keys(first, end - first)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda path: None, SourceUnavailable, "no directory"),
        (lambda path: path.mkdir(), SourceUnavailable, "empty"),
        (lambda path: path.write_bytes(b"x"), UsageError, "is a file"),
        (lambda path: (path.mkdir(), (path / "x").touch()), UsageError, "no RocksDB"),
        (lambda path: (path.mkdir(), (path / "CURRENT").touch()), UsageError, "LevelDB"),
    ],
)
def test_what_is_no_database_gives_one_clear_error(
    place: Place, make: Callable[[Path], Any], error: type[Exception], words: str
) -> None:
    make(place.path)
    with pytest.raises(error, match=words) as raised:
        place.source()
    assert getattr(raised.value, "hint", None)
    assert not place.state.exists()


def test_a_copy_cut_short_by_a_crash_of_the_publisher_is_a_purged_range(place: Place, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system here")
    state = shared / f"wormhole-cut-{os.getpid()}"
    try:
        writer = place.writer()
        source = place.source(state=state)
        start = source.latest()
        writer.many(0, 10)
        assert read_log(source, start).keys() == keys(0, 10)
        source.stop()
        [copy] = (state / "rocksdb" / "1" / "wal").glob("*.log")
        os.truncate(copy, copy.stat().st_size - 7)
        for n in range(2):
            writer.flush()
            writer.many(10 + n, 1)
        source = place.source(state=state)
        read = read_log(source, start)
        assert read.keys() == [*keys(0, 9), *keys(11, 1)]
        assert [(g.kind, g.first_missing, g.last_missing) for g in read.gaps] == [(LossKind.PURGED, "10", "11")]
        source.stop()
    finally:
        shutil.rmtree(state, ignore_errors=True)
