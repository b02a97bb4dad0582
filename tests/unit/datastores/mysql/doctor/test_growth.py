"""How fast a binlog grows: from sizes, and from the times at which a few files were begun."""

from __future__ import annotations

import struct

import pytest

from datastores.mysql.doctor.growth import begun_s, growth_of, measure_growth
from datastores.mysql.server.address import Address
from datastores.mysql.server.settings import BinaryLog
from tests.support.mysql_settings import MYSQL, changed
from wormhole.model.errors import SourceUnavailable, UsageError, WormholeError

HOUR = 3600.0
NOW = 1000 * HOUR


def grown(*hours_ago: float) -> tuple[int, float, str, int]:
    """Files of 10 bytes each, begun so long ago, ascending; with how many were asked for."""
    files = [BinaryLog(f"binlog.{number:06}", 10) for number, _ in enumerate(hours_ago)]
    asked: list[str] = []

    def begun(file: BinaryLog) -> float:
        asked.append(file.name)
        return NOW - hours_ago[files.index(file)] * HOUR

    found = growth_of(files, begun, NOW)
    return found.bytes, found.seconds / HOUR, found.how or found.unknown, len(asked)


def test_what_was_written_in_about_a_day() -> None:
    assert grown(72, 48, 30, 20, 10, 1)[:3] == (40, 30.0, "sizes and times of 4 binlog files")
    assert grown(20, 10, 1)[:3] == (30, 20.0, "sizes and times of 3 binlog files")
    assert grown(100)[:3] == (10, 100.0, "sizes and times of 1 binlog file")


def test_few_files_are_read_of_many() -> None:
    assert grown(*(float(hour) for hour in range(1000, 0, -1)))[3] < 15


def test_what_cannot_be_measured_says_why() -> None:
    assert grown()[2] == "the account may not see the binlog files"
    assert grown(0.1)[2] == "its binlog files are younger than ten minutes"


def test_without_a_log_nothing_is_asked_for() -> None:
    settings = changed(MYSQL, variables={"log_bin": "OFF"}, logs=())
    growth = measure_growth(Address("db1", 3306, "wormhole", ""), settings, timeout_s=1.0)
    assert growth.unknown == "the server writes no binary log (log_bin=OFF)"


class Stream:
    """What a server sends, in pieces of a few bytes."""

    def __init__(self, data: bytes) -> None:
        self._rest = data
        self.data, self.at = b"", 0

    def more(self, need: int, wait_s: float) -> bool:
        if not self._rest:
            raise SourceUnavailable("the server closed the binlog stream", hint="again")
        self.data, self.at = self.data[self.at :] + self._rest[:7], 0
        self._rest = self._rest[7:]
        return True

    @staticmethod
    def refused(payload: bytes) -> WormholeError:
        return UsageError(repr(payload), hint="grant it")


def packet(when: int, kind: int, first: int = 0) -> bytes:
    payload = struct.pack("<BIB", first, when, kind) + b"x" * 30
    return struct.pack("<I", len(payload)) + payload


def test_a_file_was_begun_when_its_description_was_written() -> None:
    stream = Stream(packet(0, 4) + packet(77, 15))
    assert begun_s(stream) == 77.0  # type: ignore[arg-type]


def test_a_stream_that_is_refused_or_ends_raises() -> None:
    with pytest.raises(UsageError):
        begun_s(Stream(packet(0, 0, first=255)))  # type: ignore[arg-type]
    with pytest.raises(SourceUnavailable):
        begun_s(Stream(packet(0, 4)))  # type: ignore[arg-type]
