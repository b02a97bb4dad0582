"""Values of a store: any bytes give fields, or one BadValue, in every format; and no field that a filter cannot
compare."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from types import ModuleType

import msgpack
from google.protobuf import descriptor_pool, message_factory

from tests.fuzz.target import Target
from tests.support.value_formats import ORDER_MESSAGE, descriptor_set, order
from wormhole.formats.decoders import ABSENT, COMPOSITE, BadValue

_PATHS = [("id",), ("status",), ("customer",), ("customer", "name"), ("totals", "eur"), ("by", "a", "name"), ("lines",)]
_SCALARS = (str, int, bool, float, Decimal, bytes, type(None))


def _order_type() -> type:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_set().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(ORDER_MESSAGE))


_ORDER = _order_type()


def _document(rng: random.Random) -> dict[str, object]:
    return {
        "id": rng.choice([0, 1, -(1 << 63), 1 << 63, 10**30, 0.1, 1e308, None, True]),
        "status": rng.choice(["paid", "", "é", "\U0001f600", "a" * 300, [], {}]),
        "customer": rng.choice([{"name": "Ada"}, {"name": {"first": 1}}, [], None, "x"]),
        "totals": {"eur": rng.randrange(1 << 40)},
        "by": {"a": {"name": "B"}},
        "lines": [rng.random() for _ in range(rng.randrange(4))],
    }


def _json(rng: random.Random) -> bytes:
    return json.dumps(_document(rng), ensure_ascii=rng.random() < 0.5).encode()


def _msgpack(rng: random.Random) -> bytes:
    document = _document(rng)
    if isinstance(document["id"], int) and not -(1 << 63) <= document["id"] < 1 << 64:
        document["id"] = msgpack.ExtType(rng.randrange(128), b"x")
    packed: bytes = msgpack.packb(document)
    return packed


def _protobuf(rng: random.Random) -> bytes:
    return order(
        id=rng.choice([0, 1, -(1 << 63)]),
        status=rng.choice([0, 1, 99]),
        lines=[rng.randrange(1 << 31) for _ in range(rng.randrange(4))],
        customer={"name": rng.choice(["", "Ada", "é"])},
        totals={"eur": rng.randrange(1 << 40)},
        by={"a": {"name": "B"}},
    )


def _checked(decoder: object, data: bytes) -> list[str]:
    found = decoder.extract(data, _PATHS)  # type: ignore[attr-defined]
    if len(found) != len(_PATHS):
        raise AssertionError(f"{len(found)} fields for {len(_PATHS)} paths")
    for field in found:
        if field is not ABSENT and field is not COMPOSITE and not isinstance(field, _SCALARS):
            raise AssertionError(f"a {type(field).__name__} compares with nothing")
    return [repr(field) for field in found]


def _decode_json(module: ModuleType, data: bytes) -> list[str]:
    return _checked(module.JsonDecoder(), data)


def _decode_msgpack(module: ModuleType, data: bytes) -> list[str]:
    return _checked(module.MsgpackDecoder(), data)


def _decode_protobuf(module: ModuleType, data: bytes) -> list[str]:
    return _checked(module.ProtobufDecoder(_ORDER), data)


TARGETS = [
    Target(
        name=f"value-{name}",
        module="wormhole.formats.decoders",
        decode=decode,
        make=make,
        allowed=(BadValue,),
        observe=lambda value: value,
    )
    for name, decode, make in (
        ("json", _decode_json, _json),
        ("msgpack", _decode_msgpack, _msgpack),
        ("protobuf", _decode_protobuf, _protobuf),
    )
]
