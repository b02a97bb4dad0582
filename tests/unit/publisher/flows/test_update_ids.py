"""What is an update's id, and whether a marker is behind it."""

from __future__ import annotations

import pytest

from publisher.flows.update_ids import check_update_id, is_behind
from wormhole.model.errors import UsageError
from wormhole.model.position import Datamarker, LogPosition

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def at(delivered: str, file: int = 4, offset: int = 100) -> Datamarker:
    place = LogPosition(1, file, offset)
    return Datamarker(place, delivered, place)


@pytest.mark.parametrize("text", ["db:7:0", f"{UUID}:5:12", f"{UUID}:tag:5:0", f"{UUID}/12:4711:0", "0-1:42:0"])
def test_ids(text: str) -> None:
    check_update_id(text)


@pytest.mark.parametrize(
    "text", ["", "7", "db:7", "db:7:x", "db: 7:0", "a:b:c:7:0", "db:7:0\n", "ü:7:0", "d" * 300 + ":7:0"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no id of an update"):
        check_update_id(text)


@pytest.mark.parametrize(
    ("kind", "update_id", "marker", "expected"),
    [
        ("rocksdb", "db:7:0", at("6"), False),
        ("rocksdb", "db:7:3", at("9"), True),
        ("mysql", f"{UUID}:5:0", at(f"{UUID}:1-4"), False),
        ("mysql", f"{UUID}:5:0", at(f"{UUID}:1-4:6"), False),
        ("mysql", f"{UUID}:5:0", at(f"{UUID}:1-5"), True),
        ("mariadb", "0-1:42:0", at("0-1-41"), False),
        ("mariadb", "0-1:42:0", at("0-2-42,1-1-3"), True),
        ("mysql", f"{UUID}/4:90:0", at(""), True),
        ("mysql", f"{UUID}/4:100:0", at(""), False),
        ("mysql", f"{UUID}/3:900:0", at(""), True),
        ("mysql", f"{UUID}:5:0", at(""), False),
        ("rocksdb", "no id", at("9"), False),
        ("memory", "mem:7:0", at("9"), True),
    ],
)
def test_whether_a_marker_is_behind_it(kind: str, update_id: str, marker: Datamarker, expected: bool) -> None:
    assert is_behind(kind, update_id, marker) is expected
