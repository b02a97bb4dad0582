"""What filters promise, over random filters and random runs."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.filter_trees import State, any_expressions, expressions, keys, leaves, names, outcome, passes
from wormhole.filters import Filter, RunView, Selection
from wormhole.filters.normal import normalise
from wormhole.filters.parser import parse
from wormhole.filters.tree import Expr, Not, write
from wormhole.formats import FormatSpec, open_formats
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Run
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_row, encode_row
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.v1.update_pb2 import BatchBody as Body

BYTES_KEY = Schema("shop.users", (Column("key", "bytes"),), (Column("value", "bytes"),))
TEXT_KEY = Schema("shop.orders", (Column("k1", "text"),), ())
TWO_COLUMNS = Schema("x", (Column("k1", "bytes"), Column("k2", "int")), ())
NO_KEY = Schema("y", (), (Column("value", "bytes"),))

Change = tuple[Schema, Op, tuple[Value, ...], tuple[Value, ...]]

_plain_ops = st.sampled_from([op for op in Op if op not in (Op.TRUNCATE, Op.DELETE_RANGE)])
_texts = st.sampled_from(["", "a", "ab", "é"])
_numbers = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, Decimal("0.5"), Decimal("NaN"), True, None, "a"]))


def _changes(schema: Schema, key: st.SearchStrategy[tuple[Value, ...]]) -> st.SearchStrategy[Change]:
    return _plain_ops.flatmap(
        lambda op: st.tuples(
            st.just(schema), st.just(op), key, st.one_of(st.just(()), key) if op is Op.UPDATE else st.just(())
        )
    )


changes = st.one_of(
    _changes(BYTES_KEY, st.tuples(keys)),
    _changes(BYTES_KEY, st.tuples(keys.map(lambda key: key * 60))),
    _changes(TEXT_KEY, st.tuples(_texts)),
    _changes(TWO_COLUMNS, st.tuples(keys, _numbers)),
    _changes(NO_KEY, st.just(())),
)


def _in_order(image: dict[str, Any] | None) -> list[Value]:
    return [image[column.name] for column in ROW.columns] if image is not None else []


def run_of(rows: list[tuple[Schema, bytes]]) -> Run:
    builder = RunsBuilder()
    builder.begin("db", 1, 0, LogPosition(0, 1, 0))
    for schema, row in rows:
        builder.add(["s"], schema, row)
    builder.end(LogPosition(0, 1, 100))
    return builder.take()["s"]


def kept(filter_: Filter, run: Run) -> set[int]:
    ordinals = filter_.keep(RunView(run))
    if ordinals is None:
        return set(range(run.updates))
    assert list(ordinals) == sorted(set(ordinals))
    return set(ordinals)


@given(any_expressions)
def test_parsing_what_was_written_gives_the_same_tree(expr: Expr) -> None:
    assert parse(write(expr)) == expr


@given(any_expressions)
def test_the_normal_form_is_its_own_normal_form(expr: Expr) -> None:
    normal = normalise(expr)
    assert normalise(normal) == normal
    assert normalise(parse(write(normal))) == normal
    assert normalise(Not(Not(expr))) == normal


@given(expressions, st.lists(changes, min_size=1, max_size=8))
def test_kept_is_what_a_plain_reading_keeps(expr: Expr, some: list[Change]) -> None:
    run = run_of(
        [
            (schema, encode_row(op, key, after=[b"v"] if schema.columns else (), old_key=old))
            for schema, op, key, old in some
        ]
    )

    def state(schema: Schema, op: Op, key: tuple[Value, ...], known: bool) -> State:
        return State(key, {"value": b"v"} if known and schema.columns and op is not Op.MERGE else None)

    check(
        Filter(expr, ""),
        run,
        [
            outcome(expr, schema, op, state(schema, op, old or key, False), state(schema, op, key, True))
            for schema, op, key, old in some
        ],
    )


def check(filter_: Filter, run: Run, expected: list[tuple[bool, str]]) -> Selection:
    """What a filter takes is what was expected of each update: whether it is delivered, and how it is marked."""
    found = filter_.select(RunView(run))
    kept = range(run.updates) if found.kept is None else found.kept
    marks = {i: {1: "entered", 2: "left"}[mark] for i, mark in found.marks.items()}
    assert [(i in kept, marks.get(i, "")) for i in range(run.updates)] == [
        (delivered, mark) for delivered, mark in expected
    ]
    assert list(kept) == sorted(set(kept))
    return found


ROW = Schema("shop.users", (Column("k1", "int"),), tuple(Column(name, "bytes") for name in ("email", "or", "é")))
_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.decimals(-3, 3, places=2), st.sampled_from(["", "a", "ab", b"a"])
)
_cells = st.one_of(_scalars, st.floats(-1, 1, width=16), st.just(float("nan")), st.just(UNAVAILABLE))
_images = st.one_of(st.none(), st.fixed_dictionaries({column.name: _cells for column in ROW.columns}))


@given(
    expressions,
    st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE, Op.UPSERT, Op.MERGE, Op.READ]),
    _images,
    _images,
    st.data(),
)
def test_columns_before_and_after(
    expr: Expr, op: Op, before: dict[str, Any] | None, after: dict[str, Any] | None, data: st.DataObject
) -> None:
    if op in (Op.INSERT, Op.UPSERT, Op.MERGE, Op.READ):
        before = None
    if op is Op.DELETE:
        after = None
    key, old = data.draw(st.integers(-1, 1)), data.draw(st.sampled_from([(), (1,)])) if op is Op.UPDATE else ()
    row = encode_row(op, [key], after=_in_order(after), before=_in_order(before), old_key=old)
    hidden = op is Op.MERGE
    expected = outcome(expr, ROW, op, State(old or (key,), before), State((key,), None if hidden else after))
    found = check(Filter(expr, ""), run_of([(ROW, row)]), [expected])
    if found.key_only:
        assert expected == (True, "left")
        assert before is None
        assert decode_row(Body.FromString(found.key_only[0]).updates[0]) == decode_row(
            encode_row(op, [key], old_key=old)
        )


@given(st.lists(st.tuples(leaves, st.integers(-1, 1), _images), min_size=20, max_size=20))
def test_an_existing_row_is_selected_by_what_it_is(some: list[tuple[Expr, int, dict[str, Any] | None]]) -> None:
    """Each single test, and its opposite: it has no row before, so it is neither entered nor left."""
    for expr, key, image in some:
        run = run_of([(ROW, encode_row(Op.READ, [key], after=_in_order(image)))])
        check(Filter(expr, ""), run, [outcome(expr, ROW, Op.READ, State((key,)), State((key,), image))])


DOCUMENTS = Schema("shop.users", (Column("key", "bytes"),), (Column("value", "bytes"),))
_trees = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "ab", 0.5, 2.25])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(names), inner, max_size=4)),
    max_leaves=6,
)
_objects = st.dictionaries(st.sampled_from(names), _trees, max_size=5)
_raw: st.SearchStrategy[tuple[Any, bytes | None]] = st.one_of(
    _objects.map(lambda value: (value, json.dumps(value).encode())),
    st.sampled_from([(None, b"{"), (None, b"\xff"), (None, None), ({}, b"[1]"), ({}, b'"text"')]),
)


@given(
    st.lists(expressions, min_size=1, max_size=3),
    st.lists(
        st.tuples(st.sampled_from([Op.UPSERT, Op.UPSERT, Op.DELETE, Op.MERGE, Op.READ]), keys, st.integers(0, 1), _raw),
        min_size=1,
        max_size=6,
    ),
)
def test_documents_of_a_log_without_before_images(
    exprs: list[Expr], some: list[tuple[Op, bytes, int, tuple[Any, bytes | None]]]
) -> None:
    formats = open_formats(FormatSpec("json"), {})
    run = run_of(
        [
            (DOCUMENTS, encode_row(op, [key * (1 + 40 * long)], after=() if op is Op.DELETE or raw is None else [raw]))
            for op, key, long, (_, raw) in some
        ]
    )
    view = RunView(run)
    for expr in exprs:
        expected = []
        for op, key, long, (value, raw) in some:
            key *= 1 + 40 * long
            known = value if op in (Op.UPSERT, Op.READ) and raw is not None else None
            known = json.loads(raw, parse_float=Decimal) if known and raw else known
            expected.append(outcome(expr, DOCUMENTS, op, State((key,)), State((key,), known), document=True))
        found = check(Filter(expr, "", formats), run, expected)
        shared = Filter(expr, "", formats).select(view)
        assert (shared.marks, shared.key_only, [i for i, _ in shared.bad]) == (
            found.marks,
            found.key_only,
            [i for i, _ in found.bad],
        )
        for i, mark in found.marks.items():
            assert mark == 2
            assert decode_row(Body.FromString(found.key_only[i]).updates[0]) == decode_row(
                encode_row(some[i][0], [some[i][1] * (1 + 40 * some[i][2])])
            )
        unreadable = {
            i for i, (op, _, _, (_, raw)) in enumerate(some) if op in (Op.UPSERT, Op.READ) and raw in (b"{", b"\xff")
        }
        assert {i for i, _ in found.bad} <= unreadable


@given(expressions, keys, keys, keys)
def test_a_range_that_covers_a_selected_key_is_kept(expr: Expr, begin: bytes, end: bytes, key: bytes) -> None:
    if begin <= key < end:
        run = run_of([(BYTES_KEY, encode_row(Op.DELETE_RANGE, [begin], key_end=[end]))])
        if any(passes(expr, BYTES_KEY, op, [key]) is not False for op in (Op.DELETE, Op.DELETE_RANGE)):
            assert kept(Filter(expr, ""), run) == {0}


@given(expressions, keys)
def test_a_truncate_is_kept_where_a_row_of_it_may_be_selected(expr: Expr, key: bytes) -> None:
    run = run_of([(BYTES_KEY, encode_row(Op.TRUNCATE, ()))])
    if any(passes(expr, BYTES_KEY, op, [key]) is not False for op in (Op.DELETE, Op.TRUNCATE)):
        assert kept(Filter(expr, ""), run) == {0}


@given(any_expressions, st.lists(changes, min_size=1, max_size=5))
def test_filters_with_the_same_hash_keep_the_same(expr: Expr, some: list[Change]) -> None:
    run = run_of([(schema, encode_row(op, key, old_key=old)) for schema, op, key, old in some])
    first, second = Filter(expr, ""), Filter(normalise(expr), "")
    assert first.hash == second.hash
    assert kept(first, run) == kept(second, run)
