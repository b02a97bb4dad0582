from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from publisher.sources.rocksdb import keeper as keeper_module
from publisher.sources.rocksdb import watch as watch_module
from publisher.sources.rocksdb.continuity import first_too_low
from publisher.sources.rocksdb.keeper import WalKeeper
from tests.support.rocks_writer import RocksWriter
from tests.support.rocksdb_wal import WalWriter, batch, put
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.position import LogPosition


def database(path: Path, identity: str = "aaaa-bbbb-cccc", wal: bytes = b"first") -> None:
    path.mkdir(exist_ok=True)
    (path / "CURRENT").write_text("MANIFEST-000001\n")
    (path / "IDENTITY").write_text(identity)
    (path / "000004.log").write_bytes(wal)


def keeper(tmp_path: Path) -> WalKeeper:
    return WalKeeper(tmp_path / "store", tmp_path / "kept", 1 << 20)


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
    second = keeper(tmp_path)
    second.start()
    assert second.current.incarnation == 1
    second.stop()


def test_another_identity_another_incarnation_and_back_again(tmp_path: Path) -> None:
    database(tmp_path / "store")
    watched = keeper(tmp_path)
    watched.start()
    database(tmp_path / "store", "dddd", b"other")
    watched.scan()
    assert (watched.current.incarnation, watched.current.source_id) == (2, "dddd")
    watched.stop()
    database(tmp_path / "store")
    watched = keeper(tmp_path)
    watched.start()
    assert watched.current.incarnation == 1
    watched.stop()


def test_an_earlier_state_of_the_same_database_has_other_ids(tmp_path: Path) -> None:
    database(tmp_path / "store")
    first = keeper(tmp_path)
    first.start()
    first.stop()
    (tmp_path / "store" / "000004.log").unlink()
    database(tmp_path / "store", wal=b"other")
    second = keeper(tmp_path)
    second.start()
    assert (second.current.incarnation, second.current.source_id) == (2, "aaaabbbb-2")
    second.release(2, 4, 1)
    assert not (tmp_path / "kept" / "1").exists()
    second.stop()


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
    watched = keeper(tmp_path)
    watched.start()
    watched.reached(LogPosition(1, *end), "3")
    watched.stop()
    for number, content in behind:
        path = store / f"{number:06d}.log"
        path.write_bytes(content)
        os.link(path, tmp_path / "kept" / "1" / "wal" / path.name)


def incarnation(tmp_path: Path) -> int:
    """That a publisher has which starts now."""
    watched = keeper(tmp_path)
    watched.start()
    watched.scan()
    found = watched.current.incarnation
    watched.stop()
    return found


@pytest.mark.parametrize(
    "behind",
    [((8, log(4, 5)),), ((8, log(4)), (12, log(5))), ((8, log(4, 5)), (12, b"torn"))],
    ids=["one", "two", "before a torn one"],
)
def test_kept_and_never_read_that_follows_is_the_same_history(
    tmp_path: Path, behind: tuple[tuple[int, bytes], ...]
) -> None:
    kept_after(tmp_path, *behind)
    for number in (4, *(number for number, _ in behind)):
        (tmp_path / "store" / f"{number:06d}.log").unlink()
    (tmp_path / "store" / "000016.log").write_bytes(log(6))
    assert incarnation(tmp_path) == 1


@pytest.mark.parametrize(
    "behind",
    [((8, log(3, 4, 5)),), ((8, log(3)), (12, log(4, 5))), ((8, log(3, 4, 5)), (12, b"torn"))],
    ids=["one", "the first of two", "before a torn one"],
)
def test_kept_and_never_read_behind_what_a_crash_took_is_another_history(
    tmp_path: Path, behind: tuple[tuple[int, bytes], ...]
) -> None:
    kept_after(tmp_path, *behind)
    for number in (4, *(number for number, _ in behind)):
        (tmp_path / "store" / f"{number:06d}.log").unlink()
    (tmp_path / "store" / "000016.log").write_bytes(log(6))
    assert incarnation(tmp_path) == 2


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


