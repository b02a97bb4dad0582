from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c

from datastores.rocksdb.history.files import live_files
from datastores.rocksdb.history.pin import Pin, copy_of, link_to, trim
from tests.support.present import present
from tests.support.rocksdb_wal import fragment


def recyclable(number: int, payload: bytes) -> bytes:
    body = b"\x05" + struct.pack("<I", number) + payload
    crc = int(google_crc32c.value(body))
    return struct.pack("<IH", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF, len(payload)) + body


def test_a_link_holds_what_is_written_later(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    path = tmp_path / "000004.log"
    path.write_bytes(b"one")
    pin = present(link_to(live_files(tmp_path)[4], tmp_path / "kept"))
    assert pin.linked
    assert not pin.follow()
    with path.open("ab") as file:
        file.write(b"two")
    path.unlink()
    assert pin.path.read_bytes() == b"onetwo"
    pin.delete()
    assert not pin.path.exists()


def test_a_copy_follows_also_after_the_deletion(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    path = tmp_path / "000004.log"
    path.write_bytes(b"one")
    pin = copy_of(live_files(tmp_path)[4], tmp_path / "kept", recycled=False)
    assert pin.follow()
    assert not pin.follow()
    with path.open("ab") as file:
        file.write(b"two")
    path.unlink()
    assert pin.follow()
    assert pin.path.read_bytes() == b"onetwo"
    pin.close()
    assert not pin.following


def test_of_a_recycled_file_only_its_own_records_are_copied(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    old = b"".join(recyclable(4, b"old %d" % n) for n in range(4))
    new = recyclable(9, b"new 0")
    path = tmp_path / "000009.log"
    path.write_bytes(new + old[len(new) :])
    pin = copy_of(live_files(tmp_path)[9], tmp_path / "kept", recycled=True)
    pin.follow()
    assert pin.path.read_bytes() == new
    with path.open("r+b") as file:
        file.write(new + recyclable(9, b"new 1"))
    pin.follow()
    path.rename(tmp_path / "000012.log")
    with (tmp_path / "000012.log").open("r+b") as file:
        file.write(recyclable(12, b"newer"))
    assert not pin.follow()
    assert pin.path.read_bytes() == new + recyclable(9, b"new 1")
    pin.close()


def test_whole_records_of_every_kind_are_copied(tmp_path: Path) -> None:
    """Kinds without data, unknown kinds, and what follows on nothing, which the reader reports."""
    (tmp_path / "kept").mkdir()
    path = tmp_path / "000009.log"
    new = b"".join(fragment(kind, b"some", 9) for kind in (131, 5, 11, 6, 8, 133, 13, 8, 6, 131, 5))
    new += b"".join(fragment(kind, b"some") for kind in (130, 60, 200)) + fragment(5, b"last", 9)
    path.write_bytes(new + fragment(5, b"old", 4))
    pin = copy_of(live_files(tmp_path)[9], tmp_path / "kept", recycled=True)
    pin.follow()
    assert pin.path.read_bytes() == new
    trim(pin)
    assert pin.path.read_bytes() == new
    pin.close()


def test_a_copy_that_was_cut_short_ends_with_its_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "000004.log"
    whole = recyclable(4, b"one") + recyclable(4, b"two")
    for rest in (b"", recyclable(4, b"three")[:-2], b"\0" * 20):
        path.write_bytes(whole + rest)
        pin = Pin(4, path, path.stat().st_size, linked=False)
        trim(pin)
        assert path.read_bytes() == whole
        assert pin.size == len(whole)


def test_a_link_becomes_a_copy_without_touching_the_original(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    path = tmp_path / "000004.log"
    path.write_bytes(recyclable(4, b"one") + b"left over")
    live = live_files(tmp_path)[4]
    link_to(live, tmp_path / "kept")
    pin = copy_of(live, tmp_path / "kept", recycled=True)
    pin.follow()
    assert pin.path.read_bytes() == recyclable(4, b"one")
    assert path.read_bytes().endswith(b"left over")
    pin.close()
