from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from publisher.sources.rocksdb import watch as module
from publisher.sources.rocksdb.watch import DirectoryWatch


def test_tells_names_from_growth(tmp_path: Path) -> None:
    watch = DirectoryWatch(lambda name: name.endswith(".log"))
    watch.watch([tmp_path])
    if watch.polling:
        pytest.skip("no inotify here")
    path = tmp_path / "1.log"
    path.write_bytes(b"")
    assert watch.wait(5.0)
    assert watch.created == ["1.log"]
    path.write_bytes(b"x")
    assert not watch.wait(5.0)
    (tmp_path / "LOG").write_bytes(b"x")
    assert not watch.wait(0.05)
    path.rename(tmp_path / "2.log")
    assert watch.wait(5.0)
    assert watch.created == ["2.log"]
    watch.close()


@pytest.mark.parametrize("polling", [False, True])
def test_can_be_woken(tmp_path: Path, polling: bool) -> None:
    watch = DirectoryWatch(lambda _: True, polling=polling)
    watch.watch([tmp_path])
    waker = threading.Timer(0.05, watch.wake)
    waker.start()
    began = time.monotonic()
    watch.wait(30.0)
    assert time.monotonic() - began < 10
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
    watch.watch([tmp_path])
    if polls(watch):
        pytest.skip("no inotify here")
    (tmp_path / "1.log").write_bytes(b"")
    assert watch.wait(5.0)
    assert watch.created == ["1.log"]
    watch.close()
