"""Places of the log: found without decoding, and by what operators name them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from datastores.rocksdb.history.catalogue import FamilyCatalogue
from datastores.rocksdb.history.files import live_files
from datastores.rocksdb.history.time_index import TimeIndex
from datastores.rocksdb.history.wal_files import WalHistory
from datastores.rocksdb.log import port
from datastores.rocksdb.log.places import (
    check_anchor,
    check_reach,
    first_sequence,
    open_wal,
    record_after,
    sequence_after,
    sequence_of,
)
from datastores.rocksdb.log.scan import find_sequence, read_record, scan_end
from tests.support.present import present
from tests.support.rocks_writer import RocksWriter
from tests.support.rocksdb_wal import DirectoryFiles, WalWriter, batch, place, put
from wormhole.model.errors import DecodeError, Diverged, PositionError, PositionPurged
from wormhole.model.position import Anchor, Datamarker, LogPosition

# --- scan: places found without decoding; the integration tests do the same over real files ---


def files(folder: Path, first: int = 1, count: int = 5) -> DirectoryFiles:
    writer = WalWriter()
    for i in range(count):
        writer.add(batch(first + 2 * i, [put(b"a", b"1"), put(b"b", b"2")]))
    (folder / "000004.log").write_bytes(writer.data)
    return DirectoryFiles(folder)


def test_an_empty_log_ends_where_it_begins(tmp_path: Path) -> None:
    assert scan_end(DirectoryFiles(tmp_path), source_id="s", incarnation=1).order == place(0, 0)
    (tmp_path / "000007.log").write_bytes(b"")
    end = scan_end(DirectoryFiles(tmp_path), source_id="s", incarnation=1)
    assert (end.order, end.delivered, end.anchor) == (place(7, 0), "", None)


def damaged(folder: Path, last: int) -> tuple[DirectoryFiles, list[tuple[int, int]]]:
    """Five transactions, of which number 2 is damaged, and more of them from there on up to ``last``; and all
    places."""
    writer = WalWriter()
    places = [writer.add(batch(1 + 2 * i, [put(b"a", b"1"), put(b"b", b"2")])) for i in range(5)]
    for begin, _ in places[2 : last + 1]:
        writer.data[begin + 9] ^= 4
    (folder / "000004.log").write_bytes(writer.data)
    return DirectoryFiles(folder), places


def test_damage_does_not_hide_the_end(tmp_path: Path) -> None:
    view, places = damaged(tmp_path, 2)
    end = scan_end(view, source_id="s", incarnation=1)
    assert (end.order, end.delivered) == (place(4, places[4][1]), "10")
    assert record_after(view, place(4, 0)) == (place(4, 0), 1)
    assert record_after(view, place(4, places[1][1])) == (place(4, places[3][0]), 7)
    with pytest.raises(DecodeError, match="valid log follows"):
        find_sequence(view, 7, source_id="s", incarnation=1)


def test_without_log_behind_it_damage_is_a_torn_end(tmp_path: Path) -> None:
    view, places = damaged(tmp_path, 4)
    end = scan_end(view, source_id="s", incarnation=1)
    assert (end.order, end.delivered) == (place(4, places[1][1]), "4")
    assert record_after(view, end.order) is None
    (tmp_path / "000005.log").write_bytes(b"")
    assert scan_end(view, source_id="s", incarnation=1).delivered == "4"
    writer = WalWriter()
    writer.add(batch(11, [put(b"c", b"3")]))
    (tmp_path / "000005.log").write_bytes(writer.data)
    assert scan_end(view, source_id="s", incarnation=1).delivered == "11"
    assert record_after(view, end.order) == (place(5, 0), 11)


def test_a_number_inside_a_transaction_gives_the_place_before_it(tmp_path: Path) -> None:
    view = files(tmp_path)
    for sequence, delivered in {0: "0", 1: "1", 2: "2", 3: "2", 4: "4", 9: "8", 10: "10"}.items():
        assert find_sequence(view, sequence, source_id="s", incarnation=1).delivered == delivered
    assert scan_end(view, source_id="s", incarnation=1).delivered == "10"


def test_numbers_outside_the_log_are_refused(tmp_path: Path) -> None:
    view = files(tmp_path, first=11)
    with pytest.raises(PositionPurged) as purged:
        find_sequence(view, 5, source_id="s", incarnation=1)
    assert (purged.value.first_missing, purged.value.last_missing) == ("6", "10")
    with pytest.raises(PositionError, match="its last is 20"):
        find_sequence(view, 21, source_id="s", incarnation=1)
    assert find_sequence(view, 10, source_id="s", incarnation=1).order == place(4, 0)


def test_records_are_read_for_comparison(tmp_path: Path) -> None:
    view = files(tmp_path)
    end = scan_end(view, source_id="s", incarnation=1)
    assert end.anchor is not None
    found = present(read_record(view, end.anchor.begin))
    assert (found.sequence, found.checksum, found.end) == (9, end.anchor.checksum, end.order)
    assert read_record(view, place(4, 3)) is None
    assert read_record(view, place(5, 0)) is None
    assert read_record(view, end.order) is None


# --- places ---


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
def marked_files(tmp_path: Path) -> Directory:
    writer = RocksWriter(tmp_path)
    writer.many(0, 5)
    writer.kill()
    return Directory(tmp_path)


def test_sequences(marked_files: Directory) -> None:
    number = present(marked_files.newer(-1))
    end = scan_end(marked_files, source_id="s", incarnation=1).order
    assert first_sequence(marked_files, number) == 1
    assert sequence_after(marked_files, LogPosition(1, number, 0)) == 1
    assert sequence_after(marked_files, LogPosition(1, number, end.offset - 1)) == 5
    assert sequence_after(marked_files, end) is None
    assert open_wal(marked_files, 99) is None
    assert first_sequence(marked_files, None) is None


def test_anchors(marked_files: Directory) -> None:
    marker = scan_end(marked_files, source_id="s", incarnation=1)
    assert marker.anchor is not None
    check_anchor(marked_files, marker)
    anchor, order = marker.anchor, marker.order
    for other in (
        Anchor("s:4", anchor.checksum, anchor.begin),
        Anchor(anchor.id, anchor.checksum + 1, anchor.begin),
        Anchor(anchor.id, anchor.checksum, LogPosition(1, order.file, order.offset)),
    ):
        with pytest.raises(Diverged):
            check_anchor(marked_files, Datamarker(order, "5", order, other))
    beyond = LogPosition(1, order.file, 1 << 20)
    with pytest.raises(Diverged):
        check_anchor(marked_files, Datamarker(beyond, "5", beyond))
    check_anchor(
        marked_files, Datamarker(beyond, "5", beyond, Anchor("s:1", 0, LogPosition(1, 1, 0)))
    )  # its file was released


def test_reach(marked_files: Directory) -> None:
    gone = LogPosition(1, 1, 50)
    check_reach(marked_files, Datamarker(gone, "0", gone), 0)
    newest = LogPosition(1, 1000, 50)
    check_reach(marked_files, Datamarker(newest, "9", newest), 9)
    with pytest.raises(PositionPurged) as error:
        check_reach(marked_files, Datamarker(newest, "5", newest), 9)
    assert (error.value.first_missing, error.value.last_missing) == ("6", "9")


@pytest.mark.parametrize("delivered", ["", "x", "9" * 500_000, "-1", "1.5"])
def test_a_logical_position_that_is_no_number_is_a_place_that_cannot_be_read(delivered: str) -> None:
    """A subscriber may have sent it."""
    order = LogPosition(1, 1, 1)
    with pytest.raises(PositionError, match="no sequence number of RocksDB") as caught:
        sequence_of(Datamarker(order, delivered, order))
    assert len(str(caught.value)) < 300


# --- port ---


if TYPE_CHECKING:
    FILES: type[port.WalFiles] = WalHistory
    CATALOGUE: type[port.Catalogue] = FamilyCatalogue
    TIMES: type[port.CommitTimes] = TimeIndex


@pytest.mark.parametrize(
    ("protocol", "form"),
    [(port.WalFiles, WalHistory), (port.Catalogue, FamilyCatalogue), (port.CommitTimes, TimeIndex)],
)
def test_each_form_takes_what_its_port_promises(protocol: type, form: type) -> None:
    promised = [name for name, member in vars(protocol).items() if inspect.isfunction(member) and name[0] != "_"]
    assert promised
    for name in promised:
        expected = list(inspect.signature(getattr(protocol, name)).parameters)
        assert list(inspect.signature(getattr(form, name)).parameters) == expected
