"""RocksDB and the publisher's folder, restored, wiped, moved and damaged in random sequences.

Every committed update is delivered or reported lost, and the flow always comes live again by what the runbook says.
``WORMHOLE_ROUNDS`` and ``WORMHOLE_SEED`` as in ``test_kill_nine.py``.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rocks_disasters import World
from tests.support.seed import SEED
from tests.support.small_disk import small_disk
from tests.system.harness.ensemble import Application, Ensemble, Plan

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "5"))


def test_nothing_is_lost_in_silence_and_the_flow_comes_live_again(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        seed = SEED + number
        folder = tmp_path / str(seed)
        folder.mkdir()
        world = World(folder, random.Random(seed))
        try:
            world.happen(4 if seed % 2 else 7)
        except BaseException as error:
            error.add_note(f"WORMHOLE_SEED={seed} WORMHOLE_ROUNDS=1: {', '.join(world.steps)}")
            error.add_note("\n".join(world.reports))
            raise
        finally:
            world.close()
        shutil.rmtree(folder)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The publisher's state folder, on a disk of a mebibyte."""
    with small_disk(tmp_path / "state", "1m") as folder:
        yield folder


def fill(junk: Path) -> None:
    """Until not a byte is free."""
    with pytest.raises(OSError, match="No space left"), junk.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_of_the_state_folder_stops_no_delivery_and_passes(disk: Path, tmp_path: Path) -> None:
    ensemble = Ensemble(Plan({"good": Application({"good-1": {}})}, zookeeper=False), tmp_path)
    publisher, junk = ensemble.publisher, disk / "junk"
    try:
        ensemble.start()
        ensemble.tell("fill 20 64")
        ensemble.await_all()
        fill(junk)
        ensemble.tell("fill 50 64")
        ensemble.await_all()
        publisher.await_output("is full: make space")
        assert publisher.output.read_text().count("datamarkers cannot be stored") == 1
        junk.unlink()
        publisher.await_output("datamarkers are stored again")
        publisher.kill()
        publisher.start()
        ensemble.tell("fill 50 64")
        ensemble.await_all()
        ensemble.check()
        assert not ensemble.checkers["good"].losses
    finally:
        ensemble.close()
