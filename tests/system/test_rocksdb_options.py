"""RocksDB with random options, written by its newest release, compared with what was written.

``WORMHOLE_ROUNDS`` and ``WORMHOLE_SEED`` as in ``test_kill_nine.py``.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

from tests.support.rocks_options import Life
from tests.support.seed import SEED

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "4"))


def test_whatever_the_options_everything_written_is_read(tmp_path: Path) -> None:
    print(f"WORMHOLE_SEED={SEED} WORMHOLE_ROUNDS={ROUNDS}")
    for number in range(ROUNDS):
        seed = SEED + number
        folder = tmp_path / str(seed)
        folder.mkdir()
        life = Life(folder, random.Random(seed))
        try:
            life.live(30)
            life.compare()
        except BaseException as error:
            error.add_note(f"WORMHOLE_SEED={seed} WORMHOLE_ROUNDS=1")
            error.add_note("\n".join(life.steps))
            raise
        finally:
            life.close()
        shutil.rmtree(folder)
