"""The seed and the length of random rounds.

``make test`` always has the same seed, since its result must not be luck, and short rounds. Each soak has a new seed.
"""

from __future__ import annotations

import os
import random
from typing import Final

from hypothesis import settings

_SOAK: Final = "WORMHOLE_ROUNDS" in os.environ
_GIVEN: Final = int(os.environ.get("WORMHOLE_SEED", "0"))
_DRAWN: Final = random.SystemRandom().randrange(1, 1 << 31) if _SOAK else 20261122

SEED: Final = _GIVEN or _DRAWN
"""Rounds print it; ``WORMHOLE_SEED`` repeats them."""


_USUAL: Final = 50
"""Examples of a property in a run of chosen tests (`tests/conftest.py`)."""


def examples(count: int) -> settings:
    """As many examples of a property where tests are chosen, and in a run of the whole suite the part of them that its
    profile has. A soak takes the number of its profile.
    """
    return settings() if _SOAK else settings(max_examples=max(5, count * settings().max_examples // _USUAL))
