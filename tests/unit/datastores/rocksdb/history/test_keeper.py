"""Keeping files of the log: what is linked, watched and let go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from datastores.rocksdb.history import keeper as keeper_module
from datastores.rocksdb.history import watch as module
from datastores.rocksdb.history import watch as watch_module
from datastores.rocksdb.history.continuity import first_too_low
from datastores.rocksdb.history.keeper import WalKeeper
from datastores.rocksdb.history.watch import DirectoryWatch
from tests.support.eventually import PATIENCE_S, until
from tests.support.rocks_writer import RocksWriter
from tests.support.rocksdb_wal import WalWriter, batch, put
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.position import LogPosition

# --- keeper ---


def database(path: Path, identity: str = "aaaa-bbbb-cccc", wal: bytes = b"first") -> None:
    path.mkdir(exist_ok=True)
    (path / "CURRENT").write_text("MANIFEST-000001\n")
    (path / "IDENTITY").write_text(identity)
    (path / "000004.log").write_bytes(wal)


def keeper(tmp_path: Path) -> WalKeeper:
    return WalKeeper(tmp_path / "store", tmp_path / "kept", 1 << 20)


@contextmanager
def kept(tmp_path: Path) -> Iterator[WalKeeper]:
    """A keeper between its start and its stop."""
    started = keeper(tmp_path)
    started.start()
    try:
        yield started
    finally:
        started.stop()


def test_the_same_database_keeps_its_incarnation(tmp_path: Path) -> None:
    database(tmp_path / "store")
    first = keeper(tmp_path)
    first.start()
    first.start()
    assert (first.current.incarnation, first.current.source_id) == (1, "aaaabbbb")
    first.stop()
    first.stop()
    with pytest.raises(SourceUnavailable):
        assert first.current
    with kept(tmp_path) as second:
        assert second.current.incarnation == 1


def test_another_identity_another_incarnation_and_back_again(tmp_path: Path) -> None:
    database(tmp_path / "store")
    with kept(tmp_path) as watched:
        database(tmp_path / "store", "dddd", b"other")
        watched.scan()
        assert (watched.current.incarnation, watched.current.source_id) == (2, "dddd")
    database(tmp_path / "store")
    with kept(tmp_path) as watched:
        assert watched.current.incarnation == 1


def test_an_earlier_state_of_the_same_database_has_other_ids(tmp_path: Path) -> None:
    database(tmp_path / "store")
    with kept(tmp_path):
        pass
    (tmp_path / "store" / "000004.log").unlink()
    database(tmp_path / "store", wal=b"other")
    with kept(tmp_path) as second:
        assert (second.current.incarnation, second.current.source_id) == (2, "aaaabbbb-2")
        second.release(2, 4, 1)
        assert not (tmp_path / "kept" / "1").exists()


def log(*sequences: int) -> bytes:
    """A WAL with one change at each of these sequence numbers."""
    writer = WalWriter()
    for sequence in sequences:
        writer.add(batch(sequence, [put(b"k", b"v")]))
    return bytes(writer.data)


def kept_after(tmp_path: Path, *behind: tuple[int, bytes], end: tuple[int, int] = (4, 90)) -> None:
    """A publisher read WAL 4 with changes 1 to 3 up to ``end``, kept these behind it, and ended before it looked
    into them."""
    store = tmp_path / "store"
    database(store, wal=log(1, 2, 3))
    with kept(tmp_path) as watched:
        watched.reached(LogPosition(1, *end), "3")
    for number, content in behind:
        path = store / f"{number:06d}.log"
        path.write_bytes(content)
        os.link(path, tmp_path / "kept" / "1" / "wal" / path.name)


def incarnation(tmp_path: Path) -> int:
    """That a publisher has which starts now."""
    with kept(tmp_path) as watched:
        watched.scan()
        return watched.current.incarnation


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        (((8, log(4, 5)),), 1),
        (((8, log(4)), (12, log(5))), 1),
        (((8, log(4, 5)), (12, b"torn")), 1),
        (((8, log(3, 4, 5)),), 2),
        (((8, log(3)), (12, log(4, 5))), 2),
        (((8, log(3, 4, 5)), (12, b"torn")), 2),
    ],
    ids=["one", "two", "before a torn one", "back in one", "back in the first of two", "back before a torn one"],
)
def test_a_kept_file_that_was_never_read_follows_or_is_another_history(
    tmp_path: Path, behind: tuple[tuple[int, bytes], ...], expected: int
) -> None:
    """Another one: a crash took the end of the log, and its sequence numbers were used again."""
    kept_after(tmp_path, *behind)
    for number in (4, *(number for number, _ in behind)):
        (tmp_path / "store" / f"{number:06d}.log").unlink()
    (tmp_path / "store" / "000016.log").write_bytes(log(6))
    assert incarnation(tmp_path) == expected


@pytest.mark.parametrize(("following", "expected"), [(3, 2), (4, 1)])
def test_a_kept_file_without_a_whole_record_hides_nothing_of_what_was_reached(
    tmp_path: Path, following: int, expected: int
) -> None:
    kept_after(tmp_path, (8, b"torn"))
    assert incarnation(tmp_path) == 1
    (tmp_path / "store" / "000012.log").write_bytes(log(following))
    assert incarnation(tmp_path) == expected


@pytest.mark.parametrize(
    ("content", "expected"), [(b"torn", 1), (log(4), 1), (log(3, 4), 2)], ids=["torn", "next", "back"]
)
def test_the_logs_end_at_the_beginning_of_a_file_is_no_place_in_it(
    tmp_path: Path, content: bytes, expected: int
) -> None:
    kept_after(tmp_path, (8, b""), end=(8, 0))
    (tmp_path / "store" / "000008.log").write_bytes(content)
    assert incarnation(tmp_path) == expected


def by_hand(tmp_path: Path) -> WalKeeper:
    """A keeper that looks only when the test says so."""
    watched = keeper(tmp_path)
    watched.start()
    watched._stopping.set()
    assert watched._watch is not None
    watched._watch.wake()
    assert watched._thread is not None
    watched._thread.join()
    return watched


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[RocksWriter]:
    """The writer of a database with one change, of which a copy was made."""
    writer = RocksWriter(tmp_path / "store")
    writer.put(b"a", b"1")
    writer.close()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    writer.open()
    yield writer
    writer.exit()


def put_back(tmp_path: Path, writer: RocksWriter) -> None:
    """Replace the database by the copy, and open it until it is past every number that was seen."""
    writer.close()
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "copy", tmp_path / "store")
    for _ in range(5):
        writer.open()
        writer.close()
    writer.open()


def test_a_copy_that_undoes_what_is_kept_and_unread_is_an_earlier_state(tmp_path: Path, copied: RocksWriter) -> None:
    watched = by_hand(tmp_path)
    copied.put(b"b", b"2")
    put_back(tmp_path, copied)
    watched.scan()
    assert watched.current.incarnation == 2
    watched.stop()


def test_a_copy_that_comes_during_a_look_is_noticed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: RocksWriter
) -> None:
    watched = by_hand(tmp_path)
    copied.put(b"b", b"2")
    watched.scan()
    watched.reached(LogPosition(1, watched.current.files.highest, 1), "2")

    def interrupted(*arguments: Any) -> str | None:
        monkeypatch.setattr(keeper_module, "first_too_low", first_too_low)
        found = first_too_low(*arguments)
        put_back(tmp_path, copied)
        return found

    monkeypatch.setattr(keeper_module, "first_too_low", interrupted)
    watched.scan()
    watched.scan()
    assert watched.current.incarnation == 2
    watched.stop()


def test_either_of_the_two_state_files_is_enough_and_no_number_is_given_twice(tmp_path: Path) -> None:
    database(tmp_path / "store")
    with kept(tmp_path) as first:
        database(tmp_path / "store", "dddd", b"other")
        first.scan()
    (tmp_path / "kept" / "histories.json").write_text("{")
    with kept(tmp_path) as second:
        assert (second.current.incarnation, second.current.source_id) == (2, "dddd")
    (tmp_path / "kept" / "histories.json").unlink()
    (tmp_path / "kept" / "2" / "known.json").unlink()
    with kept(tmp_path) as third:
        assert third.current.incarnation == 3


def test_a_database_that_goes_away_is_a_problem_that_passes(tmp_path: Path) -> None:
    database(tmp_path / "store")
    with kept(tmp_path) as watched:
        (tmp_path / "store").rename(tmp_path / "away")
        watched.scan()
        assert "is gone" in str(watched.problems()[0])
        (tmp_path / "away").rename(tmp_path / "store")
        watched.scan()
        # Whether inotify can be had is the machine's business.
        assert not [problem for problem in map(str, watched.problems()) if "inotify" not in problem]
        assert watched.current.incarnation == 1


def test_a_system_without_a_free_inotify_instance_is_coped_with_and_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    database(tmp_path / "store")
    watched = keeper(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(watch_module, "_open_inotify", lambda: -1)
        watched.start()
        watched.scan()
        assert any("no inotify instance" in problem and "Next: " in problem for problem in map(str, watched.problems()))
        (tmp_path / "store" / "000005.log").write_bytes(b"second")
        until(lambda: watched.current.files.path(5) is not None, "the file is kept")
    told = [record.message for record in caplog.records if "inotify" in record.message]
    assert len(told) == 1
    spare = watch_module._open_inotify()
    if spare >= 0:  # there may be none in truth
        os.close(spare)
        until(
            lambda: not any("inotify" in problem for problem in map(str, watched.problems())), "inotify is used again"
        )
    watched.stop()


def test_a_folder_belongs_to_one(tmp_path: Path) -> None:
    database(tmp_path / "store")
    second = keeper(tmp_path)
    with kept(tmp_path), pytest.raises(UsageError, match="in use"):
        second.start()
    second.start()
    second.stop()


def test_a_second_publisher_of_a_database_is_named(tmp_path: Path) -> None:
    """From another folder: no other lock shows it."""
    store = tmp_path / "store"
    database(store)
    code = f"""
