"""Formats of values: their settings, and what their decoders make of bytes."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.support.present import present
from tests.support.value_formats import ORDER_MESSAGE, descriptor_set, order, write_descriptor_set
from wormhole.config import DatasetConfig, dataset_from_json, to_json
from wormhole.formats import ABSENT, COMPOSITE, BadValue, Decoder, FormatSpec, ValueFormats, open_formats, table
from wormhole.model.errors import ConfigError, FilterError

# --- spec


ORDER = {"protobuf": {"descriptor_set": "shop.desc", "message": "shop.v1.Order"}}


@pytest.mark.parametrize("given", ["json", "msgpack", "bytes", ORDER, {"ttl": "json"}, {"ttl": ORDER}])
def test_what_was_read_is_written_alike(given: object) -> None:
    spec = FormatSpec.read(given)
    assert FormatSpec.read(spec.plain()) == spec == FormatSpec.read(spec)


def test_a_relative_path_starts_where_the_file_is() -> None:
    spec = FormatSpec.read(ORDER, Path("/etc/wormhole"))
    assert spec.descriptor_set == Path("/etc/wormhole/shop.desc")
    assert str(spec) == "protobuf shop.v1.Order"
    assert str(FormatSpec.read("json")) == "json"


def test_one_word_names_values_of_a_ttl_db() -> None:
    assert FormatSpec.from_text("ttl:msgpack") == FormatSpec("msgpack", ttl=True)
    spec = FormatSpec.from_text("ttl:protobuf:shop.desc:shop.v1.Order")
    assert (spec.kind, spec.descriptor_set, spec.message, spec.ttl) == (
        "protobuf",
        Path("shop.desc"),
        "shop.v1.Order",
        True,
    )
    for text in ("ttl:bytes", "ttl:ttl:json", "ttl:", "ttl"):
        with pytest.raises(ValueError, match="must be"):
            FormatSpec.from_text(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("yaml", 'must be "json"'),
        (None, 'must be "json"'),
        ({}, 'must be "json"'),
        ({"protobuf": "x"}, 'must be "json"'),
        ({"ttl": "bytes"}, 'must be "json"'),
        ({"ttl": {"ttl": "json"}}, 'must be "json"'),
        ({"ttl": "json", **ORDER}, 'must be "json"'),
        ({"protobuf": {"message": "x"}}, 'must be "json"'),
        ({**ORDER, "json": True}, 'must be "json"'),
        ({"protobuf": {"descriptor_set": "", "message": "x"}}, "path of a file"),
        ({"protobuf": {"descriptor_set": "a\0b", "message": "x"}}, "path of a file"),
        ({"protobuf": {"descriptor_set": "x", "message": ""}}, "full name"),
    ],
)
def test_what_is_no_format(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FormatSpec.read(given)


def test_a_dataset_keeps_its_formats_through_json() -> None:
    copies = {"main": {"logs": {"db1": {"source": "rocksdb:///x"}}}}
    values = {"users": "json", "orders": ORDER, "raw": "bytes"}
    dataset = DatasetConfig.model_validate(
        {"name": "shop", "copies": copies, "value_format": "msgpack", "values": values},
        context={"folder": Path("/etc")},
    )
    assert dataset.value_format == FormatSpec("msgpack")
    assert dataset.values["orders"].descriptor_set == Path("/etc/shop.desc")
    assert dataset_from_json("shop", to_json(dataset), "node") == dataset


# --- open


def test_tables_have_their_own_format() -> None:
    json, raw, packed = FormatSpec("json"), FormatSpec("bytes"), FormatSpec("msgpack")
    formats = open_formats(json, {"raw": raw, "users": packed, "orders": json})
    names = [None if found is None else found.name for found in map(formats.of, ("raw", "users", "orders", "default"))]
    assert names == [None, "msgpack", "json", "json"]
    assert formats.of("orders") is formats.of("default")
    assert not open_formats(None, {})
    assert not open_formats(raw, {})


def test_fields_of_a_ttl_db_are_before_the_time() -> None:
    decoder = present(open_formats(FormatSpec("json", ttl=True), {}).of("leases"))
    assert decoder.name == "json"
    assert decoder.problem(("a",)) is None
    assert decoder.extract(b'{"a": 1}' + bytes(4), [("a",), ("b",)]) == [1, ABSENT]
    for value in (b'{"a": 1}', b"1}", b""):
        with pytest.raises(BadValue):
            decoder.extract(value, [("a",)])


@pytest.mark.parametrize(
    ("content", "message", "problem", "hint"),
    [
        (None, "x", "cannot be read: No such file", "--include_imports"),
        (b"\xff", "x", "is no descriptor set", "--include_imports"),
        (b"", "x", "has no message x", "its messages are none"),
        (
            descriptor_set().SerializeToString(),
            "shop.Order",
            "has no message shop.Order",
            "shop.v1.Customer, shop.v1.Order",
        ),
        (
            descriptor_set(without_imports=True).SerializeToString(),
            ORDER_MESSAGE,
            "does not hold together",
            "--include_imports",
        ),
    ],
)
def test_descriptor_sets_that_do_not_do(
    tmp_path: Path, content: bytes | None, message: str, problem: str, hint: str
) -> None:
    path = tmp_path / "shop.desc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as caught:
        open_formats(FormatSpec("protobuf", path, message), {})
    assert str(path) in str(caught.value)
    assert hint in str(caught.value.hint)


def test_the_same_message_twice_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    write_descriptor_set(path)
    spec = FormatSpec("protobuf", path, ORDER_MESSAGE)
    formats = open_formats(spec, {"a": FormatSpec("protobuf", path, ORDER_MESSAGE)})
    assert len(formats.decoders) == 1


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    with pytest.raises(ConfigError, match="need the package msgpack") as caught:
        open_formats(FormatSpec("msgpack"), {})
    assert "wormhole-pubsub[publisher]" in str(caught.value.hint)


# --- table


def test_a_field_keeps_its_slot() -> None:
    formats = ValueFormats()
    assert [formats.slot(path) for path in [("a",), ("b",), ("a", "b"), ("a",)]] == [0, 1, 2, 0]
    assert formats.paths == [("a",), ("b",), ("a", "b")]


def test_fields_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_FIELDS", 2)
    formats = ValueFormats()
    assert [formats.slot(("a",)), formats.slot(("b",)), formats.slot(("a",))] == [0, 1, 0]
    with pytest.raises(FilterError, match="test 2 different fields already"):
        formats.slot(("c",))


# --- decoders


def decoder(kind: Any, **more: Any) -> Decoder:
    return present(open_formats(FormatSpec(kind, **more), {}).of("default"))


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
