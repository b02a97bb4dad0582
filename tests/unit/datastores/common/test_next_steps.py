"""What an operator is advised to do with a flow that is held as diverged, before its application decided."""

from __future__ import annotations

import pytest

from datastores.mysql.history import incarnations
from datastores.mysql.log import dump_errors, scan
from datastores.postgres.history import proof
from datastores.rocksdb.log.places import diverged
from wormhole.model.position import Datamarker, LogPosition
from wormhole.problems.catalogue import entries

START = Datamarker(LogPosition(1, 1, 0), "0", LogPosition(1, 1, 0))
COMMANDS = (
    "`wormholectl repair APP/SHARD`",
    "`wormholectl flows accept-loss APP/SHARD`",
    "`wormholectl markers set APP/SHARD PLACE`",
)


def in_order(text: str) -> bool:
    """Whether all commands are named, each before the next one."""
    places = [text.find(command) for command in COMMANDS]
    return places[0] >= 0 and places == sorted(places)


@pytest.mark.parametrize(
    "hint",
    [scan.ANEW, dump_errors._ANEW, incarnations._ACCEPT, proof.ANEW, diverged(START, "it was replaced").hint],
    ids=["mysql", "mysql dump", "mysql history", "postgres", "rocksdb"],
)
def test_a_flow_that_diverged_is_repaired_first(hint: str) -> None:
    assert in_order(hint), hint


def test_as_the_runbook_says() -> None:
    assert in_order(entries()["log-diverged"].do)
