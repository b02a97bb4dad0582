from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from publisher.sources.high_water import HighWater
from wormhole.model.errors import SourceUnavailable
from wormhole.model.position import Anchor, Datamarker, LogPosition


def marker(offset: int, delivered: str = "", incarnation: int = 1) -> Datamarker:
    place = LogPosition(incarnation, 3, offset)
    return Datamarker(place, delivered, place)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "read.bin"


def test_a_process_that_ends_at_any_moment_leaves_the_last_place(path: Path) -> None:
    high_water = HighWater(path)
    assert high_water.last is None
    for offset in range(100, 120):
        high_water.rise(marker(offset, f"0-1-{offset}"))
        assert HighWater(path).last == marker(offset, f"0-1-{offset}")
    high_water.sync()


def test_only_what_is_further_counts(path: Path) -> None:
    high_water = HighWater(path)
    high_water.rise(marker(500, "0-1-5"))
    high_water.rise(marker(400, "0-1-4"))
    assert HighWater(path).last == marker(500, "0-1-5")
    high_water.rise(marker(4, "0-1-6", incarnation=2))
    assert HighWater(path).last == marker(4, "0-1-6", incarnation=2)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_write_that_was_cut_leaves_the_one_before(path: Path, damage: str) -> None:
    high_water = HighWater(path)
    for offset in (100, 200, 300):
        high_water.rise(marker(offset, "0-1-7" * 50))
    data = bytearray(path.read_bytes())
    last = data.rindex(b"1/3/300")
    if damage == "cut":
        data[last:] = bytes(len(data) - last)
    else:
        data[last + 2] ^= 1
    path.write_bytes(data)
    again = HighWater(path)
    assert again.last == marker(200, "0-1-7" * 50)
    again.rise(marker(400, "0-1-8"))
    assert HighWater(path).last == marker(400, "0-1-8")


@pytest.mark.parametrize("content", [b"", b"x", bytes(2 << 20), Random(1).randbytes(1 << 16)])
def test_a_file_that_makes_no_sense_is_begun_anew(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    high_water = HighWater(path)
    assert high_water.last is None
    high_water.rise(marker(100, "0-1-1"))
    assert HighWater(path).last == marker(100, "0-1-1")


def test_a_set_that_is_too_large_leaves_the_place(path: Path) -> None:
    high_water = HighWater(path)
    high_water.rise(marker(100, "x" * (1 << 20)))
    assert HighWater(path).last == marker(100)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    high_water = HighWater(tmp_path / "missing" / "read.bin")
    with pytest.raises(SourceUnavailable, match="cannot be read or written") as error:
        high_water.rise(marker(100))
    assert error.value.hint


def test_the_anchor_is_kept(tmp_path: Path) -> None:
    place = LogPosition(1, 0, 400)
    marker = Datamarker(place, "1:0/190", place, Anchor("7:1:380", 0xFFFFFFFF, LogPosition(1, 0, 380)))
    HighWater(tmp_path / "read.bin").rise(marker)
    assert HighWater(tmp_path / "read.bin").last == marker
