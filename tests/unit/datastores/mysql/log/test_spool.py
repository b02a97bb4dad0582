from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from datastores.mysql.log.spool import LARGEST_EVENT, Spool
from tests.support import mysql_events as build
from wormhole.model.errors import DecodeError, SourceUnavailable

FULL = 0xFFFFFF


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "state", lambda kind, flags: kind == 29)
    yield made
    made.close()


def event(size: int, kind: int = build.WRITE) -> bytes:
    stream = build.Stream()
    return stream.add(kind, bytes(range(256)) * (size // 256 + 1))


@pytest.mark.parametrize("piece", [1, 1000, 1 << 20])
def test_an_event_however_it_is_received(spool: Spool, tmp_path: Path, piece: int) -> None:
    sent = event(2000)
    for _ in range(2):
        data = b"#" + build.packet(sent) + b"next"
        spool.begin()
        at = 1
        while not spool.ended:
            at = spool.take(data[: at + piece], at)
        assert data[at:] == b"next"
        assert (spool.header, spool.tail, spool.size) == (sent[:19], sent[-4:], len(sent))
        assert spool.crc == zlib.crc32(sent[:-4])
        body = spool.body(True)
        assert body.take(body.left) == sent[19:-4]
        assert spool.body(False).take(1 << 20) == sent[19:]
    spool.close()
    assert not list((tmp_path / "state").iterdir()), "the file has no name"


@pytest.mark.parametrize("size", [FULL - 1, FULL + 5, 2 * FULL - 1])
def test_an_event_of_several_packets(spool: Spool, size: int) -> None:
    sent = build.Stream().add(build.WRITE, bytes(size - 23))
    assert len(sent) == size
    data = build.packet(sent)
    spool.begin()
    assert spool.take(data + b"next", 0) == len(data)
    assert spool.ended
    assert (spool.received, spool.crc) == (size - 19, zlib.crc32(sent[:-4]))


def test_what_is_ignored_is_checked_and_not_kept(spool: Spool, tmp_path: Path) -> None:
    sent = event(2000, 29)
    spool.begin()
    spool.take(build.packet(sent), 0)
    assert (spool.ended, spool.crc, spool.body(True).left) == (True, zlib.crc32(sent[:-4]), 0)
    assert not (tmp_path / "state").exists()


def header(length: int) -> bytes:
    return bytes(9) + length.to_bytes(4, "little") + bytes(6)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\xff\1\2", "begins with 0xff, which is no event"),
        (b"\0" + header(LARGEST_EVENT + 1), "announces an event of 1073807361 bytes"),
        (b"\0" + header(22), "announces an event of 22 bytes"),
        (b"\0" + header(40) + bytes(22), "says that it has 40 bytes has more"),
        (b"\0" + header(40) + bytes(20), "says that it has 40 bytes has 39"),
        (b"\0abc", "says that it has 0 bytes has 19"),
    ],
)
def test_what_is_no_event(spool: Spool, payload: bytes, words: str) -> None:
    spool.begin()
    with pytest.raises(DecodeError, match=words):
        spool.take(len(payload).to_bytes(3, "little") + b"\1" + payload, 0)


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spool = Spool(tmp_path / "file", lambda kind, flags: False)
    spool.begin()
    with pytest.raises(SourceUnavailable, match="2071 bytes cannot be received into a file in"):
        spool.take(build.packet(event(2000)), 0)
