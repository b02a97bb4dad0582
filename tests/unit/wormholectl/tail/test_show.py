from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from wormhole.filters import Filter
from wormhole.model.loss import LogGap, LossKind
from wormhole.model.position import LogPosition
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Segment
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import encode_row
from wormhole.wire.runs import RunsBuilder
from wormhole.wire.update import Update
from wormholectl.show.printer import SCHEMA
from wormholectl.tail.log_tail import Selected
from wormholectl.tail.show import (
    gap_as_json,
    gap_as_line,
    short,
    update_as_json,
    update_as_line,
    value_as_json,
)

BYTES = Schema("default", (Column("key", "bytes"),), (Column("value", "bytes"),))
USERS = Schema("shop.users", (Column("id", "int"),), (Column("email", "text"), Column("age", "int")))


def update(schema: Schema, row: bytes, committed_at_us: int = 1_700_000_000_000_000) -> Update:
    builder = RunsBuilder()
    builder.begin("db", 7, committed_at_us, LogPosition(1, 2, 0))
    builder.add(["log"], schema, row)
    builder.end(LogPosition(1, 2, 30))
    segment = Segment(LogPosition(1, 2, 0), LogPosition(1, 2, 30), builder.take(), None, 30)
    (found,) = Selected(Filter.parse(None)).of(segment)
    return found


def line(found: Update) -> str:
    return "".join(text for text, _ in update_as_line(found))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        (float("nan"), {"double": "nan"}),
        (Decimal("1.50"), {"decimal": "1.50"}),
        ("é", "é"),
        ("é".encode(), "é"),
        (b"\xff", {"b64": "/w=="}),
        (UNAVAILABLE, {"unavailable": True}),
        ({b"a": b"\xff"}, {"entries": [["a", {"b64": "/w=="}]]}),
    ],
)
def test_values_for_programs(value: Value, expected: Any) -> None:
    assert value_as_json(value) == expected
    json.dumps(value_as_json(value), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "NULL"),
        (UNAVAILABLE, "(not in the log)"),
        (False, "false"),
        (7, "7"),
        (Decimal("1.50"), "1.50"),
        ("plain", "plain"),
        ("a\x1b[31m", "'a\\x1b[31m'"),
        (b"", ""),
        (b"user:1", "user:1"),
        (b"a\x1b[31m", "0x611b5b33316d"),
        (b"\xff\x00", "0xff00"),
        (b"x" * 61, "x" * 60 + "... (61 bytes)"),
        ("x" * 61, "x" * 60 + "... (61 characters)"),
        (("é" * 200).encode(), "é" * 60 + "... (400 bytes)"),
        (b"x" + ("é" * 200).encode(), "x" + "é" * 59 + "... (401 bytes)"),
        (b"\xff" * 31, "0x" + "ff" * 30 + "... (31 bytes)"),
        ({b"a": b"1"}, "{a=1}"),
    ],
)
def test_values_for_people_are_short_and_cannot_command_the_terminal(value: Value, expected: str) -> None:
    assert short(value) == expected


def test_an_update_for_programs() -> None:
    found = update_as_json(update(BYTES, encode_row(Op.UPSERT, [b"k"], after=[b"\xff"])), "binlog.000002:30")
    assert found == {
        "schema": SCHEMA,
        "type": "update",
        "id": "db:7:0",
        "op": "upsert",
        "table": "default",
        "key": ["k"],
        "old_key": None,
        "key_end": None,
        "before": None,
        "after": {"value": {"b64": "/w=="}},
        "too_large": False,
        "entered": False,
        "left": False,
        "committed_at": "2023-11-14T22:13:20.000000Z",
        "position": "1/2/30",
        "native_position": "binlog.000002:30",
        "transaction": "db:7",
        "ends_transaction": True,
    }
    assert update_as_json(update(BYTES, encode_row(Op.DELETE, [b"k"]), 0), "")["committed_at"] is None


def test_an_update_for_people() -> None:
    assert line(update(BYTES, encode_row(Op.UPSERT, [b"k"], after=[b"v"]))).endswith("upsert        default  k = v")
    assert (
        line(update(BYTES, encode_row(Op.READ, [b"k"], after=[b"v"]), 0)) == f"{'-':<23}  read          default  k = v"
    )
    assert line(update(BYTES, encode_row(Op.DELETE, [b"k"]), 0)) == f"{'-':<23}  delete        default  k"
    assert line(update(BYTES, encode_row(Op.DELETE_RANGE, [b"a"], key_end=[b"c"]))).endswith("default  a .. c")
    moved = encode_row(Op.UPDATE, [2], old_key=[1], after=["x", None])
    assert line(update(USERS, moved)).endswith("shop.users  2 (was 1) = email=x, age=NULL")
    assert line(update(BYTES, encode_row(Op.UPSERT, [b"k"], too_large=True))).endswith(
        "k (too large: the value was left out)"
    )


def test_missing_log() -> None:
    gap, begin = LogGap(LossKind.PURGED, "5", "9", "file 3 is gone"), LogPosition(1, 4, 0)
    assert gap_as_line(gap, "1/4/0")[0][0] == "--- missing (purged) 5-9 before 1/4/0: file 3 is gone"
    assert gap_as_json(gap, begin, "") == {
        "schema": SCHEMA,
        "type": "gap",
        "kind": "purged",
        "first_missing": "5",
        "last_missing": "9",
        "message": "file 3 is gone",
        "position": "1/4/0",
        "native_position": None,
    }
    assert "missing (not_logged) before" in gap_as_line(LogGap(LossKind.NOT_LOGGED, "", "", "x"), "1/4/0")[0][0]
