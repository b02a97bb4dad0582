"""The checksum of a transaction is that of its events, however many, in both forms."""

from __future__ import annotations

import zlib
from types import ModuleType

import pytest

from tests.support.hot import hot_module

anchor = hot_module("datastores.mysql.decode.transaction_checksum")


def event(n: int) -> bytes:
    return n.to_bytes(19, "big") + b"body" * n + n.to_bytes(4, "little")


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("count", [1, 2, 177, 178, 179, 1000])
def test_headers_and_checksums_of_all_events(anchor: ModuleType, checked: bool, count: int) -> None:
    a = anchor.TransactionChecksum()
    for _ in range(2):
        seen = b""
        for n in range(count):
            data = b"#" + event(n)
            a.note(data, 1, len(data), checked, n > 0)
            if n == 0:
                a.note(data, 1, len(data), checked, False)  # the last one before the beginning counts
                a.begin()
            seen += data[1:20] + (data[-4:] if checked else b"")
        assert a.end() == zlib.crc32(seen)


def test_a_transaction_that_is_given_up_leaves_nothing(anchor: ModuleType) -> None:
    a = anchor.TransactionChecksum()
    for n in (1, 2):
        a.note(event(n), 0, len(event(n)), True, n > 1)
        if n == 1:
            a.begin()
    a.end()
    a.note(event(3), 0, len(event(3)), True, False)
    a.begin()
    assert a.end() == zlib.crc32(event(3)[:19] + event(3)[-4:])
