"""Columns that an application receives, and masks."""

from __future__ import annotations

import gc
from itertools import product

import pytest

from tests.property.test_filters import BYTES_KEY, TWO_COLUMNS, run_of
from wormhole.config.datastores import capabilities_of
from wormhole.filters import Filter, MaskKey, Projection, RunView
from wormhole.filters import projection as projection_module
from wormhole.filters.view import Head
from wormhole.model.errors import DecodeError, FilterError
from wormhole.model.schema import Column, Schema
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.model.values import Op
from wormhole.wire.rows import decode_row, encode_row, op_of, values_of

# --- projection


KEY = MaskKey(b"0123456789abcdef0123456789abcdef")
USERS = Schema(
    "shop.users",
    (Column("id", "int"),),
    (Column("id", "int"), Column("name", "text"), Column("Email", "text"), Column("age", "int")),
)
CARDS = Schema("shop.cards", (Column("number", "text"),), (Column("number", "text"), Column("email", "text")))
ADA = encode_row(Op.INSERT, (1,), after=(1, "ada", "ada@example.com", 36))
CARD = encode_row(Op.INSERT, ("4111",), after=("4111", "ada@example.com"))
MYSQL = capabilities_of("mysql")


def left(projection: Projection, row: bytes = ADA, schema: Schema = USERS) -> dict[str, object]:
    found, data = projection.project_row(schema, row)
    return dict(zip((column.name for column in found.columns), values_of(decode_row(data).after), strict=True))


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ([], ["id", "name", "Email", "age"]),
        (["name"], ["id", "name"]),
        (["EMAIL", "shop.users.age"], ["id", "Email", "age"]),
        (["shop.cards.*"], ["id"]),
        (["-email"], ["id", "name", "age"]),
        (["shop.users.*", "-a*"], ["id", "name", "Email"]),
        (["-*"], ["id"]),
    ],
)
def test_columns_are_kept_by_name_and_keys_always(columns: list[str], names: list[str]) -> None:
    assert list(left(Projection.parse(columns, {}))) == names


def test_a_mask_leaves_a_hash_or_null_and_says_so_in_the_schema() -> None:
    projection = Projection.parse([], {"email": "hash", "shop.users.a?e": "null"}, KEY)
    found = left(projection)
    assert found == {"id": 1, "name": "ada", "Email": found["Email"], "age": None}
    # What other programs compute: printf ada@example.com | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
    assert found["Email"] == "e3e30b4d50224a4ba14084607085d072402144212a122eb4501daddd6bbe0ee3"
    schema, _ = projection.project_row(USERS, ADA)
    assert [column.type for column in schema.columns] == ["int", "text", "hash", "int"]
    assert left(projection, CARD, CARDS)["email"] == found["Email"], "equal values can be joined"


def test_null_has_priority_over_a_hash() -> None:
    assert left(Projection.parse([], {"email": "hash", "shop.users.*mail": "null"}, KEY))["Email"] is None


@pytest.mark.parametrize(
    ("columns", "mask", "problem"),
    [
        ([], {"number": "hash"}, "mask: number names number, a column of the key of shop.cards"),
        ([], {"shop.cards.*": "null"}, r"mask: shop\.cards\.\* names number, a column of the key"),
        (["-shop.cards.number"], {}, r"columns: shop\.cards\.number names number, a column of the key"),
    ],
)
def test_a_key_is_not_masked_and_not_left_out(columns: list[str], mask: dict[str, str], problem: str) -> None:
    projection = Projection.parse(columns, mask, KEY)
    with pytest.raises(DecodeError, match=problem) as raised:
        projection.project_row(CARDS, CARD)
    assert raised.value.tables == ("shop.cards",)
    assert "`tables`" in (raised.value.hint or "")
    run = run_of([(CARDS, CARD), (USERS, ADA)])
    with pytest.raises(DecodeError):
        projection.project(run, None)
    assert projection.project(run, [1]).updates == 2, "a table of which nothing is wanted does not matter"
    assert projection.project(run, []) is run


@pytest.mark.parametrize("text", ["", ".", "shop.users.", ".email", "--email"])
def test_an_entry_has_to_name_a_column(text: str) -> None:
    with pytest.raises(FilterError, match=r"mask: .* names no column"):
        Projection.parse([], {text: "null"})
    if not text.startswith("-"):
        with pytest.raises(FilterError, match=r"columns: .* names no column"):
            Projection.parse([f"-{text}"], {})


def test_what_a_source_cannot_do_is_refused() -> None:
    with pytest.raises(FilterError, match=r"mask: an update of RocksDB has no columns"):
        Filter.parse(None, projection=Projection.parse([], {"email": "null"})).check(capabilities_of("rocksdb"))
    with pytest.raises(FilterError, match=r"columns: an update of RocksDB has no columns"):
        Filter.parse(None, projection=Projection.parse(["email"], {})).check(capabilities_of("rocksdb"))
    with pytest.raises(FilterError, match='no table is called "users"') as raised:
        Projection.parse([], {"users.email": "null"}).check(MYSQL)
    assert raised.value.hint == 'write "shop.users.email" or "*.users.email"'
    Projection.parse(["*.users.email", "shop.users.name", "-a"], {"b": "null"}).check(MYSQL)
    Projection().check(capabilities_of("rocksdb"))


def test_entries_that_name_no_column_are_known() -> None:
    projection = Projection.parse(["ID", "emial", "-nane"], {"shop.user.name": "null", "name": "null"})
    columns = tuple(ColumnDefinition(column.name, Content.TEXT, nullable=True) for column in USERS.columns)
    table = TableDefinition("shop.users", ("id",), columns)
    assert projection.unmatched([table]) == [("columns", "emial"), ("columns", "nane"), ("mask", "shop.user.name")]


