from __future__ import annotations

import pytest

from wormhole.filters.bound_to_schema import DROP, KEEP, OP_NUMBERS, make_plan
from wormhole.filters.normal import normalise
from wormhole.filters.parser import parse
from wormhole.filters.view import Head
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op
from wormhole.wire.rows import encode_row

SCHEMA = Schema("cf", (Column("key", "bytes"),), (Column("value", "bytes"),))


def range_kept(text: str, begin: bytes, end: bytes) -> bool:
    plan = make_plan(normalise(parse(text)), SCHEMA)
    row = encode_row(Op.DELETE_RANGE, [begin], key_end=[end])
    head = Head(row, 0, len(row))
    return plan.by_op[OP_NUMBERS[Op.DELETE_RANGE]].general(head) == KEEP


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('key == "d"', True),
        ('key == "c"', True),
        ('key == "f"', False),
        ('key in ("a", "e")', True),
        ('key in ("a", "f")', False),
        ('key < "c"', False),
        ('key <= "c"', True),
        ('key >= "f"', False),
        ('key > "e"', True),
        ('key startswith "d"', True),
        ('key startswith "f"', False),
        ('key startswith "b"', False),
        ('not key startswith "d"', True),
        ('"a" <= key < "c"', False),
        ("hash(key) % 7 == 3", True),
        ('op == "delete" and key == "d"', True),
        ('op == "delete_range" and key == "d"', True),
        ('op == "upsert" and key == "d"', False),
        ('op != "delete" and key == "d"', True),
        ("key == 4", True),
        ('email == "x"', True),
        ('table == "other" and key == "d"', False),
    ],
)
def test_a_range_from_c_to_f_is_kept_where_it_may_touch_what_is_selected(text: str, kept: bool) -> None:
    assert range_kept(text, b"c", b"f") is kept


@pytest.mark.parametrize(
    ("prefix", "begin", "end", "kept"),
    [
        (b"\xff", b"\xfe", b"\xff", False),
        (b"\xff", b"\xfe", b"\xff\xff", True),
        (b"a\xff", b"b", b"c", False),
        (b"a\xff", b"a\xff\xff", b"b", True),
    ],
)
def test_prefixes_that_end_in_ff(prefix: bytes, begin: bytes, end: bytes, kept: bool) -> None:
    assert range_kept(f"key startswith 0x{prefix.hex()}", begin, end) is kept


def test_a_range_within_a_prefix_has_nothing_outside_it() -> None:
    assert not range_kept('not key startswith "d"', b"da", b"db")


def test_what_table_and_operation_decide_asks_for_no_key() -> None:
    assert make_plan(normalise(parse('table == "cf"')), SCHEMA).whole is True
    assert make_plan(normalise(parse('table == "other"')), SCHEMA).whole is False
    by_op = make_plan(normalise(parse('op in ("delete", "merge")')), SCHEMA)
    assert by_op.ops_only
    assert by_op.whole is None
    wanted = [op for op in Op if by_op.by_op[OP_NUMBERS[op]].decided]
    assert wanted == [Op.DELETE, Op.TRUNCATE, Op.MERGE, Op.DELETE_RANGE]


def test_an_operation_of_a_later_version_is_kept_unless_its_table_is_not_wanted() -> None:
    assert make_plan(normalise(parse('op == "delete"')), SCHEMA).by_op[0].decided is True
    assert make_plan(normalise(parse('table == "other"')), SCHEMA).by_op[0].decided is False


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('status == "paid"', KEEP),
        ('status == "open"', DROP),
        ('status != "paid"', DROP),
        ("changed(status)", KEEP),
        ("not changed(status)", KEEP),
        ('changed(status) and status == "open"', DROP),
        ('op == "read" and status == "paid"', KEEP),
        ('op in ("insert", "update") and status == "paid"', DROP),
        ('op != "delete" and key == 7', KEEP),
        ("key == 8", DROP),
    ],
)
def test_an_existing_row_is_selected_by_the_row_that_it_is(text: str, outcome: int) -> None:
    schema = Schema("orders", (Column("id", "int"),), (Column("status", "text"),))
    plan = make_plan(normalise(parse(text)), schema)
    decision = plan.by_op[OP_NUMBERS[Op.READ]]
    if decision.decided is not None:
        assert (KEEP if decision.decided else DROP) == outcome
    else:
        row = encode_row(Op.READ, [7], after=["paid"])
        assert decision.general(Head(row, 0, len(row))) == outcome
