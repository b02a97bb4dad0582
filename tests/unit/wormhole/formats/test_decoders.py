from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.support.value_formats import ORDER_MESSAGE, order, write_descriptor_set
from wormhole.formats import ABSENT, COMPOSITE, BadValue, Decoder, FormatSpec, open_formats


def decoder(kind: Any, **more: Any) -> Decoder:
    found = open_formats(FormatSpec(kind, **more), {}).of("default")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def protobuf(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    path = tmp_path_factory.mktemp("protobuf") / "shop.desc"
    write_descriptor_set(path)
    return decoder("protobuf", descriptor_set=path, message=ORDER_MESSAGE)


PATHS = [("a",), ("a", "b"), ("a", "b", "c"), ("x",)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'{"a": 1}', [1, ABSENT, ABSENT, ABSENT]),
        (b'{"a": {"b": "t"}, "x": null}', [COMPOSITE, "t", ABSENT, None]),
        (b'{"a": {"b": {"c": true}}, "x": [1]}', [COMPOSITE, COMPOSITE, True, COMPOSITE]),
        (b'{"a": 0.1, "x": 12345678901234567890}', [Decimal("0.1"), ABSENT, ABSENT, 12345678901234567890]),
        (b'{"a": 1, "a": 2}', [2, ABSENT, ABSENT, ABSENT]),
        (b" [1] ", [ABSENT] * 4),
        (b"null", [ABSENT] * 4),
    ],
)
def test_json(text: bytes, found: list[object]) -> None:
    assert decoder("json").extract(text, PATHS) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "no valid JSON"),
        (b"{", "no valid JSON"),
        (b'{"a": 1} x', "no valid JSON"),
        (b"\xff", "byte 0 is no UTF-8"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": 1e99999999999999999999}', "no valid JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b"9" * 5000, "no valid JSON"),
    ],
)
def test_what_is_no_json(text: bytes, why: str) -> None:
    with pytest.raises(BadValue, match=why):
        decoder("json").extract(text, PATHS)


def test_msgpack() -> None:
    packed = msgpack.packb({"a": {"b": 1.5, 7: 8}, "x": b"\xff"})
    assert decoder("msgpack").extract(packed, PATHS) == [COMPOSITE, 1.5, ABSENT, b"\xff"]
    assert decoder("msgpack").extract(msgpack.packb([1]), PATHS) == [ABSENT] * 4
    time = msgpack.packb({"x": msgpack.Timestamp(1)})
    assert decoder("msgpack").extract(time, [("x",)]) == [COMPOSITE]


@pytest.mark.parametrize(
    "packed",
    [b"", b"\xc1", b"\x81", b"\x01\x02", b"\x81\x90\x01", b"\xa1\xff", b"\x91" * 5000, b"\xdd\xff\xff\xff\xff"],
)
def test_what_is_no_msgpack(packed: bytes) -> None:
    with pytest.raises(BadValue):
        decoder("msgpack").extract(packed, PATHS)


def test_protobuf(protobuf: Decoder) -> None:
    assert protobuf.name == "protobuf shop.v1.Order"
    names = ("id", "status", "note", "customer", "customer.name", "lines", "totals.eur", "totals.usd", "totals", "by.a")
    paths = [tuple(name.split(".")) for name in names]
    empty = protobuf.extract(b"", paths)
    assert empty == [0, "OPEN", ABSENT, ABSENT, ABSENT, COMPOSITE, ABSENT, ABSENT, COMPOSITE, ABSENT]
    full = order(
        id=7, status=1, note="", lines=[1, 2], customer={"name": "Ada"}, totals={"eur": 5}, by={"a": {"name": "B"}}
    )
    assert protobuf.extract(full, paths) == [
        7,
        "PAID",
        "",
        COMPOSITE,
        "Ada",
        COMPOSITE,
        5,
        ABSENT,
        COMPOSITE,
        COMPOSITE,
    ]
    assert protobuf.extract(full, [("by", "a", "name"), ("id", "x"), ("lines", "x"), ("none",)]) == [
        "B",
        ABSENT,
        ABSENT,
        ABSENT,
    ]
    assert protobuf.extract(order(status=9), [("status",)]) == [9]
    with pytest.raises(BadValue, match="no valid message"):
        protobuf.extract(b"\xff", paths)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("id", None),
        ("customer.name", None),
        ("totals", None),
        ("totals.eur", None),
        ("by.a.name", None),
        ("no", "has no field no; it has id, status"),
        ("customer.no", "shop.v1.Customer has no field no"),
        ("id.x", "goes on below"),
        ("lines.x", "goes on below"),
        ("totals.eur.x", "goes on below"),
        ("numbered.a", "are no strings"),
    ],
)
def test_fields_that_no_message_can_have(protobuf: Decoder, path: str, why: str | None) -> None:
    found = protobuf.problem(tuple(path.split(".")))
    assert found is None if why is None else why in str(found)


def test_documents_may_have_any_field(tmp_path: Path) -> None:
    assert decoder("json").problem(("a", "b")) is None
    assert decoder("msgpack").problem(("a", "b")) is None
