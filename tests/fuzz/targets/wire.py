"""What crosses the network or is stored: batch bodies, rows, schemas, datamarkers, places."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from types import ModuleType
from typing import Any

from google.protobuf.message import DecodeError as ProtobufDecodeError

from tests.fuzz.target import Target
from wormhole.model.errors import DecodeError, PositionError, ProtocolError
from wormhole.model.position import Anchor, Datamarker, LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.body import build_body
from wormhole.wire.markers import marker_to_bytes
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder

_TYPES = ("bytes", "text", "int", "uint", "double", "bool", "decimal", "entries")
_VALUES: tuple[Callable[[random.Random], Value], ...] = (
    lambda rng: rng.randbytes(rng.randrange(12)),
    lambda rng: "é" * rng.randrange(5),
    lambda rng: rng.randrange(-(1 << 63), 1 << 63),
    lambda rng: rng.randrange(1 << 63, 1 << 64),
    lambda rng: rng.random(),
    lambda rng: rng.random() < 0.5,
    lambda rng: Decimal(rng.randrange(-(10**20), 10**20)).scaleb(-4),
    lambda rng: None,
    lambda rng: UNAVAILABLE,
    lambda rng: {rng.randbytes(2): rng.randbytes(3) for _ in range(rng.randrange(3))},
)


def _values(rng: random.Random, most: int = 3) -> list[Value]:
    return [rng.choice(_VALUES)(rng) for _ in range(rng.randrange(most + 1))]


def _row(rng: random.Random) -> bytes:
    return encode_row(
        rng.choice(list(Op)),
        _values(rng),
        after=_values(rng),
        before=_values(rng),
        old_key=_values(rng, 1),
        key_end=_values(rng, 1),
        too_large=rng.random() < 0.1,
    )


def _schema(rng: random.Random) -> Schema:
    columns = [Column(f"c{number}", rng.choice(_TYPES)) for number in range(rng.randrange(1, 5))]
    return Schema(f"t{rng.randrange(3)}", tuple(columns[:1]), tuple(columns[1:]))


def _place(rng: random.Random) -> LogPosition:
    return LogPosition(rng.randrange(1 << 32), rng.randrange(1 << 64), rng.randrange(1 << 64))


def _marker(rng: random.Random) -> bytes:
    anchor = Anchor(f"s:{rng.randrange(99)}", rng.randrange(1 << 32), _place(rng)) if rng.random() < 0.7 else None
    return marker_to_bytes(
        Datamarker(_place(rng), str(rng.randrange(1 << 56)), _place(rng), anchor, rng.randrange(1 << 50))
    )


def _body(rng: random.Random) -> bytes:
    """Transactions of several shards, the last one sometimes unfinished, sometimes filtered."""
    while True:
        builder, schemas = RunsBuilder(), [_schema(rng) for _ in range(rng.randrange(1, 3))]
        for number in range(rng.randrange(1, 6)):
            builder.begin(f"source{rng.randrange(2)}", number, rng.randrange(1 << 50), LogPosition(1, 1, number))
            for _ in range(rng.randrange(1, 4)):
                builder.add(rng.sample(["a", "b"], rng.randrange(1, 3)), rng.choice(schemas), _row(rng))
            if rng.random() < 0.9:
                builder.end(LogPosition(1, 1, number + 1))
            else:
                break
        run = rng.choice(list(builder.take().values()))
        keep = sorted(rng.sample(range(run.updates), rng.randrange(run.updates + 1))) if rng.random() < 0.5 else None
        body = build_body(run, 1, keep)
        if body is not None:
            return body.data


def _walk(module: ModuleType, data: bytes) -> object:
    """Everything that a subscriber asks of a body."""
    body = module.parse_body(data)
    seen: list[Any] = []
    for ordinal in range(len(body.updates)):
        tx = body.transaction_of(ordinal)
        seen.append((body.index_of(ordinal), body.schema_id_of(ordinal), body.transaction_id(tx)))
    seen += [(body.position_of(tx), body.committed_at_us(tx)) for tx in range(len(body.tx_number))]
    return seen


def _read_row(module: ModuleType, data: bytes) -> object:
    row = module.decode_row(data)
    fields = (row.key, row.after, row.before, row.old_key, row.key_end)
    return module.op_of(row), [module.values_of(field) for field in fields]


def _read_values(module: ModuleType, data: bytes) -> object:
    """What an update's properties ask of its bytes, which lie amid those of others."""
    around = b"\x7f" + data + b"\x7f"
    end = 1 + len(data)
    head = module.check(around, 1, end)
    fields = (module.KEY, module.AFTER, module.BEFORE, module.OLD_KEY, module.KEY_END)
    return head, [(module.values(around, 1, end, one), module.known(around, 1, end, one)) for one in fields]


def _split(module: ModuleType, data: bytes) -> object:
    found = module.split(data)
    if found is None:
        raise ProtocolError("left to protobuf's parser")
    return found


TARGETS = [
    Target("wire.batch_body", "wormhole.wire.body", _walk, _body, (ProtocolError,)),
    # An operation of a later version is a KeyError, which the reader of rows turns into "unknown".
    Target("wire.row", "wormhole.wire.rows", _read_row, _row, (ProtobufDecodeError, ProtocolError, KeyError)),
    Target("wire.row_values", "wormhole.wire.values", _read_values, _row, (DecodeError, ProtocolError), repr),
    Target("wire.split", "wormhole.wire.values", _split, _body, (ProtocolError,), repr),
    Target(
        "wire.schema",
        "wormhole.model.schema",
        lambda module, data: module.Schema.from_canonical(data),
        lambda rng: _schema(rng).canonical,
        (ProtobufDecodeError,),
    ),
    Target(
        "wire.datamarker",
        "wormhole.wire.markers",
        lambda module, data: module.marker_from_bytes(data),
        _marker,
        (ProtocolError,),
    ),
    Target(
        "position.bytes",
        "wormhole.model.position",
        lambda module, data: module.LogPosition.from_bytes(data),
        lambda rng: _place(rng).to_bytes(),
        (PositionError,),
    ),
    Target(
        "position.text",
        "wormhole.model.position",
        lambda module, data: module.LogPosition.parse(data.decode("utf-8", "replace")),
        lambda rng: str(_place(rng)).encode(),
        (PositionError,),
    ),
]