import sys
from pathlib import Path
from datastores.rocksdb.history.keeper import WalKeeper
keeper = WalKeeper(Path({str(store)!r}), Path({str(tmp_path / "other")!r}), 1 << 20)
keeper.start()
print("started", flush=True)
sys.stdin.read()
keeper.stop()
"""
    first = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdin is not None
    assert first.stdout.readline() == "started\n"
    second = WalKeeper(store, tmp_path / "own", 1 << 20)
    second.start()
    third = WalKeeper(store, tmp_path / "again", 1 << 20)  # in one process they know of each other
    try:
        (problem,) = [one for one in second.problems() if "tails" in one.text]
        assert f"process {first.pid} (" in problem.text
        assert problem.hint
        first.stdin.close()
        first.wait()
        second.scan()
        third.start()
        assert not [one for keeper in (second, third) for one in keeper.problems() if "tails" in one.text]
    finally:
        first.kill()
        first.wait()
        first.stdout.close()
        second.stop()
        third.stop()


# --- watch ---


def given_inotify(watch: DirectoryWatch, folder: Path) -> None:
    """Other processes may have every instance that the machine gives: one becomes free."""

    def given() -> bool:
        watch.watch([folder])
        return not watch.polling

    until(given, "every inotify instance of the machine is taken")


def test_new_names_are_distinguished_from_growth(tmp_path: Path) -> None:
    watch = DirectoryWatch(lambda name: name.endswith(".log"))
    given_inotify(watch, tmp_path)
    path = tmp_path / "1.log"
    path.write_bytes(b"")
    assert watch.wait(PATIENCE_S)
    assert watch.created == ["1.log"]
    path.write_bytes(b"x")
    assert not watch.wait(PATIENCE_S)
    (tmp_path / "LOG").write_bytes(b"x")
    assert not watch.wait(0.05)
    path.rename(tmp_path / "2.log")
    assert watch.wait(PATIENCE_S)
    assert watch.created == ["2.log"]
    watch.close()


@pytest.mark.parametrize("polling", [False, True])
def test_can_be_woken(tmp_path: Path, polling: bool) -> None:
    watch = DirectoryWatch(lambda _: True, polling=polling)
    watch.watch([tmp_path])
    waker = threading.Timer(0.05, watch.wake)
    waker.start()
    watch.wait(86_400.0)
    waker.join()
    watch.close()


def test_without_inotify_every_look_is_a_whole_one(tmp_path: Path) -> None:
    watch = DirectoryWatch(lambda _: True, polling=True)
    watch.watch([tmp_path])
    assert watch.polling
    assert watch.wait(0.0)
    watch.close()


def polls(watch: DirectoryWatch) -> bool:
    return watch.polling


def test_an_inotify_instance_that_becomes_free_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(module, "_open_inotify", lambda: -1)
        watch = DirectoryWatch(lambda _: True)
        watch.watch([tmp_path])
        assert polls(watch)
        assert watch.wait(0.0)
    given_inotify(watch, tmp_path)
    (tmp_path / "1.log").write_bytes(b"")
    assert watch.wait(PATIENCE_S)
    assert watch.created == ["1.log"]
    watch.close()


def test_a_full_queue_of_the_kernel_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = DirectoryWatch(lambda name: name.endswith(".log"))
    given_inotify(watch, tmp_path)
    monkeypatch.setattr(module, "_OVERFLOW", module._CREATE)  # as if each event were the one that says so
    (tmp_path / "1.txt").write_bytes(b"")
    assert watch.wait(PATIENCE_S)
    assert watch.overflowed
    assert watch.created == []
    watch.wait(0.0)
    overflowed: bool = watch.overflowed
    assert not overflowed
    watch.close()
