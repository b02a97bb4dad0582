from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.value_formats import ORDER_MESSAGE, descriptor_set, write_descriptor_set
from wormhole.formats import ABSENT, BadValue, FormatSpec, open_formats
from wormhole.model.errors import ConfigError


def test_tables_have_their_own_format() -> None:
    json, raw, packed = FormatSpec("json"), FormatSpec("bytes"), FormatSpec("msgpack")
    formats = open_formats(json, {"raw": raw, "users": packed, "orders": json})
    names = [None if found is None else found.name for found in map(formats.of, ("raw", "users", "orders", "default"))]
    assert names == [None, "msgpack", "json", "json"]
    assert formats.of("orders") is formats.of("default")
    assert not open_formats(None, {})
    assert not open_formats(raw, {})


def test_fields_of_a_ttl_db_are_before_the_time() -> None:
    decoder = open_formats(FormatSpec("json", ttl=True), {}).of("leases")
    assert decoder is not None
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
