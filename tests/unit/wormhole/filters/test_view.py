from __future__ import annotations

import gc

import pytest

from tests.property.test_filters import BYTES_KEY, TWO_COLUMNS, run_of
from wormhole.filters import RunView
from wormhole.filters.view import Head
from wormhole.model.values import Op
from wormhole.wire.rows import decode_row, encode_row, op_of, values_of


@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize("length", [0, 1, 100, 125, 126, 127, 128, 300])
@pytest.mark.parametrize("value", [None, 0, 1, 100, 200, 20_000])
def test_heads_are_what_the_parser_reads(op: Op, length: int, value: int | None) -> None:
    row = encode_row(op, [b"k" * length], after=() if value is None else [b"v" * value], too_large=value == 1)
    view = RunView(run_of([(BYTES_KEY, row)]))
    assert view.size == 0
    (key,) = view.keys
    found = (key,) if isinstance(key, bytes) else key.new.values
    message = decode_row(row)
    assert (view.ops[0], found) == (message.op, values_of(message.key))
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
