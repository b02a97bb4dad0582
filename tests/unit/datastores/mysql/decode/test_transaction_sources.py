"""Sources get ordinals in the order in which they are met, under one name each, in both forms."""

from __future__ import annotations

from types import ModuleType

from tests.support.hot import hot_module

sources = hot_module("datastores.mysql.decode.transaction_sources")


def test_one_name_has_one_ordinal_however_it_is_said(sources: ModuleType) -> None:
    s = sources.Sources()
    uuid = bytes(range(16))
    text = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (s.of_uuid(uuid), s.of_domain(0, 7), s.add(text), s.add("0-7"), s.add("uuid/1")) == (0, 1, 0, 1, 2)
    assert (s.of_uuid(uuid), s.of_domain(0, 7)) == (0, 1)
    assert s.of_domain((1 << 32) - 1, (1 << 32) - 1) == 3
    assert s.names == [text, "0-7", "uuid/1", "4294967295-4294967295"]
