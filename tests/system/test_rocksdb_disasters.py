"""RocksDB and the publisher's folder, restored, wiped, moved and damaged in random sequences.

Every committed update is delivered or reported lost, and the flow always comes live again by what the runbook says.
``WORMHOLE_ROUNDS`` and ``WORMHOLE_SEED`` as in ``test_kill_nine.py``.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from tests.support.rocks_disasters import World
from tests.support.seed import SEED

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
