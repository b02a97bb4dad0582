"""Documents are the bytes that Python's JSON encoder writes of the same objects, for values of every type."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.envelopes import EnvelopeName, envelope_named
from sinks.envelopes.wormhole import WormholeEnvelope
from subscriber_sdk import UNAVAILABLE, Update, Value
from subscriber_sdk.testing import Change, update
from tests.support.envelopes import COMMITTED_US, updates_of
from tests.support.hot import hot_module
from wormhole.formats.json_values import listed_as_json, row_as_json, time_as_json, value_as_json
from wormhole.model.values import NAN, Op

texts = hot_module("sinks.envelopes.texts")

dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

scalars = st.one_of(
    st.text(),
    st.integers(-(2**63), 2**64 - 1),
    st.booleans(),
    st.floats(allow_nan=False) | st.just(NAN),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.binary(),
)
values = st.one_of(st.none(), scalars, st.dictionaries(st.binary(), st.binary()))
rows = st.none() | st.dictionaries(st.text(), values, min_size=1)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    before, after = draw(rows), draw(rows)
    if draw(st.booleans()):
        after = None if before is None else before | dict.fromkeys(draw(st.sets(st.sampled_from(sorted(before)))), None)
    key = draw(st.lists(scalars, max_size=2).map(tuple))
    ops = (Op.INSERT, Op.UPSERT, Op.UPDATE, Op.READ, Op.DELETE, Op.TRUNCATE)
    marks = {"entered": draw(st.booleans())} if after else {"left": draw(st.booleans())}
    op = None if any(marks.values()) else draw(st.none() | st.sampled_from(ops))
    old_key = draw(st.just(()) | st.tuples(*(scalars for _ in key)))
    return update(draw(st.text()), key=key, before=before, after=after, op=op, old_key=old_key, **marks)


def expected(one: Update) -> dict[str, Any]:
    return {
        "version": 1,
        "id": one.id,
        "op": one.op.value,
        "table": one.table,
        "shard": one.shard,
        "key": listed_as_json(one.key),
        "old_key": listed_as_json(one.old_key),
        "key_end": listed_as_json(one.key_end),
        "before": row_as_json(one.before),
        "after": row_as_json(one.after),
        "too_large": one.too_large,
        "committed_at": time_as_json(one.committed_at),
        "position": str(one.position),
        "transaction": one.transaction.id,
        "ends_transaction": one.ends_transaction,
    }


def plain(value: Value) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        case Decimal():
            return f"{value:f}" if "E" in str(value) and abs(value.adjusted()) < 20_000 else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value_as_json(value)


def plain_row(values: Mapping[str, Value]) -> dict[str, Any]:
    return {name: plain(value) for name, value in values.items() if value is not UNAVAILABLE}


@given(row=rows, key=st.none() | st.lists(scalars, max_size=2))
def test_texts_are_what_the_encoder_writes(
    texts: ModuleType, row: Mapping[str, Value] | None, key: list[Value]
) -> None:
    assert texts.row_text(row) == dump(row_as_json(row))
    assert texts.list_text(key) == dump(listed_as_json(key))
    parts = None if row is None else {name: texts.value_text(value) for name, value in row.items()}
    assert texts.object_of(parts) == texts.row_text(row)


@given(st.lists(changes(), min_size=1, max_size=3), st.sampled_from([COMMITTED_US, 0]))
def test_our_own_documents(made: list[Change], committed_us: int) -> None:
    envelope = WormholeEnvelope()
    for one in [*updates_of(made, committed_us), *updates_of(made[:1], ends=False)]:
        (record,) = envelope.records(one)
        document = expected(one)
        assert record.value == dump(document).encode()
        assert record.key == (dump(document["key"]).encode() if one.key else b"")
        assert record.old_key == (dump(document["old_key"]).encode() if one.old_key else b"")


@pytest.mark.parametrize(("name", "row"), [("debezium", "after"), ("maxwell", "data")])
@given(changes(), st.sampled_from([COMMITTED_US, 0]), st.none() | st.text())
def test_documents_of_others(name: EnvelopeName, row: str, change: Change, committed_us: int, database: str) -> None:
    (one,) = updates_of([change], committed_us)
    for record in envelope_named(name, database).records(one):
        for document in filter(None, (record.key, record.value)):
            assert dump(json.loads(document)).encode() == document
    after, document = one.after, json.loads(record.value or b"{}")
    if after is not None and one.op in (Op.INSERT, Op.UPSERT, Op.UPDATE, Op.READ) and not one.left:
        assert document[row].items() >= plain_row(after).items()
