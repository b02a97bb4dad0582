"""The rare kinds: what cannot be read right is refused or said to be unavailable."""

from __future__ import annotations

import pytest

from datastores.rocksdb.decode.rare import rare_key, rare_update, wide_columns
from tests.support.rocksdb_wal import string, varint
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op
from wormhole.wire.rows import encode_row


def test_wide_columns_of_a_newer_version_are_unavailable() -> None:
    assert wide_columns(varint(2) + b"whatever") == (UNAVAILABLE, UNAVAILABLE)
    assert wide_columns(varint(1) + varint(0)) == (None, {})


@pytest.mark.parametrize(
    ("entity", "field"),
    [
        (b"", "version"),
        (b"\x01", "count"),
        (b"\x01\x09", "columns in 2 bytes"),
        (b"\x01\x01", "name size"),
        (b"\x01\x01" + string(b"n"), "value size"),
        (b"\x01\x01" + string(b"n") + varint(5) + b"abc", "do not add up"),
        (b"\xff\xff\xff\xff\x7f", "version"),
    ],
)
def test_broken_wide_columns_name_the_field(entity: bytes, field: str) -> None:
    with pytest.raises(DecodeError, match=field):
        wide_columns(entity)


def test_a_timed_put_without_its_time_is_refused() -> None:
    with pytest.raises(DecodeError, match="timed put"):
        rare_update(0x18, b"k", b"short", 0, b"", False)


def test_too_large_updates_keep_their_key() -> None:
    assert rare_update(0x00, b"k", b"", 0, b"", True) == encode_row(Op.DELETE, (b"k",), too_large=True)
    assert rare_update(0x02, b"k", b"", 0, b"", True) == encode_row(Op.MERGE, (b"k",), too_large=True)


def test_the_hash_of_a_key_with_a_timestamp_is_of_both_columns() -> None:
    assert rare_key(b"key12345678", 8, b"") == b"\x0a\x03key" + b"\x0a\x0812345678"
    assert rare_key(b"key", 0, b"") == b"\x0a\x03key"
