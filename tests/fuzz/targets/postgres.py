"""Streams of pgoutput: any bytes give updates, tables that break, or one DecodeError."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

from datastores.postgres.decode.messages import Relation, RelationColumn, TypeName
from datastores.postgres.decode.tables import Tables
from tests.fuzz.target import Target
from tests.support import postgres_messages as build
from tests.support.postgres_changes import changes_of
from tests.support.postgres_messages import Cell
from wormhole.model.errors import DecodeError
from wormhole.model.sharding import Sharding
from wormhole.wire.rows import decode_row

_COLUMNS = [
    *(("id", build.INT8), ("name", build.TEXT), ("ok", build.BOOL), ("data", build.BYTEA), ("at", 1184)),
    *(("single", build.FLOAT4), ("double", build.FLOAT8), ("price", build.NUMERIC), ("tx", 5069), ("own", 20_001)),
]


def _row(rng: random.Random) -> list[Cell]:
    cells: list[Cell] = [
        *(str(rng.randrange(-(1 << 63), 1 << 63)), rng.choice(("", "name", "wörld" * 70)), rng.choice("tf")),
        *("\\x" + rng.randbytes(rng.choice((0, 5, 300))).hex(), rng.choice(("2024-02-29 12:34:56+00", "infinity"))),
        *(rng.choice(("0.1", "NaN", "-Infinity")), "1e-300", rng.choice(("1.50", "-0", "NaN"))),
        *(str(rng.randrange(1 << 64)), "-7"),
    ]
    return [rng.choice((None, build.UNCHANGED)) if rng.random() < 0.1 and c else cell for c, cell in enumerate(cells)]


def _key(rng: random.Random) -> list[Cell]:
    return [str(rng.randrange(9)), *[None] * (len(_COLUMNS) - 1)]


def _change(rng: random.Random) -> bytes:
    """A change without the header of log data, like all messages of a stream here."""
    made = (
        build.insert(7, _row(rng)),
        build.update(7, _row(rng)),
        build.update(7, _row(rng), _row(rng), b"O"),
        build.update(7, _row(rng), _key(rng), b"K"),
        build.delete(7, _key(rng)),
        build.truncate(7, options=rng.randrange(4)),
        build.message("p", rng.randbytes(9), 50),
        build.origin("there"),
    )
    return rng.choice(made)


def _make(rng: random.Random) -> bytes:
    stream = [build.type_name(20_001, "", "int4"), build.relation(7, "shop.orders", _COLUMNS, (0,), rng.choice("dfi"))]
    for number in range(1, rng.randrange(2, 4)):
        place = 100 * number
        stream += [build.begin(place), *(_change(rng) for _ in range(rng.randrange(5))), build.commit(place, place + 9)]
        if rng.random() < 0.3:
            stream.append(build.message("alone", b"{}", place + 20, transactional=False))

    return b"".join(len(message).to_bytes(2, "big") + message for message in stream)


def _decode(module: ModuleType, data: bytes) -> object:
    tables = Tables("db", Sharding("hash", 3))
    encoder = module.Encoder(tables, 1000, 3, 64)
    at = 0
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        encoder.add(data[at + 2 : end])
        at = end
    broken = {shard: str(error) for shard, error in tables.take_broken().items()}
    piece = encoder.take()
    return piece, tables.schemas, broken, encoder.place, encoder.last_checksum


def _observe(value: Any) -> object:
    piece, schemas, *rest = value
    return repr((changes_of(piece, schemas), piece, rest))


def _make_copy(rng: random.Random) -> bytes:
    """Rows of a COPY."""
    escapes = {"\\": "\\\\", "\t": "\\t", "\n": "\\n"}
    lines = []
    for _ in range(rng.randrange(4)):
        cells = [None if cell is build.UNCHANGED else cell for cell in _row(rng)]
        texts = ["\\N" if cell is None else "".join(escapes.get(char, char) for char in str(cell)) for cell in cells]
        lines.append("\t".join([*texts, rng.choice("tf")]) + "\n")
    return "".join(lines).encode()


def _decode_copy(module: ModuleType, data: bytes) -> object:
    tables = Tables("db", Sharding("log"))
    tables.learn_type(TypeName(20_001, "", "int4"))
    columns = tuple(RelationColumn(name, kind, -1, name == "id") for name, kind in _COLUMNS)
    rows = module.CopiedRows(tables.learn(Relation(7, "shop", "orders", "d", columns)), 1000, True)
    found: dict[bytes, bytes] = {}
    taken = rows.add(data.splitlines(keepends=True), found, 5_000)
    for update in found.values():
        decode_row(update)
    return taken, rows.size, found


_DECODE = "datastores.postgres.decode.encoder"
_COPY = "datastores.postgres.existing_rows.copied_rows"
TARGETS = [
    Target("postgres.encoder", _DECODE, _decode, _make, (DecodeError,), _observe),
    Target("postgres.copied_rows", _COPY, _decode_copy, _make_copy, (DecodeError,)),
]
