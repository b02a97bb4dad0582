"""Schemas of rows: by the number that stands in the column."""

from __future__ import annotations

import pytest

from spark_replay.tables.schemas import by_signed_id, lookup
from wormhole.model.errors import ArchiveError
from wormhole.model.schema import Column, Schema


def _schemas() -> list[Schema]:
    return [Schema(f"t{i}", (), (Column("a", "int"),)) for i in range(40)]


def test_ids_are_found_in_twos_complement() -> None:
    found = by_signed_id(_schemas())
    assert min(found) < 0 < max(found)
    assert all(id_ & (1 << 64) - 1 == schema.id and -(1 << 63) <= id_ < 1 << 63 for id_, schema in found.items())


def test_a_schema_that_nobody_knows_says_what_to_do() -> None:
    one = _schemas()[0]
    with pytest.raises(ArchiveError, match=r"a table changed since.*start the query again"):
        lookup([])(one.id)
