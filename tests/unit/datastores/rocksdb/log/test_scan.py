"""Places found without decoding; the integration tests do the same over real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.rocksdb.log.places import record_after
from datastores.rocksdb.log.scan import find_sequence, read_record, scan_end
from tests.support.present import present
from tests.support.rocksdb_wal import DirectoryFiles, WalWriter, batch, place, put
from wormhole.model.errors import DecodeError, PositionError, PositionPurged


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
