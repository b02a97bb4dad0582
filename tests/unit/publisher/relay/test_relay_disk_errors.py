"""A disk that is full, broken or read-only: what was whole stays, what cannot be trusted goes, nothing is hidden."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from datastores.memory.source import MemorySource
from publisher.relay.cursor import Cursor, Gone
from publisher.relay.disk import DISK
from publisher.relay.files import NotAdjoiningError, RelayFiles
from publisher.relay.settings import RelayIdentity
from tests.support.relay_disk import FakeDisk
from wormhole.model.errors import SourceUnavailable, UsageError
from wormhole.model.position import Datamarker
from wormhole.model.values import Op
from wormhole.ports.testing.reading import Read, read_log

IDENTITY = RelayIdentity("orders", "memory", "log", 1 << 20, "")
FOLDER = Path("/relay")
FIRST = "relay-00000000000000000001.wrf"
SECOND = "relay-00000000000000000002.wrf"


class Scene:
    """A log, and relay files of one or two transactions each on a disk that does as it is told."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.log = MemorySource()
        self.start = self.log.latest()
        self.files = self.opened()
        self.files.begin(self.start)

    def opened(self, identity: RelayIdentity = IDENTITY) -> RelayFiles:
        files = RelayFiles(FOLDER, identity, hold=True, disk=self.disk, compress=False, file_bytes=1700)
        files.open()
        return files

    def commit(self, rows: int = 2) -> Datamarker:
        """One transaction, which is not written yet."""
        return self.log.commit([(Op.INSERT, "t", f"{i}", {"v": "x" * 300}) for i in range(rows)])

    def write(self, marker: Datamarker, max_bytes: int = 1 << 20) -> None:
        """The log behind ``marker``."""
        with closing(self.log.open(marker)) as reader:
            while (segment := reader.read(max_bytes, 0)) is not None:
                self.files.append(segment)

    def ends(self) -> list[Datamarker]:
        return [stretch.end for stretch in self.files.stretches]


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.disk.work()
    scene.files.close()


def ids_from(cursor: Cursor | None) -> list[str]:
    assert cursor is not None
    read = Read()
    with closing(cursor):
        while (segment := cursor.next()) is not None:
            read.add(segment)
    return read.ids()


def test_a_full_disk_costs_what_did_not_fit(scene: Scene) -> None:
    first = scene.commit()
    scene.write(scene.start)
    scene.commit()
    scene.disk.capacity = scene.disk.used() + 100
    with pytest.raises(OSError, match="No space left"):
        scene.write(first)
    assert scene.ends() == [first]
    scene.disk.capacity = 1 << 30
    scene.write(first)
    assert ids_from(scene.files.find(scene.start)) == read_log(scene.log, scene.start).ids()


def test_a_full_disk_in_the_middle_of_a_transaction_costs_the_transaction(scene: Scene) -> None:
    first = scene.commit(1)
    scene.write(scene.start)
    scene.commit(12)
    scene.disk.capacity = scene.disk.used() + 2000
    with pytest.raises(OSError, match="No space left"):
        scene.write(first, 400)
    assert scene.ends() == [first]
    assert not scene.files.unfinished


def test_a_file_that_cannot_be_cut_is_given_up(scene: Scene) -> None:
    first = scene.commit(1)
    scene.write(scene.start)
    scene.commit()
    scene.disk.fails = lambda one, of: FakeDisk.error(errno.EIO) if one in ("write", "truncate") else None
    with pytest.raises(OSError, match="Input/output"):
        scene.write(first)
    assert scene.ends() == []
    with pytest.raises(NotAdjoiningError):
        scene.write(first)
    scene.disk.work()
    scene.files.begin(first)
    scene.write(first)
    assert len(ids_from(scene.files.find(first))) == 2


def test_a_disk_without_room_for_another_file(scene: Scene) -> None:
    scene.commit(4)
    scene.write(scene.start)
    assert len(scene.files.files) == 1
    before = scene.log.latest()
    scene.commit()
    for capacity in (0, 50):
        scene.disk.capacity = scene.disk.used() + capacity
        with pytest.raises(OSError, match="No space left"):
            scene.write(before)
        assert scene.ends() == [before]
        assert scene.disk.names(FOLDER) == [FIRST]
    scene.disk.break_down("create", errno.EROFS)
    with pytest.raises(OSError, match="Read-only"):
        scene.write(before)
    scene.disk.work()
    scene.disk.capacity = 1 << 30
    scene.write(before)
    assert scene.ends() == [scene.log.latest()]


