"""GTIDs, and the ordinals of their sources."""

from __future__ import annotations

from types import ModuleType

import pytest

from datastores.mysql.decode.gtid import MAX_NUMBER, GtidSet, MariaPosition, source_text
from tests.support.hot import hot_module
from wormhole.model.errors import DecodeError, PositionError

# --- gtid ---


A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "896e7882-18fe-11ef-ab88-22222d34d411"


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("", ""),
        (" , ,", ""),
        (f"{A}:5", f"{A}:5"),
        (f"{A}:1-3:4", f"{A}:1-4"),
        (f"{A}:7:1-3", f"{A}:1-3:7"),
        (f"{A.upper()}: 1 - 3 ,\n{A}:2-9", f"{A}:1-9"),
        (f"{B}:1,\n{A}:2", f"{A}:2,{B}:1"),
        (f"{A}:1-5:Tag_1:1-3:other:7", f"{A}:1-5:other:7:tag_1:1-3"),
        (f"{A}:tag:1-3,{A}:2", f"{A}:2:tag:1-3"),
        (f"{A}:{MAX_NUMBER}", f"{A}:{MAX_NUMBER}"),
    ],
)
def test_text_is_read_and_written_as_mysql_does(text: str, normal: str) -> None:
    found = GtidSet.parse(text)
    assert str(found) == normal
    assert GtidSet.parse(normal) == found
    assert GtidSet.decode(found.encode()) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (A, "no part of a GTID set"),
        (f"{A[:-1]}:1", "no part of a GTID set"),
        (f"{A}:", "neither an interval nor a tag"),
        (f"{A}:1-", "neither"),
        (f"{A}:ta-g:1", "neither"),
        (f"{A}:{'t' * 33}:1", "neither"),
        (f"{A}:0", "out of range"),
        (f"{A}:5-4", "backwards"),
        (f"{A}:{MAX_NUMBER + 1}", "out of range"),
        ("0-1-17", "no part of a GTID set"),
    ],
)
def test_text_that_is_no_set_is_refused(text: str, words: str) -> None:
    with pytest.raises(PositionError, match=words):
        GtidSet.parse(text)


def test_the_binary_form_without_tags() -> None:
    data = bytes.fromhex(
        "0100000000000000" + A.replace("-", "") + "0200000000000000"
        "01000000000000000600000000000000" + "08000000000000000900000000000000"
    )
    assert str(GtidSet.decode(data)) == f"{A}:1-5:8"
    assert GtidSet.parse(f"{A}:1-5:8").encode() == data
    assert GtidSet().encode() == bytes(8)


def test_the_binary_form_with_tags_repeats_the_uuid() -> None:
    uuid = A.replace("-", "")
    data = bytes.fromhex(
        "0102000000000001" + uuid + "00" + "0100000000000000" + "0100000000000000" + "0300000000000000"
        "" + uuid + "06" + b"tag".hex() + "0100000000000000" + "0700000000000000" + "0800000000000000"
    )
    assert str(GtidSet.decode(data)) == f"{A}:1-2:tag:7"
    assert GtidSet.parse(f"{A}:1-2:tag:7").encode() == data


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "number of sources takes 8 bytes"),
        (b"\1" + bytes(7), "uuid takes 16"),
        (bytes(7) + b"\2", "form 2 is unknown"),
        (bytes(8) + b"x", "1 bytes follow"),
        (b"\1" + bytes(7 + 16) + b"\1" + bytes(7) + bytes(16), "out of order"),
        (b"\1" + bytes(7 + 16) + b"\1" + bytes(7) + b"\2" + bytes(7) + b"\2" + bytes(7), "out of order"),
        (b"\1" + bytes(7 + 16) + b"\xff" * 8 + b"\2" + bytes(7), "last number takes"),
        (b"\1\1" + bytes(5) + b"\1" + bytes(16) + b"\6T-g" + bytes(8), "is no tag"),
    ],
)
def test_bytes_that_are_no_set_name_the_field(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        GtidSet.decode(data)


def test_sets_are_compared_and_combined() -> None:
    one, two = GtidSet.parse(f"{A}:1-10,{B}:1"), GtidSet.parse(f"{A}:3-4:9-20")
    assert str(one.subtract(two)) == f"{A}:1-2:5-8,{B}:1"
    assert str(two.subtract(one)) == f"{A}:11-20"
    assert str(one.union(two)) == f"{A}:1-20,{B}:1"
    assert not one.issubset(two)
    assert one.issubset(one.union(two))
    assert GtidSet().issubset(one)
    assert one.sources() == [A, B]
    assert list(two.intervals(A)) == [(3, 4), (9, 20)]
    assert one.contains(A, 10)
    assert not one.contains(A, 11)
    assert not one.contains(f"{A}:tag", 1)
    assert one
    assert not GtidSet()
    union = one.union(GtidSet())
    union.add(A, 11)
    assert str(union) == f"{A}:1-11,{B}:1"
    assert union != one
    assert repr(two) == f"GtidSet('{two}')"


def test_the_text_of_a_source() -> None:
    raw = bytes.fromhex(A.replace("-", ""))
    assert source_text(raw) == A
    assert source_text(raw, "tag") == f"{A}:tag"


def test_mariadb_positions() -> None:
    position = MariaPosition.parse(" 10-2-5, 0-1-17")
    assert str(position) == "0-1-17,10-2-5"
    assert position.covers(0, 17)
    assert not position.covers(0, 18)
    assert not position.covers(1, 1)
    position.advance(0, 3, 18)
    assert str(position) == "0-3-18,10-2-5"
    assert position.domains() == {0: (3, 18), 10: (2, 5)}
    assert not MariaPosition.parse("").domains()
    assert MariaPosition.parse(str(position)).domains() == position.domains()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0-1", "no MariaDB GTID"),
        ("0-1-2,", "no MariaDB GTID"),
        ("0-1-2,0-2-3", "twice"),
        (f"{1 << 32}-1-2", "out of range"),
        (f"0-1-{1 << 64}", "out of range"),
    ],
)
def test_text_that_is_no_mariadb_position_is_refused(text: str, words: str) -> None:
    with pytest.raises(PositionError, match=words):
        MariaPosition.parse(text)


# --- transaction sources ---


sources = hot_module("datastores.mysql.decode.transaction_sources")


def test_one_name_has_one_ordinal_however_it_is_said(sources: ModuleType) -> None:
    s = sources.Sources()
    uuid = bytes(range(16))
    text = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (s.of_uuid(uuid), s.of_domain(0, 7), s.add(text), s.add("0-7"), s.add("uuid/1")) == (0, 1, 0, 1, 2)
    assert (s.of_uuid(uuid), s.of_domain(0, 7)) == (0, 1)
    assert s.of_domain((1 << 32) - 1, (1 << 32) - 1) == 3
    assert s.names == [text, "0-7", "uuid/1", "4294967295-4294967295"]
