"""The state folder of a MySQL publisher of the release before: which server's log is which, how far it was read,
which tables it has."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from datastores.common.high_water import HighWater
from datastores.mysql.history.incarnations import Incarnations, Known
from datastores.mysql.server.catalog import Catalog
from wormhole.host.state_file import FolderState
from wormhole.model.errors import Diverged
from wormhole.model.position import Datamarker, LogPosition

FIRST, SECOND = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "b9f1a7f2-71ca-11e1-9e33-c80aa9429563"


@pytest.fixture
def folder(before: Path) -> Path:
    packed = before / "mysql/read.bin.gz"
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    return before / "mysql"


def test_how_far_the_log_was_read_is_known(folder: Path) -> None:
    place = LogPosition(3, 5, 95)
    water = HighWater(folder / "read.bin")
    assert water.last == Datamarker(place, f"{FIRST}:1-9,{SECOND}:1-2", place)
    further = LogPosition(3, 5, 99)
    water.rise(Datamarker(further, f"{FIRST}:1-9,{SECOND}:1-3", further))
    assert HighWater(folder / "read.bin").last == water.last


def test_every_incarnation_is_known(folder: Path) -> None:
    incarnations = Incarnations(FolderState(folder), HighWater(folder / "read.bin"))
    assert (incarnations.current, incarnations.unproven) == (3, True)
    assert incarnations.reached == LogPosition(3, 5, 0)
    assert incarnations.known(FIRST) == Known({3: "1700000000-1-aaaa", 4: "1700000001-1-aaaa-bbbb"}, current=False)
    assert incarnations.known(SECOND) == Known({5: "1700000002-2-cccc"}, current=True)
    assert incarnations.read_since(1) == [(1, f"{FIRST}:1-9"), (2, f"{FIRST}:1-9,{SECOND}:1-3")]
    incarnations.check_file(3, 5, "1700000002-2-cccc-dddd")
    with pytest.raises(Diverged, match="file 5 is another file than before"):
        incarnations.check_file(3, 5, "1700000009-2-cccc-dddd")


def test_a_datamarker_behind_the_lost_end_is_held(folder: Path) -> None:
    incarnations = Incarnations(FolderState(folder))
    shared = LogPosition(2, 5, 80)
    with pytest.raises(Diverged, match="the server lost the end of its log") as caught:
        incarnations.check_way(Datamarker(shared, f"{SECOND}:1-2", shared))
    assert (caught.value.first_missing, caught.value.last_missing) == ("2/5/90", f"{FIRST}:1-9,{SECOND}:1-3")


def test_the_tables_of_the_log_are_known(folder: Path) -> None:
    catalog = Catalog(folder / "tables.jsonl")
    assert catalog.all() == [("shop", "users"), ("shop", "noise"), ("shop", "Straße"), ("bank", "accounts")]
    assert catalog.of_database("shop") == ["users", "noise", "Straße"]
