"""A disk that is full, broken or read-only: what was whole stays, what cannot be trusted goes, nothing is hidden."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from publisher.relay.cursor import Gone
from publisher.relay.disk import DISK
from publisher.relay.files import NotAdjoiningError, RelayFiles
from tests.support.relay_disk import FakeDisk
from tests.support.relay_scene import FilesScene
from tests.support.relayed_harness import IDENTITY
from wormhole.model.errors import SourceUnavailable, UsageError

FOLDER = Path("/relay")
FIRST = "relay-00000000000000000001.wrf"
SECOND = "relay-00000000000000000002.wrf"


@pytest.fixture
def scene(disk: FakeDisk) -> Iterator[FilesScene]:
    """Relay files of one or two transactions each, on a disk that does as it is told; the first one begins."""
    scene = FilesScene(FOLDER, disk=disk, file_bytes=1700, hold=True, size=300)
    scene.files.begin(scene.start)
    yield scene
    disk.work()
    scene.files.close()


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


def test_a_full_disk_costs_what_did_not_fit(scene: FilesScene, disk: FakeDisk) -> None:
    first = scene.recorded()
    scene.commit()
    disk.capacity = disk.used() + 100
    with pytest.raises(OSError, match="No space left"):
        scene.record(first)
    assert scene.ends() == [first]
    disk.capacity = 1 << 30
    scene.record(first)
    assert scene.ids(scene.start) == scene.expected(scene.start)


def test_a_full_disk_in_the_middle_of_a_transaction_costs_the_transaction(scene: FilesScene, disk: FakeDisk) -> None:
    first = scene.recorded(1)
    scene.commit(12)
    disk.capacity = disk.used() + 2000
    with pytest.raises(OSError, match="No space left"):
        scene.record(first, 400)
    assert scene.ends() == [first]
    assert not scene.files.unfinished


def test_a_file_that_cannot_be_cut_is_given_up(scene: FilesScene, disk: FakeDisk) -> None:
    first = scene.recorded(1)
    scene.commit()
    disk.fails = lambda one, of: FakeDisk.error(errno.EIO) if one in ("write", "truncate") else None
    with pytest.raises(OSError, match="Input/output"):
        scene.record(first)
    assert scene.ends() == []
    with pytest.raises(NotAdjoiningError):
        scene.record(first)
    disk.work()
    scene.files.begin(first)
    scene.record(first)
    assert len(scene.ids(first)) == 2


def test_a_disk_without_room_for_another_file(scene: FilesScene, disk: FakeDisk) -> None:
    scene.recorded(4)
    assert len(scene.files.files) == 1
    before = scene.log.latest()
    scene.commit()
    for capacity in (0, 50):
        disk.capacity = disk.used() + capacity
        with pytest.raises(OSError, match="No space left"):
            scene.record(before)
        assert scene.ends() == [before]
        assert disk.names(FOLDER) == [FIRST]
    disk.break_down("create", errno.EROFS)
    with pytest.raises(OSError, match="Read-only"):
        scene.record(before)
    disk.work()
    disk.capacity = 1 << 30
    scene.record(before)
    assert scene.ends() == [scene.log.latest()]


@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_what_cannot_be_synced_is_given_up(scene: FilesScene, disk: FakeDisk, operation: str) -> None:
    first = scene.recorded(4)
    scene.files.sync()
    scene.recorded(1)
    disk.break_down(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        scene.files.sync()
    assert disk.names(FOLDER) == [FIRST]
    assert [(one.end, one.synced) for one in scene.files.stretches] == [(first, first)]
    disk.work()
    scene.record(first)
    scene.files.sync()
    assert scene.files.stretches[0].synced == scene.log.latest()
    assert scene.ids(scene.start) == scene.expected(scene.start)


def test_a_file_that_cannot_be_synced_when_it_is_completed_is_given_up(scene: FilesScene, disk: FakeDisk) -> None:
    disk.break_down("sync", errno.EIO)
    scene.recorded(4)
    assert scene.ends() == []
    assert disk.names(FOLDER) == []


def test_damage_in_one_file_leaves_the_others(scene: FilesScene, disk: FakeDisk) -> None:
    for _ in range(3):
        marker = scene.recorded(4)
    second = scene.files.files[1]
    data = disk.content(SECOND)
    data[len(data) // 2] ^= 1
    with pytest.raises(Gone, match=f"{SECOND} was removed: offset"):
        scene.ids(scene.start)
    assert scene.ends() == [second.begin, marker]
    assert scene.files.find(second.begin) is not None, "the end of what is there"
    assert len(scene.ids(second.end)) == 4


def test_damage_before_the_end_is_told_from_a_torn_end(
    scene: FilesScene, disk: FakeDisk, caplog: pytest.LogCaptureFixture
) -> None:
    first = scene.recorded(1)
    scene.recorded(1)
    whole = bytes(disk.content(FIRST))
    for damaged in (False, True):
        disk.capacity = disk.used()  # no index
        scene.files.close()
        disk.capacity = 1 << 30
        caplog.clear()
        disk.content(FIRST)[:] = whole[:-5]
        if damaged:
            disk.content(FIRST)[:] = whole
            disk.content(FIRST)[700] ^= 1
        scene.files = scene.opened()
        assert scene.ends() == ([] if damaged else [first])
        assert ("is damaged at offset" in caplog.text) == damaged


def test_a_file_that_cannot_be_read(scene: FilesScene, disk: FakeDisk) -> None:
    scene.recorded(1)
    cursor = scene.cursor(scene.start)
    disk.break_down("read", errno.EACCES)
    with pytest.raises(SourceUnavailable, match="cannot be read: Permission denied"):
        scene.ids(scene.start)
    assert len(scene.ends()) == 1
    disk.break_down("read", errno.EIO)
    with pytest.raises(Gone, match="was removed: offset"):
        cursor.next()
    assert scene.ends() == []
    assert scene.files.find(scene.start) is None


def test_a_file_that_somebody_removed(scene: FilesScene, disk: FakeDisk) -> None:
    scene.recorded(1)
    disk.unlink(FOLDER / FIRST)
    with pytest.raises(Gone):
        scene.ids(scene.start)
    assert scene.files.find(scene.start) is None, "it is not tried again for ever"


@pytest.mark.parametrize(("operation", "number"), [("make_folder", errno.EROFS), ("lock", errno.EACCES)])
def test_a_folder_that_cannot_be_used(operation: str, number: int) -> None:
    disk = FakeDisk()
    disk.break_down(operation, number)
    with pytest.raises(SourceUnavailable, match=r"^the relay folder /relay .*\[relay-unwritable\]"):
        RelayFiles(FOLDER, IDENTITY, disk=disk).open()


def test_a_start_beside_files_that_cannot_be_read(scene: FilesScene, disk: FakeDisk) -> None:
    scene.recorded(4)
    scene.files.close()
    disk.break_down("open", errno.EACCES)
    with pytest.raises(SourceUnavailable, match="Permission denied"):
        scene.opened()
    disk.break_down("read", errno.EIO, path=FIRST)
    scene.files = scene.opened()
    assert disk.names(FOLDER) == []


def test_a_file_that_cannot_be_removed_is_not_used(scene: FilesScene, disk: FakeDisk) -> None:
    scene.recorded(4)
    disk.break_down("unlink", errno.EROFS)
    assert scene.files.drop_oldest()
    assert scene.files.find(scene.start) is None


def test_a_file_of_a_later_format(scene: FilesScene, disk: FakeDisk) -> None:
    scene.recorded(4)
    scene.files.close()
    disk.content(FIRST)[8] = 9
    with pytest.raises(UsageError, match="format version 9 instead of 1"):
        scene.opened()


def test_a_file_that_a_loss_of_power_brought_back_gives_way(scene: FilesScene, disk: FakeDisk) -> None:
    scene.recorded(1)
    disk.break_down("sync", errno.EIO)
    lost = bytes(disk.content(FIRST))
    with pytest.raises(OSError, match="Input/output"):
        scene.files.sync()
    disk.work()
    scene.files.begin(scene.start)
    scene.commit(4)
    scene.record(scene.start)
    scene.files.close()
    disk.create(FOLDER / FIRST).write(0, lost)
    scene.files = scene.opened()
    assert scene.ends() == [scene.log.latest()]
    assert list(disk.names(FOLDER)) == [SECOND]


def test_the_real_disk(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    DISK.make_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700, "rows are in there"
    assert DISK.names(tmp_path / "none") == ()
    with closing(DISK.create(folder / "f")) as file:
        file.write(0, b"0123456789")
        file.truncate(8)
        file.sync()
        assert file.size() == 8
        assert file.read(2, 100) == b"234567"
        assert file.read(100, 1) == b""
    file.close()
    with pytest.raises(FileExistsError):
        DISK.create(folder / "f")
    with closing(DISK.lock(folder / "l")), pytest.raises(BlockingIOError):
        DISK.lock(folder / "l")
    with pytest.raises(OSError, match="File exists"):
        DISK.make_folder(folder / "f")
    DISK.sync_folder(folder)
    DISK.unlink(folder / "f")
    assert DISK.names(folder) == ["l"]


def test_a_folder_of_another_user_is_no_relay(tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(OSError, match="every user may write to it"):
        DISK.make_folder(folder)


def test_a_limit_of_the_operating_system_is_an_error(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(DISK.create(tmp_path / "f")) as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                file.write(0, bytes(100))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert file.size() == 50
