"""Rows as dataclasses and pydantic models."""

from __future__ import annotations

import builtins
import json
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgpack
import pytest
from pydantic import BaseModel, Field, Json

from subscriber_sdk import UNAVAILABLE, ModelMismatch, Op, RetryPolicy, Subscriber, Unavailable, Update, decode
from subscriber_sdk import models as sdk_models
from subscriber_sdk.models import InUtc, SetNames
from subscriber_sdk.testing import Change, Kit, body_of, update
from wormhole.model.errors import HandlerFailed, UsageError
from wormhole.model.schema import Column, Schema
from wormhole.wire.body import parse_body
from wormhole.wire.rows import encode_row
from wormhole.wire.update import Batch


def received(change: Change) -> Update:
    (one,) = Batch(parse_body(body_of([change])), "shop", 3, False, lambda _: change.schema).updates()
    return one


def stored(value: bytes, op: Op = Op.UPSERT) -> Update:
    """As a store of bytes has it."""
    schema = Schema("sessions", (Column("key", "bytes"),), (Column("value", "bytes"),))
    return received(Change(schema, encode_row(op, [b"k"], after=[value])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    id: int
    class_: Annotated[str | None, Field(validation_alias="class")]
    price: Decimal
    born: date
    seen: Annotated[datetime, InUtc]
    spent: timedelta
    photo: bytes
    notes: Json[Any] | None
    state: Literal["new", "old"]
    marks: Annotated[frozenset[Literal["a", "b"]], SetNames]


class Model(BaseModel):
    id: int
    class_: Annotated[str | None, Field(validation_alias="class")]
    price: Decimal
    born: date
    seen: Annotated[datetime, InUtc]
    spent: timedelta
    photo: bytes
    notes: Json[Any] | None
    state: Literal["new", "old"]
    marks: Annotated[frozenset[Literal["a", "b"]], SetNames]


COLUMNS: dict[str, Any] = {
    "id": 2**64 - 1,
    "class": None,
    "price": Decimal("1234567890123456789012345678.50"),
    "born": "2024-02-29",
    "seen": "2024-02-29 12:30:00.25",
    "spent": "-838:59:59",
    "photo": b"\xff\x00",
    "notes": '{"a": [1, null]}',
    "state": "new",
    "marks": "b,a",
}


@pytest.mark.parametrize("model", [Row, Model])
def test_every_kind_of_column(model: Any) -> None:
    row: Any = decode(received(update("shop.t", key=1, after={**COLUMNS, "more": 1})), model)
    assert isinstance(row, model)
    assert (row.id, row.class_, row.price) == (2**64 - 1, None, Decimal("1234567890123456789012345678.50"))
    assert (row.born, row.seen) == (date(2024, 2, 29), datetime(2024, 2, 29, 12, 30, 0, 250000, UTC))
    assert (row.spent, row.photo) == (-timedelta(hours=838, minutes=59, seconds=59), b"\xff\x00")
    assert (row.notes, row.state, row.marks) == ({"a": [1, None]}, "new", {"a", "b"})


def test_an_empty_set_and_a_moment_with_a_zone() -> None:
    row = decode(received(update("t", key=1, after=COLUMNS | {"marks": "", "seen": "2024-01-01T01:00:00+01:00"})), Row)
    assert row is not None
    assert row.marks == frozenset()
    assert row.seen == datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class User:
    id: int
    email: str
    age: int | None


def test_before_and_after_and_none() -> None:
    before: dict[str, Any] = {"id": 1, "email": "a", "age": None}
    after: dict[str, Any] = {"id": 1, "email": "b", "age": 7}
    changed = received(update("shop.users", key=1, before=before, after=after))
    assert decode(changed, User) == User(1, "b", 7)
    assert decode(changed, User, before=True) == User(1, "a", None)
    deleted = received(update("shop.users", key=1, before=before))
    assert decode(deleted, User) is None
    assert decode(deleted, User, before=True) == User(1, "a", None)


def test_a_value_that_the_log_does_not_hold_fits_only_where_the_model_allows_it() -> None:
    @dataclass
    class Partial:
        id: int
        email: str | Unavailable

    row = received(update("shop.users", key=1, after={"id": 1, "email": UNAVAILABLE, "age": 1}))
    partial = decode(row, Partial)
    assert partial is not None
    assert partial.email is UNAVAILABLE
    assert pickle.loads(pickle.dumps(partial.email)) is UNAVAILABLE
    with pytest.raises(ModelMismatch) as refused:
        decode(row, User)
    assert refused.value.message == (
        "update test:1:0 of shop.users is no User: column email: its value is not in the log"
    )
    assert "| Unavailable" in str(refused.value.hint)


def test_a_row_that_does_not_fit_names_the_columns_and_none_of_its_values() -> None:
    secret = "4111-1111"
    row = received(update("shop.users", key=1, after={"id": secret, "email": None}))
    with pytest.raises(ModelMismatch) as refused:
        decode(row, User)
    error = refused.value
    assert error.message == (
        "update test:1:0 of shop.users is no User: column id: Input should be a valid integer, unable to parse string "
        "as an integer; column email: Input should be a valid string; column age: the row has no such column"
    )
    assert (error.shard, error.position) == ("shop", "1/1/1")
    assert error.hint == "write the model anew with `wormholectl models`, or correct it"
    assert secret not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


def test_many_columns_are_counted_not_listed() -> None:
    with pytest.raises(ModelMismatch, match=r"; and 5 more \("):
        decode(received(update("t", key=1, after={"x": 1})), Row)


@pytest.mark.parametrize(("column", "value"), [("born", "0000-00-00"), ("seen", "2024-00-00 00:00:00")])
def test_a_zero_date_has_its_own_next_step(column: str, value: str) -> None:
    with pytest.raises(ModelMismatch, match="--text-dates"):
        decode(received(update("t", key=1, after=COLUMNS | {column: value})), Row)


def test_values_that_were_left_out_are_no_deletion() -> None:
    schema = Schema("shop.users", (Column("id", "int"),), (Column("id", "int"),))
    with pytest.raises(ModelMismatch, match="max_update_bytes"):
        decode(received(Change(schema, encode_row(Op.INSERT, [1], too_large=True))), User)


# --- stores of bytes ---


@dataclass
class Session:
    user: int
    total: Decimal
    tags: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("value", "value_format", "session"),
    [
        (
            b'{"user": 7, "total": 0.12345678901234567890123, "tags": ["a"], "more": {}}',
            "json",
            Session(7, Decimal("0.12345678901234567890123"), ("a",)),
        ),
        (msgpack.packb({"user": 7, "total": "1.50"}), "msgpack", Session(7, Decimal("1.50"))),
        (b'{"user": 7, "total": 1}' + (1_700_000_000).to_bytes(4, "little"), "ttl:json", Session(7, Decimal(1))),
    ],
)
def test_a_value_of_bytes_in_its_format(value: bytes, value_format: Any, session: Session) -> None:
    assert decode(stored(value), Session, value_format=value_format) == session


def test_a_deleted_key_has_no_value() -> None:
    schema = Schema("sessions", (Column("key", "bytes"),), (Column("value", "bytes"),))
    assert decode(received(Change(schema, encode_row(Op.DELETE, [b"k"]))), Session, value_format="json") is None


@pytest.mark.parametrize(
    ("value", "value_format", "reason"),
    [
        (b"{", "json", "no valid JSON"),
        (b"{}", "ttl:json", ".*cannot end with the time"),
        (b"\xc1", "msgpack", "no valid MessagePack"),
        (b'{"user": "x", "total": 1}', "json", "field user: Input should be a valid integer"),
        (b'{"user": 1, "total": 1, "tags": [1]}', "json", r"field tags\.0: Input should be a valid string"),
        (b"[]", "json", "the value: "),
    ],
)
def test_a_value_that_does_not_fit(value: bytes, value_format: Any, reason: str) -> None:
    with pytest.raises(ModelMismatch, match=f"update test:1:0 of sessions is no Session: {reason}"):
        decode(stored(value), Session, value_format=value_format)


def test_a_value_of_bytes_needs_its_format() -> None:
    with pytest.raises(ModelMismatch, match=r'name the format of its values: decode.*value_format="json"'):
        decode(stored(json.dumps({"user": 1}).encode()), Session)


def test_columns_have_no_format() -> None:
    with pytest.raises(ModelMismatch, match='leave value_format="json" out'):
        decode(received(update("t", key=1, after={"id": 1})), User, value_format="json")


# --- what is asked wrongly ---


def test_what_is_no_model_is_refused() -> None:
    class Plain:
        pass

    class Undefined(BaseModel):
        x: Nowhere  # type: ignore[name-defined]  # noqa: F821

    for model in (Plain, Undefined):
        with pytest.raises(UsageError, match=f"decode: {model.__name__} is no model"):
            decode(received(update("t", key=1, after={"id": 1})), model)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match='value_format="yaml" is none that is known'):
        decode(stored(b""), Session, value_format="yaml")  # type: ignore[arg-type]


def test_without_msgpack_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "msgpack":
            raise ModuleNotFoundError("No module named 'msgpack'", name=name)
        return real(name, *rest)

    sdk_models._decoder.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="pip install msgpack"):
        decode(stored(b"\x80"), Session, value_format="msgpack")


def test_a_mismatch_goes_the_way_of_a_failed_handler(wormhole_kit: Kit) -> None:
    class Typed(Subscriber):
        async def on_update(self, update: Update) -> None:
            decode(update, User)

    flow = wormhole_kit.attach(Typed(), retry=RetryPolicy(attempts=2), on_failure="park")
    flow.commit(update("shop.users", key=1, after={"id": 1}), update("shop.users", key=2, before={"id": 2}))
    assert flow.parked == ["test:1:0"]
    flow = wormhole_kit.attach(Typed(), retry=1)
    with pytest.raises(HandlerFailed, match="is no User"):
        flow.commit(update("shop.users", key=1, after={"id": 1}))
