from __future__ import annotations

from pathlib import Path

import pytest

from datastores.rocksdb.history.files import live_files
from datastores.rocksdb.log.places import (
    check_anchor,
    check_reach,
    first_sequence,
    open_wal,
    sequence_after,
    sequence_of,
)
from datastores.rocksdb.log.scan import scan_end
from tests.support.present import present
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import Diverged, PositionError, PositionPurged
from wormhole.model.position import Anchor, Datamarker, LogPosition


class Directory:
    """WAL files as they lie there."""

    reached = (-1, 0)

    def __init__(self, path: Path) -> None:
        self._path = path

    def path(self, number: int) -> Path | None:
        file = live_files(self._path).get(number)
        return file.path if file else None

    def newer(self, number: int) -> int | None:
        return min((n for n in live_files(self._path) if n > number), default=None)

    def wait(self, seconds: float) -> None:
        raise AssertionError("nothing waits here")


@pytest.fixture
def files(tmp_path: Path) -> Directory:
    writer = RocksWriter(tmp_path)
    writer.many(0, 5)
    writer.kill()
    return Directory(tmp_path)


def test_sequences(files: Directory) -> None:
    number = present(files.newer(-1))
    end = scan_end(files, source_id="s", incarnation=1).order
    assert first_sequence(files, number) == 1
    assert sequence_after(files, LogPosition(1, number, 0)) == 1
    assert sequence_after(files, LogPosition(1, number, end.offset - 1)) == 5
    assert sequence_after(files, end) is None
    assert open_wal(files, 99) is None
    assert first_sequence(files, None) is None


def test_anchors(files: Directory) -> None:
    marker = scan_end(files, source_id="s", incarnation=1)
    assert marker.anchor is not None
    check_anchor(files, marker)
    anchor, order = marker.anchor, marker.order
    for other in (
        Anchor("s:4", anchor.checksum, anchor.begin),
        Anchor(anchor.id, anchor.checksum + 1, anchor.begin),
        Anchor(anchor.id, anchor.checksum, LogPosition(1, order.file, order.offset)),
    ):
        with pytest.raises(Diverged):
            check_anchor(files, Datamarker(order, "5", order, other))
    beyond = LogPosition(1, order.file, 1 << 20)
    with pytest.raises(Diverged):
        check_anchor(files, Datamarker(beyond, "5", beyond))
    check_anchor(
        files, Datamarker(beyond, "5", beyond, Anchor("s:1", 0, LogPosition(1, 1, 0)))
    )  # its file was released


def test_reach(files: Directory) -> None:
    gone = LogPosition(1, 1, 50)
    check_reach(files, Datamarker(gone, "0", gone), 0)
    newest = LogPosition(1, 1000, 50)
    check_reach(files, Datamarker(newest, "9", newest), 9)
    with pytest.raises(PositionPurged) as error:
        check_reach(files, Datamarker(newest, "5", newest), 9)
    assert (error.value.first_missing, error.value.last_missing) == ("6", "9")


@pytest.mark.parametrize("delivered", ["", "x", "9" * 500_000, "-1", "1.5"])
def test_a_logical_position_that_is_no_number_is_a_place_that_cannot_be_read(delivered: str) -> None:
    """A subscriber may have sent it."""
    order = LogPosition(1, 1, 1)
    with pytest.raises(PositionError, match="no sequence number of RocksDB") as caught:
        sequence_of(Datamarker(order, delivered, order))
    assert len(str(caught.value)) < 300
