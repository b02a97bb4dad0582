"""Which tables of a snapshot are complete, why others are not, and whom that concerns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_replay.tables.about import SnapshotAbout, SnapshotShard, SnapshotTable, about_from_json, about_to_json
from spark_replay.tables.newest import LogSchema
from tests.support.archives import CUSTOMERS, KEYS, marker_at
from wormhole.model.errors import ReplayError

WHOLE = SnapshotAbout(
    "orders",
    "main",
    {"a": SnapshotShard("1/1/0", marker_at(3), "db1")},
    {
        "default": SnapshotTable("tables/default", 3, 0, {"db1": LogSchema(KEYS, b"p")}),
        "shop.customers": SnapshotTable("tables/shop.customers", 5, 2, {"db1": LogSchema(CUSTOMERS, b"q")}),
    },
    {"shop.events": "it has no primary key"},
    ("shop.logs",),
    (KEYS, CUSTOMERS),
    (),
)
LATE = "the archive of a begins at 1/1/100, not at the shard's first row"
PARTIAL = replace(WHOLE, shards={"a": SnapshotShard("1/1/100", marker_at(3), "db1", LATE)})


def only(*tables: str) -> Callable[[str], bool]:
    return lambda table: table in tables


def test_a_table_is_complete_or_has_reasons() -> None:
    assert WHOLE.problems_of("default") == ()
    lacking = "2 rows of shop.customers have values that the log does not hold"
    assert WHOLE.problems_of("shop.customers") == (lacking,)
    assert PARTIAL.problems_of("shop.customers") == (LATE, lacking)
    events = "shop.events is left out: it has no primary key"
    assert WHOLE.problems == (lacking, events, "it was made without shop.logs")


@pytest.mark.parametrize(
    ("about", "wants", "refusal"),
    [
        (WHOLE, only("default"), ""),
        (WHOLE, only("default", "shop.events"), "shop.events is left out: it has no primary key"),
        (WHOLE, only("shop.logs"), "it was made without shop.logs"),
        (WHOLE, only("a.table.it.does.not.know"), ""),
        (PARTIAL, only("default"), f"default: {LATE}"),
        (PARTIAL, only("a.table.it.does.not.know"), LATE),
        (
            PARTIAL,
            only("default", "shop.events"),
            f"default, shop.events: {LATE}; shop.events is left out: it has no primary key",
        ),
    ],
)
def test_only_what_an_application_wants_is_refused(
    about: SnapshotAbout, wants: Callable[[str], bool], refusal: str
) -> None:
    assert about.refusal(wants) == refusal


def test_many_tables_are_not_all_named() -> None:
    tables = {f"t{number}": SnapshotTable("f", 0) for number in range(8)}
    refusal = replace(PARTIAL, tables=tables, left_out={}, others=()).refusal(lambda table: True)
    assert refusal == f"t0, t1, t2, t3, t4 and 3 more: {LATE}"


@pytest.mark.parametrize("about", [WHOLE, PARTIAL])
def test_what_was_written_is_read(about: SnapshotAbout) -> None:
    given = about_to_json(about, "2026-05-01T00:00:00+00:00")
    assert about_from_json(given, "x") == about
    assert {table: one["complete"] for table, one in given["tables"].items()} == {
        "default": about is WHOLE,
        "shop.customers": False,
    }
    assert given["complete"] is False


def test_one_of_an_earlier_release_is_complete_as_a_whole_or_not() -> None:
    older = {**about_to_json(WHOLE, ""), "problems": ["shop.events is left out"]}
    del older["others"]
    found = about_from_json(older, "x")
    assert (found.refusal(only("default")), found.continues) == ("default: shop.events is left out", False)
    complete = about_from_json({**older, "complete": True, "left_out": {}, "tables": {}}, "x")
    assert complete.refusal(lambda table: True) == ""
    assert about_from_json({**older, "problems": []}, "x").refusal(only("default")) == "default: it is not complete"


@pytest.mark.parametrize(
    "change",
    [
        {"shards": {"a": {"marker": "?"}}},
        {"tables": {"t": {"folder": "f"}}},
        {"tables": {"t": {"folder": "f", "rows": 1, "newest": {"db1": {"schema": "5", "place": ""}}}}},
        {"schemas": [5]},
        {"updates": [{}]},
        {"left_out": 5},
    ],
)
def test_what_cannot_be_read_is_named(change: dict[str, object]) -> None:
    with pytest.raises(ReplayError, match=r"/s/snapshot\.json cannot be read"):
        about_from_json({**about_to_json(WHOLE, ""), **change}, "/s/snapshot.json")
