"""The binlog decoder on structured input: compiled = interpreted, and both mean what `encode_row` says."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from datastores.common.encode.piece import HASHED
from datastores.mysql.decode import stops
from datastores.mysql.decode.columns import Columns
from datastores.mysql.decode.table_map import Layout, parse_table_map
from tests.support import hot
from tests.support import mysql_events as build
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import decode_row, encode_row, entry, values_of

NAME = "datastores.mysql.decode"
ENCODER = f"{NAME}.encoder"


@cache
def both(name: str) -> list[ModuleType]:
    """The forms that are here: in a tree that is meant to be interpreted there is only one."""
    return [hot.interpreted(name), *([hot.compiled(name)] if "compiled" in hot.forms() else [])]


# Columns whose stored values are what the wire carries.
columns: dict[str, tuple[Callable[[str], build.Col], st.SearchStrategy[Any]]] = {
    "int": (lambda n: build.integer(n, 4), st.integers(-(1 << 31), (1 << 31) - 1)),
    "big": (lambda n: build.integer(n, 8, unsigned=True), st.integers(0, (1 << 64) - 1)),
    "text": (lambda n: build.varchar(n, 1000), st.text(max_size=40)),
    "bytes": (lambda n: build.blob(n, 3), st.binary(max_size=300)),
    "binary": (lambda n: build.char(n, 9, build.BINARY), st.binary(min_size=9, max_size=9)),
    "double": (build.double, st.floats(allow_nan=False)),
    "latin1": (
        lambda n: build.varchar(n, 300, build.LATIN1, "latin-1"),
        st.text(st.characters(max_codepoint=127), max_size=9),
    ),
}
sizes = st.sampled_from([1, 30, 1 << 20])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[build.Col], list[int], list[list[Any]]]:
    """Columns, key, and rows of a table, some of whose values are NULL or not in the image."""
    kinds = draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=9))
    made = [columns[kind][0](f"c{i}") for i, kind in enumerate(kinds)]
    key = draw(st.lists(st.integers(0, len(kinds) - 1), max_size=3, unique=True))
    absent = draw(st.sets(st.integers(0, len(kinds) - 1), max_size=2)) if draw(st.booleans()) else set()
    if len(absent) == len(kinds):
        absent = set()  # rows of no bytes cannot be counted
    cells = [st.none() | columns[kind][1] for kind in kinds]
    one = st.tuples(*(st.just(build.ABSENT) if i in absent - set(key) else cell for i, cell in enumerate(cells))).map(
        list
    )
    return made, key, draw(st.lists(one, min_size=2, max_size=6))


def shown(row: list[Any]) -> tuple[Any, ...]:
    return tuple(UNAVAILABLE if value is build.ABSENT else value for value in row)


def outcome(module: ModuleType, data: bytes, body: bytes, shard: int, most: int, step: int) -> object:
    """Everything a caller can see after walking the packets."""
    e = module.Encoder(most, 4, 64)
    seen: list[object] = []
    table = parse_table_map(body)
    at = 0
    while at < len(data) or not seen:
        try:
            at = e.packets(data, at, len(data), step)
        except DecodeError as error:
            seen.append(str(error))
            break
        if e.status == stops.TABLE:
            e.add_table(table.table_id, e.raw[19:], Layout(table), 1, shard if table.key else 0)
        elif e.status != stops.OK:
            seen.append((e.status, e.at, e.need if e.status == stops.MORE else 0, e.raw, e.event_type, e.event_begin))
            if e.status != stops.EVENT:
                break
        piece = e.take(len(seen) % 2 == 1)
        seen.append([bytes(piece.blob), *(list(getattr(piece, name)) for name in piece.__slots__[1:]), e.first_index])
    seen.append(
        (e.last_number, e.last_end, e.last_checksum, e.in_transaction, e.file_offset, e.rows.too_large, e.sources.names)
    )
    return seen


@given(tables(), sizes, st.booleans())
def test_rows_are_what_encode_row_writes(
    table: tuple[list[build.Col], list[int], list[list[Any]]], most: int, deleted: bool
) -> None:
    made, key, images = table
    body = build.table_map(9, "d.t", made, key)
    op = Op.DELETE if deleted else Op.INSERT
    expected = b""
    for row in map(shown, images):
        after, before = ((), row) if deleted else (row, ())
        whole = encode_row(op, [], after=after, before=before)
        large = len(whole) - 2 > most or any(_size(value) > most for value in row)
        keys = [UNAVAILABLE if _size(row[c]) > most else row[c] for c in key]
        if large:
            after = before = ()
        expected += entry(encode_row(op, keys, after=after, before=before, too_large=large))
    rows_body = build.rows(9, made, images)[8:]
    for module in both(f"{NAME}.rows"):
        rows = module.Rows(most, 0, 64)
        known = module.Table(body, Layout(parse_table_map(body)), 0, 0)
        rows.event(rows_body, 0, len(rows_body), known, 3 if deleted else 1, True, False)
        assert bytes(rows.updates.out[: rows.updates.used]) == expected


def _size(value: Any) -> int:
    """Bytes of a text or of bytes; numbers are never left out by themselves."""
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 0


@given(tables())
def test_updates_mean_what_the_images_say(table: tuple[list[build.Col], list[int], list[list[Any]]]) -> None:
    made, key, images = table
    body = build.table_map(9, "d.t", made, key)
    images = images[: len(images) // 2 * 2]
    rows_body = build.rows(9, made, images, update=True)[8:]
    for module in both(f"{NAME}.rows"):
        rows = module.Rows(1 << 20, 0, 64)
        known = module.Table(body, Layout(parse_table_map(body)), 0, 0)
        rows.event(rows_body, 0, len(rows_body), known, 2, True, False)
        start = 0
        for i, (before, after) in enumerate(zip(map(shown, images[::2]), map(shown, images[1::2]), strict=True)):
            update = bytes(rows.updates.out[start : rows.updates.ends[i]])
            start = rows.updates.ends[i]
            row = decode_row(update[1 + next(j for j in range(1, 6) if update[j] < 0x80) :])
            assert values_of(row.before) == before
            assert values_of(row.after) == after
            assert values_of(row.key) == tuple(after[c] for c in key)
            # Two texts can be the same in two ways only for numbers: -0.0 and 0.0 are other bytes.
            changed = [repr(before[c]) for c in key] != [repr(after[c]) for c in key]
            assert values_of(row.old_key) == (tuple(before[c] for c in key) if changed else ())


damage = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3)


@given(
    tables(),
    st.sampled_from([30, 31, 32, 23, 24, 25, 39]),
    damage,
    st.floats(0, 1),
    sizes,
    st.sampled_from([1, 300, 1 << 30]),
)
def test_both_forms_see_the_same_in_any_stream(
    table: tuple[list[build.Col], list[int], list[list[Any]]],
    kind: int,
    changes: list[tuple[float, int]],
    cut: float,
    most: int,
    step: int,
) -> None:
    made, key, images = table
    body = build.table_map(9, "d.t", made, key)
    stream = build.Stream(checksums=False)
    part = build.rows(
        9, made, images[: len(images) // 2 * 2], update=kind in {24, 31, 39}, version=1 if kind < 30 else 2
    )
    stream.transaction(1, (build.TABLE_MAP, body), (kind, part), (kind, part))
    stream.transaction(2, (build.TABLE_MAP, body), (build.WRITE, build.rows(9, made, images)))
    data = bytearray(stream.packets())
    for where, value in changes:
        data[int(where * (len(data) - 1))] = value
    damaged = bytes(data[: int(cut * len(data)) if cut < 0.5 else len(data)])
    seen = [outcome(module, damaged, body, HASHED, most, step) for module in both(ENCODER)]
    assert all(other == seen[0] for other in seen)


any_column = st.sampled_from(
    [
        *(build.integer("c", size) for size in (1, 2, 3, 4, 8)),
        *(build.integer("c", size, unsigned=True) for size in (3, 8)),
        *(build.decimal("c", p, s) for p, s in ((5, 5), (10, 2), (65, 30), (18, 0))),
        *(make("c", digits) for make in (build.datetime2, build.timestamp2, build.time2) for digits in range(7)),
        *(
            build.single("c"),
            build.double("c"),
            build.date("c"),
            build.year("c"),
            build.bit("c", 9),
            build.bit("c", 64),
        ),
        *(build.old_time("c"), build.old_datetime("c"), build.old_timestamp("c"), build.json_column("c")),
        *(build.enum("c", "a", "b"), build.set_of("c", *"abcdefghi"), build.varchar("c"), build.varchar("c", 999)),
        *(build.varchar("c", 9, build.GBK), build.varchar("c", 9, build.UTF16), build.char("c", 9, build.BINARY)),
        *(build.blob("c", 1), build.blob("c", 4, build.UTF8MB4), build.blob("c", 1, build.UTF8MB4, type_=140)),
    ]
)


@given(any_column, st.binary(max_size=50), st.integers(0, 8))
def test_both_forms_read_any_bytes_as_cells_alike(column: build.Col, data: bytes, lead: int) -> None:
    """The bytes stand inside of others, which no form may read."""
    plan = Columns(Layout(parse_table_map(build.table_map(1, "d.t", [column]))))
    seen: list[object] = []
    for around in (b"\0", b"\xff"):
        framed = around * lead + b"\0" + data + around * 9
        for module in both(f"{NAME}.row_image"):
            image = module.Image(1000)
            try:
                end = image.read(framed, lead, lead + 1 + len(data), plan, b"\1", 1, 0x1A, None)
            except DecodeError as error:
                seen.append(str(error))
            else:
                entries = bytes(image.out[: image.used])
                decode_row(entries)
                seen.append((end, entries, image.too_large))
    assert all(other == seen[0] for other in seen)
