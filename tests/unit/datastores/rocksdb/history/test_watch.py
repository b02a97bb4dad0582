from __future__ import annotations

import threading
from pathlib import Path

import pytest

from datastores.rocksdb.history import watch as module
from datastores.rocksdb.history.watch import DirectoryWatch
from tests.support.eventually import PATIENCE_S, until


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
