"""A filter: what it matches, and how it is bound to a schema."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.property.test_filters import BYTES_KEY, TEXT_KEY, run_of
from wormhole.config.datastores import capabilities_of
from wormhole.filters import Filter, RunView, explain
from wormhole.filters import filter as filter_module
from wormhole.filters.bound_to_schema import DROP, KEEP, OP_NUMBERS, make_plan
from wormhole.filters.normal import normalise
from wormhole.filters.parser import parse
from wormhole.filters.view import Head
from wormhole.formats import FormatSpec, open_formats
from wormhole.formats.decoders import FieldPath, Found, JsonDecoder
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import FilterError
from wormhole.model.schema import Column, Schema
from wormhole.model.values import Op
from wormhole.wire.rows import decode_row, encode_row, values_of

# --- filter


ROCKSDB = capabilities_of("rocksdb")
RUN = run_of(
    [
        (BYTES_KEY, encode_row(Op.UPSERT, [b"user:1"], after=[b"v"])),
        (TEXT_KEY, encode_row(Op.DELETE, ["user:2"])),
        (BYTES_KEY, encode_row(Op.DELETE, [b"order:3"])),
        (BYTES_KEY, encode_row(Op.DELETE_RANGE, [b"order:"], key_end=[b"order;"])),
    ]
)


@pytest.mark.parametrize(
    ("where", "tables", "kept"),
    [
        (None, [], None),
        ("true", ["*"], None),
        (None, ["shop.*"], None),
        (None, ["shop.users"], [0, 2, 3]),
        (None, ["other"], []),
        ('table == "shop.orders"', ["shop.*"], [1]),
        ('op == "delete"', [], [1, 2, 3]),
        ('op == "upsert"', [], [0]),
        ('key startswith "user:"', [], [0, 1]),
        ('key startswith "order:"', ["shop.users"], [2, 3]),
        ('table == "shop.orders" or key == "order:3"', [], [1, 2, 3]),
        ('key > ""', [], None),
    ],
)
def test_keep(where: str | None, tables: list[str], kept: list[int] | None) -> None:
    chosen = Filter.parse(where, tables)
    for argument in (RUN, RunView(RUN)):
        found = chosen.keep(argument)
        assert (found if found is None else list(found)) == kept


def test_tables_decide_without_the_rows() -> None:
    view = RunView(RUN)
    Filter.parse(None, ["shop.users"]).keep(view)
    assert view.size == 0


@pytest.mark.parametrize(
    ("where", "tables", "none"),
    [
        (None, [], False),
        (None, ["junk.*"], False),
        (None, ["shop.*", "x.y"], True),
        ('op == "delete"', ["shop.*"], True),
        ('op == "delete"', [], False),
        ("key[0] == 1", ["junk.a"], False),
        ('table == "shop.a"', [], True),
    ],
)
def test_a_table_of_which_nothing_is_wanted(where: str | None, tables: list[str], none: bool) -> None:
    assert Filter.parse(where, tables).wants_none_of("junk.a") is none


@pytest.mark.parametrize(
    ("where", "missing", "everything"),
    [
        ('email == "x"', {"email"}, True),
        ('not (email == "x" or changed(note))', {"email", "note"}, True),
        ("email is absent and id == 1", {"email"}, False),
        ('email == "x" or op == "delete"', {"email"}, True),
        ('email == "x" and op == "delete"', {"email"}, False),
        ('email == "x" and not left', {"email"}, False),
        ('table == "shop.users" and email == "x"', set(), False),
        ('table == "shop.users" and email == "x" or table == "shop.log" and note == "y"', {"note"}, True),
        ("id == 1", set(), False),
        ('key == "x"', set(), False),
    ],
)
def test_columns_that_a_table_lacks(where: str, missing: set[str], everything: bool) -> None:
    assert Filter.parse(where).lacking("shop.log", ["id", "at"]) == (frozenset(missing), everything)


def test_equal_meaning_has_one_hash() -> None:
    one = Filter.parse('op == "delete" and key startswith "user:"', ["shop.*"])
    other = Filter.parse('prefix(key, b"user:") and (table matches "shop.*" and op in ("delete"))')
    assert one.hash == other.hash
    assert explain(one) == explain(other) == 'key startswith b"user:" and op == "delete" and table matches "shop.*"'
    assert str(one) == one.text == 'table matches "shop.*" and (op == "delete" and key startswith "user:")'
    assert Filter.parse(None).matches_all
    assert Filter.parse(None).hash == Filter.parse("true", ["*"]).hash != one.hash


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_module, "_MAX_PLANS", 3)
    chosen = Filter.parse('key == "a"')
    for number in range(10):
        schema = Schema(f"t{number}", (Column("key", "bytes"),), ())
        assert chosen.keep(run_of([(schema, encode_row(Op.UPSERT, [b"b"]))])) == []
    assert len(chosen._plans) <= 3


@pytest.mark.parametrize(
    ("where", "column", "problem"),
    [
        ('true and changed("email")', 10, "changed\\(email\\) needs the row before the change"),
        ("entered", 1, "entered needs the row before"),
        ('email == "x"', 1, "the field email needs values"),
        ("key[1] == 'a'", 1, "a key of RocksDB has one part"),
        ("key == 12", 1, "cannot be compared with 12"),
        ("key in (1.5, 2)", 1, "cannot be compared with 1.5"),
        ('op == "insert"', 1, "does not distinguish insert from update"),
    ],
)
def test_what_rocksdb_cannot_decide_is_refused_at_its_column(where: str, column: int, problem: str) -> None:
    chosen = Filter.parse(where, ["default"])
    with pytest.raises(FilterError, match=f"column {column}: .*{problem}"):
        chosen.check(ROCKSDB)


def test_what_can_be_decided_is_not_refused() -> None:
    Filter.parse('key[0] == "a" and op == "merge" and hash(key) % 3 == 1', ["default"]).check(ROCKSDB)
    Filter.parse('email == "x" and key == 1 and op == "insert"').check(Capabilities())
    Filter.parse("changed(email) and entered").check(Capabilities())
    with pytest.raises(FilterError, match=r"(?s)email\.domain .*\[filter-invalid\]"):
        Filter.parse("changed(email.domain)").check(Capabilities())


JSON = open_formats(FormatSpec("json"), {"raw": FormatSpec("bytes")})
PAID, OPEN, BROKEN = b'{"status": "paid"}', b'{"status": "open"}', b"{"
RAW = Schema("raw", BYTES_KEY.key, BYTES_KEY.columns)
STORE = run_of(
    [
        (BYTES_KEY, encode_row(Op.UPSERT, [b"user:1"], after=[PAID])),
        (BYTES_KEY, encode_row(Op.UPSERT, [b"user:2"], after=[OPEN])),
        (BYTES_KEY, encode_row(Op.UPSERT, [b"user:3"], after=[BROKEN])),
        (BYTES_KEY, encode_row(Op.DELETE, [b"user:4"])),
        (BYTES_KEY, encode_row(Op.UPSERT, [b"order:5"], after=[OPEN])),
        (BYTES_KEY, encode_row(Op.UPSERT, [b"k" * 200], after=[OPEN])),
        (RAW, encode_row(Op.UPSERT, [b"user:7"], after=[OPEN])),
        (BYTES_KEY, encode_row(Op.UPSERT, [b"user:8"], too_large=True)),
    ]
)


def test_a_value_filter_without_before_images() -> None:
    view = RunView(STORE)
    found = Filter.parse('status == "paid"', formats=JSON).select(view)
    assert found.kept is None  # deletes, what cannot be read, and the keys of what does not pass
    assert found.marks == dict.fromkeys((1, 4, 5), 2)
    assert found.key_only.keys() == found.marks.keys()
    assert [(i, str(why)) for i, why in found.bad] == [
        (2, "no valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)")
    ]
    row = decode_row(found.key_only[5][3:])
    assert (row.op, values_of(row.key), values_of(row.after)) == (5, (b"k" * 200,), ())


def test_the_key_decides_before_any_value_is_read() -> None:
    view = RunView(STORE)
    found = Filter.parse('key startswith "order:" and status == "paid"', formats=JSON).select(view)
    assert (found.kept, found.marks, found.bad) == ([4], {4: 2}, [])
    assert len(view._records) == 1
    assert Filter.parse('op == "delete" and status == "paid"', formats=JSON).keep(view) == [3]
    assert Filter.parse('op != "delete" and status == "paid" and not left', formats=JSON).keep(view) == [0, 2, 6, 7]
    assert Filter.parse('status == "paid" and left', formats=JSON).keep(view) == [1, 4, 5]


def test_values_are_read_once_for_all_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    formats = open_formats(FormatSpec("json"), {})
    decoder = formats.of("shop.users")
    assert isinstance(decoder, JsonDecoder)
    read: list[bytes] = []
    extract = decoder.extract

    def counted(value: bytes, paths: Sequence[FieldPath]) -> list[Found]:
        read.append(value)
        return extract(value, paths)

    monkeypatch.setattr(decoder, "extract", counted)
    run = run_of([(BYTES_KEY, encode_row(Op.UPSERT, [b"k%d" % i], after=[b'{"a": %d}' % i])) for i in range(10)])
    view = RunView(run)
    filters = [Filter.parse(where, formats=formats) for where in ("a > 3", "a == 5", "b is absent and a < 7")]
    for one in filters:
        one.select(view)
    assert len(read) == 10
    size = view.size
    Filter.parse("a > 4", formats=formats).select(view)
    assert (len(read), view.size - size < 1000) == (10, True)
    Filter.parse("c > 4", formats=formats).select(view)  # a field that nobody asked for yet
    assert len(read) == 20


def test_a_changed_key_moves_into_the_selection_or_out_of_it() -> None:
    run = run_of(
        [
            (BYTES_KEY, encode_row(Op.UPDATE, [b"a1"], old_key=[b"b1"], after=[b"v"])),
            (BYTES_KEY, encode_row(Op.UPDATE, [b"b1"], old_key=[b"a1"], after=[b"v"])),
            (BYTES_KEY, encode_row(Op.UPDATE, [b"a1"], old_key=[b"a2"], after=[b"v"])),
            (BYTES_KEY, encode_row(Op.UPDATE, [b"b1"], old_key=[b"b2"], after=[b"v"])),
        ]
    )
    found = Filter.parse('key startswith "a"').select(run)
    assert (found.kept, found.marks, found.key_only) == ([0, 1, 2], {0: 1, 1: 2}, {})
    assert Filter.parse('key startswith "a" and entered').keep(run) == [0]


# --- bound to schema


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