def test_a_copy_that_undoes_what_is_kept_and_unread_is_an_earlier_state(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    writer = RocksWriter(store)
    writer.put(b"a", b"1")
    writer.close()
    shutil.copytree(store, copy)
    writer.open()
    watched = by_hand(tmp_path)
    writer.put(b"b", b"2")
    writer.close()
    shutil.rmtree(store)
    shutil.copytree(copy, store)
    for _ in range(5):  # past every number that was seen
        writer.open()
        writer.close()
    writer.open()
    watched.scan()
    incarnation = watched.current.incarnation
    watched.stop()
    writer.exit()
    assert incarnation == 2


def test_a_copy_that_comes_during_a_look_is_noticed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    writer = RocksWriter(store)
    writer.put(b"a", b"1")
    writer.close()
    shutil.copytree(store, copy)
    writer.open()
    watched = by_hand(tmp_path)
    writer.put(b"b", b"2")
    watched.scan()
    watched.reached(LogPosition(1, watched.current.files.highest, 1), "2")

    def interrupted(*arguments: Any) -> str | None:
        monkeypatch.setattr(keeper_module, "first_too_low", first_too_low)
        found = first_too_low(*arguments)
        writer.close()
        shutil.rmtree(store)
        shutil.copytree(copy, store)
        for _ in range(5):  # past every number that was seen
            writer.open()
            writer.close()
        writer.open()
        return found

    monkeypatch.setattr(keeper_module, "first_too_low", interrupted)
    watched.scan()
    watched.scan()
    incarnation = watched.current.incarnation
    watched.stop()
    writer.exit()
    assert incarnation == 2


def test_either_of_the_two_state_files_is_enough_and_no_number_is_given_twice(tmp_path: Path) -> None:
    database(tmp_path / "store")
    first = keeper(tmp_path)
    first.start()
    database(tmp_path / "store", "dddd", b"other")
    first.scan()
    first.stop()
    (tmp_path / "kept" / "histories.json").write_text("{")
    second = keeper(tmp_path)
    second.start()
    assert (second.current.incarnation, second.current.source_id) == (2, "dddd")
    second.stop()
    (tmp_path / "kept" / "histories.json").unlink()
    (tmp_path / "kept" / "2" / "known.json").unlink()
    third = keeper(tmp_path)
    third.start()
    assert third.current.incarnation == 3
    third.stop()


def test_a_database_that_goes_away_is_a_problem_that_passes(tmp_path: Path) -> None:
    database(tmp_path / "store")
    watched = keeper(tmp_path)
    watched.start()
    (tmp_path / "store").rename(tmp_path / "away")
    watched.scan()
    assert "is gone" in str(watched.problems()[0])
    (tmp_path / "away").rename(tmp_path / "store")
    watched.scan()
    # Whether inotify can be had is the machine's business.
    assert not [problem for problem in map(str, watched.problems()) if "inotify" not in problem]
    assert watched.current.incarnation == 1
    watched.stop()


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
        until(lambda: watched.current.files.path(5) is not None)
    told = [record.message for record in caplog.records if "inotify" in record.message]
    assert len(told) == 1
    spare = watch_module._open_inotify()
    if spare >= 0:  # there may be none in truth
        os.close(spare)
        until(lambda: not any("inotify" in problem for problem in map(str, watched.problems())))
    watched.stop()


def until(true: Callable[[], object]) -> None:
    """The keeper's own thread gets there; the test's time limit ends one that does not."""
    while not true():
        time.sleep(0.002)


def test_a_folder_belongs_to_one(tmp_path: Path) -> None:
    database(tmp_path / "store")
    first, second = keeper(tmp_path), keeper(tmp_path)
    first.start()
    with pytest.raises(UsageError, match="in use"):
        second.start()
    first.stop()
    second.start()
    second.stop()