def test_without_a_key_nothing_is_hashed() -> None:
    with pytest.raises(DecodeError, match="a mask needs the key") as raised:
        Projection.parse([], {"email": "hash"}).project_row(USERS, ADA)
    assert "mask_key_file" in (raised.value.hint or "")


def test_a_key_can_be_compared_and_not_seen() -> None:
    with pytest.raises(ValueError, match="has 31 bytes, at least 32"):
        MaskKey(bytes(31))
    other = MaskKey(bytes(100))
    assert KEY.check != other.check == MaskKey(bytes(100)).check
    assert "0123456789abcdef" not in repr(KEY) + repr(Projection.parse([], {"a": "hash"}, KEY))


@pytest.mark.parametrize(
    "damage", [ADA + b"\x42\x01a", ADA[:-1], ADA + b"\x1a\x00", ADA[:5], ADA + b"\x1a\xff\xff\xff\xff\xff"]
)
def test_bytes_that_could_hide_a_value_are_refused(damage: bytes) -> None:
    with pytest.raises(DecodeError, match="an update "):
        Projection.parse([], {"email": "null"}).project_row(USERS, damage)


def test_a_damaged_value_that_is_hidden_is_not_in_the_message() -> None:
    private = b"ada@example.com"
    with pytest.raises(DecodeError, match="to be hashed is damaged") as raised:
        KEY.hashed(bytes((0x3A, len(private))) + private)  # `decimal` of Value
    assert "ada" not in str(raised.value)


@pytest.mark.parametrize("kept", [0, 1, 100, 126, 127, 128, 129, 16_380, 16_384, 70_000])
@pytest.mark.parametrize("dropped", [0, 1, 100, 20_000])
def test_the_length_of_an_update_is_that_of_what_is_left(kept: int, dropped: int) -> None:
    schema = Schema("t", (), (Column("a", "text"), Column("b", "bytes")))
    row = encode_row(Op.INSERT, (), after=("a" * kept, b"b" * dropped))
    _, left_ = Projection.parse(["a"], {}).project_row(schema, row)
    assert left_ == encode_row(Op.INSERT, (), after=("a" * kept,))


def test_an_update_without_bytes_is_refused() -> None:
    run = run_of([(USERS, ADA)])
    run.blob, run.ends[0] = b"", 0
    with pytest.raises(DecodeError, match="an update breaks off in its length"):
        Projection.parse(["name"], {}).project(run, None)


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection_module, "_MAX_PLANS", 3)
    projection = Projection.parse(["name"], {})
    for number in range(10):
        projection.project_row(Schema(f"t{number}", (), (Column("a", "int"),)), encode_row(Op.INSERT, (), after=(1,)))
    assert len(projection._plans) <= 3


# --- view


@pytest.mark.parametrize("op", list(Op))
def test_heads_are_what_the_parser_reads(op: Op) -> None:
    for length, value in product([0, 1, 100, 125, 126, 127, 128, 300], [None, 0, 1, 100, 200, 20_000]):
        row = encode_row(op, [b"k" * length], after=() if value is None else [b"v" * value], too_large=value == 1)
        view = RunView(run_of([(BYTES_KEY, row)]))
        assert view.size == 0
        (key,) = view.keys
        found = (key,) if isinstance(key, bytes) else key.new.values
        message = decode_row(row)
        assert (view.ops[0], found) == (message.op, values_of(message.key)), (length, value)
        assert op_of(message) is op
        assert view.size > 0


def test_keys_that_are_not_one_bytes_value_keep_all_their_images() -> None:
    rows = [
        (TWO_COLUMNS, encode_row(Op.UPSERT, [b"a", 1])),
        (BYTES_KEY, encode_row(Op.UPDATE, [b"a"], old_key=[b"b"])),
        (BYTES_KEY, encode_row(Op.DELETE_RANGE, [b"a"], key_end=[b"c"])),
        (BYTES_KEY, encode_row(Op.UPSERT, ["text"])),
    ]
    heads = [key for key in RunView(run_of(rows)).keys if isinstance(key, Head)]
    assert [head.new.values for head in heads] == [(b"a", 1), (b"a",), (b"a",), ("text",)]
    assert [head.old and head.old.values for head in heads] == [None, (b"b",), None, None]
    assert heads[2].end == (b"c",)
    assert heads[1].new.hash_bytes == b"a"
    assert heads[0].new.hash_bytes == bytes.fromhex("0a0161") + bytes.fromhex("1802")


def test_a_view_leaves_no_cyclic_garbage() -> None:
    # Every update of a live flow left some, until Python looked for it: for minutes.
    def mine() -> list[Head]:
        heads = (one for one in gc.get_objects() if type(one) is Head)
        return [head for head in heads if head.new.values == ("cyclic",)]

    gc.disable()
    try:
        view = RunView(run_of([(BYTES_KEY, encode_row(Op.UPDATE, ["cyclic"], old_key=["former"]))]))
        assert len(view.moved) == 1
        assert len(mine()) == 1
        del view
        assert not mine()
    finally:
        gc.enable()


def test_what_was_forgotten_is_read_again() -> None:
    view = RunView(run_of([(TWO_COLUMNS, encode_row(Op.UPDATE, [b"a", 1], old_key=[b"b", 2], after=[b"v"]))]))
    before = view.head(0).new.hash_bytes, view.head(0).key_only()
    view.forget()
    assert (view.head(0).new.hash_bytes, view.head(0).key_only()) == before


def test_an_operation_of_a_later_version_is_zero() -> None:
    view = RunView(run_of([(BYTES_KEY, b"\x08\x63\x12\x03\x0a\x01a"), (BYTES_KEY, b"\x12\x03\x0a\x01a")]))
    assert view.ops == b"\0\0"