def test_a_file_that_cannot_be_synced_is_given_up(scene: Scene) -> None:
    first = scene.commit(4)
    scene.write(scene.start)
    scene.files.sync()
    assert scene.files.stretches[0].synced == first
    scene.commit(1)
    scene.write(first)
    scene.disk.break_down("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        scene.files.sync()
    assert scene.disk.names(FOLDER) == [FIRST]
    assert [(one.end, one.synced) for one in scene.files.stretches] == [(first, first)]
    scene.disk.work()
    scene.write(first)
    scene.files.sync()
    assert scene.files.stretches[0].synced == scene.log.latest()
    assert ids_from(scene.files.find(scene.start)) == read_log(scene.log, scene.start).ids()


def test_a_file_that_cannot_be_synced_when_it_is_completed_is_given_up(scene: Scene) -> None:
    scene.disk.break_down("sync", errno.EIO)
    scene.commit(4)
    scene.write(scene.start)
    assert scene.ends() == []
    assert scene.disk.names(FOLDER) == []


def test_files_whose_names_cannot_be_synced_are_given_up(scene: Scene) -> None:
    first = scene.commit(4)
    scene.write(scene.start)
    scene.files.sync()
    scene.commit(1)
    scene.write(first)
    scene.disk.break_down("sync_folder", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        scene.files.sync()
    assert scene.disk.names(FOLDER) == [FIRST]
    assert scene.files.stretches[0].synced == first


def test_a_file_without_an_index_is_read_at_the_next_start(scene: Scene) -> None:
    scene.commit(1)
    scene.write(scene.start)
    scene.disk.capacity = scene.disk.used() + 10
    scene.files.close()
    scene.files = scene.opened()
    assert scene.ends() == [scene.log.latest()]
    assert ids_from(scene.files.find(scene.start)) == read_log(scene.log, scene.start).ids()


def test_damage_in_one_file_leaves_the_others(scene: Scene) -> None:
    marker = scene.start
    for _ in range(3):
        before, marker = marker, scene.commit(4)
        scene.write(before)
    second = scene.files.files[1]
    data = scene.disk.content(SECOND)
    data[len(data) // 2] ^= 1
    with pytest.raises(Gone, match=f"{SECOND} was removed: offset"):
        ids_from(scene.files.find(scene.start))
    assert scene.ends() == [second.begin, marker]
    assert scene.files.find(second.begin) is not None, "the end of what is there"
    assert len(ids_from(scene.files.find(second.end))) == 4


def test_damage_before_the_end_is_told_from_a_torn_end(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    first = scene.commit(1)
    scene.write(scene.start)
    second = scene.commit(1)
    scene.write(first)
    whole = bytes(scene.disk.content(FIRST))
    for damaged in (False, True):
        scene.disk.capacity = scene.disk.used()  # no index
        scene.files.close()
        scene.disk.capacity = 1 << 30
        caplog.clear()
        scene.disk.content(FIRST)[:] = whole[:-5]
        if damaged:
            scene.disk.content(FIRST)[:] = whole
            scene.disk.content(FIRST)[700] ^= 1
        scene.files = scene.opened()
        assert scene.ends() == ([] if damaged else [first])
        assert ("is damaged at offset" in caplog.text) == damaged
    assert second.order > first.order


def test_a_file_that_cannot_be_read(scene: Scene) -> None:
    scene.commit(1)
    scene.write(scene.start)
    cursor = scene.files.find(scene.start)
    assert cursor is not None
    scene.disk.break_down("read", errno.EACCES)
    with pytest.raises(SourceUnavailable, match="cannot be read: Permission denied"):
        ids_from(scene.files.find(scene.start))
    assert len(scene.ends()) == 1
    scene.disk.break_down("read", errno.EIO)
    with pytest.raises(Gone, match="was removed: offset"):
        cursor.next()
    assert scene.ends() == []
    assert scene.files.find(scene.start) is None


def test_a_file_that_somebody_removed(scene: Scene) -> None:
    scene.commit(1)
    scene.write(scene.start)
    scene.disk.unlink(FOLDER / FIRST)
    with pytest.raises(Gone):
        ids_from(scene.files.find(scene.start))
    assert scene.files.find(scene.start) is None, "it is not tried again for ever"


@pytest.mark.parametrize(("operation", "number"), [("make_folder", errno.EROFS), ("lock", errno.EACCES)])
def test_a_folder_that_cannot_be_used(operation: str, number: int) -> None:
    disk = FakeDisk()
    disk.break_down(operation, number)
    with pytest.raises(SourceUnavailable, match="the relay folder /relay cannot be opened: "):
        RelayFiles(FOLDER, IDENTITY, disk=disk).open()


def test_a_start_beside_files_that_cannot_be_read(scene: Scene) -> None:
    scene.commit(4)
    scene.write(scene.start)
    scene.files.close()
    scene.disk.break_down("open", errno.EACCES)
    with pytest.raises(SourceUnavailable, match="Permission denied"):
        scene.opened()
    scene.disk.break_down("read", errno.EIO, path=FIRST)
    scene.files = scene.opened()
    assert scene.disk.names(FOLDER) == []


def test_a_file_that_cannot_be_removed_is_not_used(scene: Scene) -> None:
    scene.commit(4)
    scene.write(scene.start)
    scene.disk.break_down("unlink", errno.EROFS)
    assert scene.files.drop_oldest()
    assert scene.files.find(scene.start) is None


def test_a_file_of_a_later_format(scene: Scene) -> None:
    scene.commit(4)
    scene.write(scene.start)
    scene.files.close()
    scene.disk.content(FIRST)[8] = 9
    with pytest.raises(UsageError, match="format version 9 instead of 1"):
        scene.opened()


def test_a_file_that_a_loss_of_power_brought_back_gives_way(scene: Scene) -> None:
    first = scene.commit(1)
    scene.write(scene.start)
    scene.disk.break_down("sync", errno.EIO)
    lost = bytes(scene.disk.content(FIRST))
    with pytest.raises(OSError, match="Input/output"):
        scene.files.sync()
    scene.disk.work()
    scene.files.begin(scene.start)
    scene.commit(4)
    scene.write(scene.start)
    scene.files.close()
    scene.disk.create(FOLDER / FIRST).write(0, lost)
    scene.files = scene.opened()
    assert scene.ends() == [scene.log.latest()]
    assert list(scene.disk.names(FOLDER)) == [SECOND]
    assert first.order > scene.start.order


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
    DISK.sync_folder(folder)
    DISK.unlink(folder / "f")
    assert DISK.names(folder) == ["l"]


def test_a_folder_of_another_user_is_no_relay(tmp_path: Path) -> None:
    folder = tmp_path / "relay"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(OSError, match="every user may write to it"):
        DISK.make_folder(folder)
